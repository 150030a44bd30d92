// Probe: a kernel that only reads a number of bytes. A kernel that must read as many bytes cannot be faster, so
// `kvjit bench` divides by the probe's time. The probe is timed with several launch shapes; the fastest counts.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/jit/context.hpp"

namespace kvjit {

// The time of the launch shape with the least median.
struct ProbeTiming {
  Backend::Timing timing;
  int unroll = 0;                     // loads of 16 bytes that a thread has in flight
  int blocks_per_multiprocessor = 0;  // blocks of the launch, divided by the multiprocessors
};

class Probe {
 public:
  static Result<Probe> make(std::shared_ptr<Context> context, const Registry& registry);

  // Times reading `bytes` bytes, rounded down to vectors of 16; calls alternate over `places`.
  Result<ProbeTiming> time(const std::vector<DevicePointer>& places, std::size_t bytes, int repeats) const;

 private:
  struct Loaded {
    int unroll = 0;
    Source source;
    KernelRecord record;
  };
  std::shared_ptr<Context> context_;
  std::vector<Loaded> kernels_;
  Buffer sink_;  // a kernel writes this word if it finds the needle, so that the compiler cannot drop the reads
};

}  // namespace kvjit
