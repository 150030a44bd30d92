// ClockMeter: the clock of the multiprocessors right behind other work, by a kernel that counts cycles over 200 us. A
// board at its power limit runs below its highest clock, so the peak of its tensor cores is that of the clock it has.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>

#include "generator/catalogue/registry.hpp"
#include "runtime/jit/context.hpp"

namespace kvjit {

class ClockMeter {
 public:
  static Result<ClockMeter> make(std::shared_ptr<Context> context, const Registry& registry);
  // MHz.
  Result<double> measure() const;

 private:
  std::shared_ptr<Context> context_;
  KernelRecord record_;
  Buffer counts_;  // cycles, nanoseconds
};

}  // namespace kvjit
