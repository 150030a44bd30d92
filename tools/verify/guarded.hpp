// Guarded: a buffer for kernels to write, with 4 KiB of a fixed pattern before and after it. check() reads the pattern
// back and fails if a kernel wrote past either end.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/device/backend.hpp"

namespace kvjit {

class Guarded {
 public:
  static constexpr std::size_t kGuardBytes = 4096;  // bytes of the pattern on either side, adjacent to the buffer

  Guarded() = default;
  // Allocates `bytes` bytes that are all `value`.
  static Result<Guarded> make(std::shared_ptr<Backend> backend, std::size_t bytes, std::uint8_t value);
  DevicePointer pointer() const { return buffer_.pointer() ? buffer_.pointer() + kGuardBytes : 0; }
  std::size_t bytes() const { return bytes_; }
  // Fails with Code::differs if a byte of a guard changed. `what` names the memory in the message.
  Result<void> check(Backend& backend, const char* what) const;

 private:
  Buffer buffer_;
  std::size_t bytes_ = 0;  // size of the buffer without the guards
};

}  // namespace kvjit
