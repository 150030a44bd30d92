// Probe: how long this device takes to read bytes and do nothing with them. The roof for a kernel that has to read as
// many.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/jit/context.hpp"

namespace kvjit {

struct ProbeTiming {
  Backend::Timing timing;
  int unroll = 0, blocks_per_multiprocessor = 0;  // the launch it is of: the one with the least median
};

class Probe {
 public:
  static Result<Probe> make(std::shared_ptr<Context> context, const Registry& registry);

  // Reads `bytes` (whole 16-byte vectors of them) from each of `places` in turn.
  Result<ProbeTiming> time(const std::vector<DevicePointer>& places, std::size_t bytes, int repeats) const;

 private:
  struct Loaded {
    int unroll = 0;
    Source source;
    KernelRecord record;
  };
  std::shared_ptr<Context> context_;
  std::vector<Loaded> kernels_;
  Buffer found_;
};

}  // namespace kvjit
