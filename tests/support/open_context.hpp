// Opens contexts for tests. All tests of a build share one folder of compiled kernels, because many of them use the
// same kernels, and compiling takes most of their time. A kernel's key has its text and its compiler, so no test sees a
// kernel of another text.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "runtime/jit/context.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {

// Returns the path of the folder of compiled kernels.
inline const std::string& shared_cache() {
  static const std::string folder = KVJIT_BINARY_DIR "/tests/kernels";
  return folder;
}

inline std::shared_ptr<Context> open_context(DeviceKind device, unsigned fiber_seed = 0) {
  Options options = Options::from_environment();
  options.device = device;
  if (device == DeviceKind::cpu) options.as_ptx = false;  // KVJIT_AS_PTX is the GPU's
  options.fiber_seed = fiber_seed;
  options.cache_dir = shared_cache();
  return must(Context::open(options));
}

}  // namespace kvjit::test
