// Opens contexts for tests. All contexts of a process share one folder of compiled kernels, because tests open many
// contexts that use the same kernels.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/jit/context.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/temp_folder.hpp"

namespace kvjit::test {

// Returns the path of a folder for compiled kernels. The folder is removed when the process ends.
inline const std::string& scratch_cache() {
  static const TempFolder folder;
  return folder.path;
}

inline std::shared_ptr<Context> open_context(DeviceKind device, unsigned fiber_seed = 0) {
  Options options = Options::from_environment();
  options.device = device;
  options.fiber_seed = fiber_seed;
  options.cache_dir = scratch_cache();
  return must(Context::open(options));
}

}  // namespace kvjit::test
