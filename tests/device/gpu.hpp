// The GPU of the tests, and what its arch has. KVJIT_ARCH and KVJIT_AS_PTX choose another text for it.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdio>
#include <memory>
#include <string>

#include "tests/support/open_context.hpp"
#include "tests/support/skip.hpp"

namespace kvjit::test {

// Ends the tests if there is no GPU.
inline std::shared_ptr<Context> gpu() {
  const Options options = Options::from_environment();
  if (const auto backend = open_cuda(options); !backend && backend.error().code == Code::environment)
    skip("no GPU to test on: " + backend.error().message);
  static const auto context = open_context(DeviceKind::gpu);
  return context;
}

// Whether the arch of the tests has a capability. If not, it prints which test is left out.
inline bool arch_has(const std::string& capability, const char* test) {
  const std::string arch = gpu()->backend()->info().arch;
  if (must(registry().require_arch(arch, {}))->has(capability)) return true;
  std::printf("not tested: %s: %s has no %s\n", test, arch.c_str(), capability.c_str());
  return false;
}

}  // namespace kvjit::test
