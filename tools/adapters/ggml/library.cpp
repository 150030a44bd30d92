// Opens libkvjit: see library.hpp.
// SPDX-License-Identifier: MIT
#include "library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "own_file.hpp"

namespace kvjit::plugin {

const Library* Library::open(std::string& why) {
  std::vector<std::string> files;
  if (const char* named = std::getenv("KVJIT_LIBRARY"); named && *named)
    files = {named};
  else
    files = {own_folder() + "/libkvjit.so.0", own_folder() + "/libkvjit.so", "libkvjit.so.0"};
  for (const std::string& file : files) {
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      why += (why.empty() ? "" : "; ") + std::string(dlerror());
      continue;
    }
    auto* const library = new Library;
    library->file = file;
    const char* missing = nullptr;
#define X(name)                                                              \
  library->name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (!library->name) missing = #name;
    KVJIT_PLUGIN_FUNCTIONS(X)
#undef X
    if (!missing) return library;
    why += (why.empty() ? "" : "; ") + file + " has no " + missing;
    delete library;
  }
  return nullptr;
}

}  // namespace kvjit::plugin
