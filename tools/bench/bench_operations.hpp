// time_operations times the operations on a cache beside quantize and dequantize: scatter and gather by slots, copy,
// requantize from K's format to V's, quantize with RoPE, and shift.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

struct OperationTime {
  std::string what;  // name of the operation
  double bytes = 0;  // bytes read plus bytes written
  Backend::Timing timing;
};

// Times each operation over the whole cache of K. The harness must have two copies. x is device memory for
// [tokens][kv_heads][head_dim] numbers of f16.
Result<std::vector<OperationTime>> time_operations(const std::shared_ptr<Context>& context, const Registry& registry,
                                                   const std::shared_ptr<Program>& program, const Problem& problem,
                                                   const KernelHarness& harness, DevicePointer x, int repeats);

}  // namespace kvjit
