// The file of this plugin, as the loader found it. Its name says how it was installed.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

namespace kvjit::plugin {

const std::string& own_file();  // an absolute path
std::string own_folder();

// The library whose place this file takes: libggml-cuda-kvjit.so is loaded by ggml in place of libggml-cuda.so, which
// lies beside it. "" if the file's name says no such thing.
std::string replaced_file();

}  // namespace kvjit::plugin
