// Finds the file of this plugin: see own_file.hpp.
// SPDX-License-Identifier: MIT
#include "own_file.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace kvjit::plugin {

const std::string& own_file() {
  static const std::string file = [] {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return std::string();
    return std::filesystem::absolute(info.dli_fname).string();
  }();
  return file;
}

std::string own_folder() { return std::filesystem::path(own_file()).parent_path().string(); }

std::string replaced_file() {
  const std::filesystem::path path = own_file();
  const std::string name = path.filename().string(), prefix = "libggml-", suffix = "-kvjit.so";
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return "";
  return (path.parent_path() / (name.substr(0, name.size() - suffix.size()) + ".so")).string();
}

}  // namespace kvjit::plugin
