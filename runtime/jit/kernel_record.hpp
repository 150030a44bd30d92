// KernelRecord: a kernel in use, and what ran, exactly.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device/backend.hpp"
#include "runtime/store/entry_source.hpp"

namespace kvjit {

struct KernelRecord {
  std::string name, key;  // key: 64 hex digits
  Origin origin = Origin::compiled;
  double ready_ms = 0;    // what this get() cost
  double compile_ms = 0;  // of the compile that made it, wherever that was; 0: not known
  int registers = 0, stack_bytes = 0, spill_bytes = 0;
  std::uint64_t code_bytes = 0;
  std::shared_ptr<Kernel> kernel;
};

}  // namespace kvjit
