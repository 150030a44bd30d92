// Unmapped: memory of the CPU back-end that a kernel must not touch. The pages between two addresses are taken away for
// the time of a call. A read of one of them, or of an address that has no memory at all, is recorded, and the page is
// given back, so that the kernel goes on and the process survives. count() says how many pages were touched.
//
// Reads are recorded on the thread that makes them: the CPU back-end runs a launch on the caller's thread.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/device/backend.hpp"

namespace kvjit {

class Unmapped {
 public:
  using Range = std::pair<DevicePointer, DevicePointer>;  // [first, last) byte

  // Takes away the whole pages inside of `ranges`.
  explicit Unmapped(const std::vector<Range>& ranges);
  ~Unmapped();
  Unmapped(const Unmapped&) = delete;
  Unmapped& operator=(const Unmapped&) = delete;

  // Pages that this thread touched since the object was made.
  static int count();
  static DevicePointer first();  // the first address of those; 0: none

 private:
  std::vector<Range> pages_;
};

}  // namespace kvjit
