// Way symbol: a call of ggml-cuda to its own attention comes to the plugin, because the loader finds the plugin's
// function of that name first. It works if the plugin's names are global before ggml-cuda is loaded, and if ggml-cuda's
// calls between its files go through the loader's tables, as in all builds of shared libraries without -Bsymbolic.
// SPDX-License-Identifier: MIT
#pragma once

namespace kvjit::plugin {

// Makes the plugin's names global. To be called before the library is loaded whose calls are to come here.
void offer_symbols();
// Whether a call of the library that `handle` stands for comes to the plugin: some slot of its table has the address of
// the plugin's function. `handle` is then where the functions of the same names are found that are called for the nodes
// that the plugin leaves.
bool are_symbols_taken(void* handle);

}  // namespace kvjit::plugin
