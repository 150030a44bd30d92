// The code of both back-ends: Buffer and check_timing.
// SPDX-License-Identifier: MIT
#include "runtime/device/backend.hpp"

#include <fmt/format.h>

#include <utility>

namespace kvjit {

Result<void> check_timing(int repeats, int buffer_sets) {
  if (repeats >= 1 && buffer_sets >= 1) return {};
  return fail(Code::usage,
              fmt::format("{} timed repeats, {} buffer sets: at least 1 of each is needed", repeats, buffer_sets));
}

Result<Buffer> Buffer::make(std::shared_ptr<Backend> backend, std::size_t bytes) {
  KV_TRY(pointer, backend->allocate(bytes));
  Buffer buffer;
  buffer.backend_ = std::move(backend);
  buffer.pointer_ = pointer;
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (backend_ != nullptr && pointer_ != 0) backend_->release(pointer_);
}

}  // namespace kvjit
