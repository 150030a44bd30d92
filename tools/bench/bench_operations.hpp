// Operations on a cache beside quantize and dequantize, timed: rows gathered, copied, coded anew, turned.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

struct OperationTime {
  std::string what;
  double bytes = 0;  // read and written
  Backend::Timing timing;
};

// Over the whole of K's cache, which has two copies; x: device memory for [tokens][kv_heads][head_dim] halves.
Result<std::vector<OperationTime>> time_operations(const std::shared_ptr<Context>& context, const Registry& registry,
                                                   const std::shared_ptr<Program>& program, const Problem& problem,
                                                   const Trial& trial, DevicePointer x, int repeats);

}  // namespace kvjit
