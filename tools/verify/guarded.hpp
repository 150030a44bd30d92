// Guarded: memory that kernels write, between bytes that nobody may write.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/device/backend.hpp"

namespace kvjit {

class Guarded {
 public:
  static constexpr std::size_t kGuardBytes = 4096;  // on either side; they begin right where the memory ends

  Guarded() = default;
  // All bytes of it are `value`.
  static Result<Guarded> make(std::shared_ptr<Backend> backend, std::size_t bytes, std::uint8_t value);
  DevicePointer pointer() const { return buffer_.pointer() ? buffer_.pointer() + kGuardBytes : 0; }
  std::size_t bytes() const { return bytes_; }
  // Fails with differs where a guard is no longer as it was made; `what` names the memory.
  Result<void> check(Backend& backend, const char* what) const;

 private:
  Buffer buffer_;
  std::size_t bytes_ = 0;
};

}  // namespace kvjit
