// libkvjit, opened at run time: the plugin must load, and leave ggml as it was, where the library is missing.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "kvjit.h"

namespace kvjit::plugin {

#define KVJIT_PLUGIN_FUNCTIONS(X) \
  X(kvjit_version)                \
  X(kvjit_context_create)         \
  X(kvjit_program_request)        \
  X(kvjit_request_wait)           \
  X(kvjit_request_cancel)         \
  X(kvjit_request_destroy)        \
  X(kvjit_allocate)               \
  X(kvjit_release)                \
  X(kvjit_copy_to_device)         \
  X(kvjit_workspace_bytes)        \
  X(kvjit_attention)              \
  X(kvjit_mask_ranges)            \
  X(kvjit_alibi_slopes)

struct Library {
#define X(name) decltype(&::name) name = nullptr;
  KVJIT_PLUGIN_FUNCTIONS(X)
#undef X
  std::string file;

  // Opens KVJIT_LIBRARY if that is set, and no other; else the library beside the plugin, else the loader's. Returns
  // null, and why, if none works. The library stays open until the process ends.
  static const Library* open(std::string& why);
};

}  // namespace kvjit::plugin
