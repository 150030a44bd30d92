// Way symbol: a call of ggml-cuda to its own attention comes to the plugin, because the loader finds the plugin's
// function of that name first. It works if the plugin's names are global before ggml-cuda is loaded, and if ggml-cuda's
// calls between its files go through the loader's tables, as in all builds of shared libraries without -Bsymbolic.
// SPDX-License-Identifier: MIT
#pragma once

namespace kvjit::plugin {

// Makes the plugin's names global, and loads the library whose calls are to come here. Nodes that the plugin leaves go
// to the library's own function, whichever way in is taken in the end. Null if the library does not load.
void* load_behind_symbols(const char* file);
// Whether a call of that library comes to the plugin: some slot of its table has the address of the plugin's function.
bool are_symbols_taken(void* handle);

}  // namespace kvjit::plugin
