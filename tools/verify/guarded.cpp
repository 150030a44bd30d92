// Writes and checks the guards: see guarded.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/guarded.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace kvjit {
namespace {

// The bytes of a guard. Neighbouring bytes differ, so that a shifted guard is noticed as well as an overwritten one.
const std::vector<std::uint8_t>& pattern() {
  static const std::vector<std::uint8_t> bytes = [] {
    std::vector<std::uint8_t> guard(Guarded::kGuardBytes);
    for (std::size_t i = 0; i < guard.size(); ++i) guard[i] = static_cast<std::uint8_t>(i * 37 + i / 256 + 11);
    return guard;
  }();
  return bytes;
}

}  // namespace

Result<Guarded> Guarded::make(std::shared_ptr<Backend> backend, std::size_t bytes, std::uint8_t value) {
  Guarded guarded;
  KV_TRY(buffer, Buffer::make(backend, bytes + 2 * kGuardBytes));
  guarded.bytes_ = bytes;
  guarded.buffer_ = std::move(buffer);
  KV_CHECK(backend->copy_to_device(guarded.buffer_.pointer(), pattern().data(), kGuardBytes));
  KV_CHECK(backend->copy_to_device(guarded.pointer() + bytes, pattern().data(), kGuardBytes));
  KV_CHECK(backend->fill(guarded.pointer(), value, bytes));
  return guarded;
}

Result<void> Guarded::check(Backend& backend, const char* what) const {
  if (!buffer_.pointer()) return {};
  std::vector<std::uint8_t> found(kGuardBytes);
  for (const bool is_behind : {false, true}) {
    KV_CHECK(backend.copy_to_host(found.data(), is_behind ? pointer() + bytes_ : buffer_.pointer(), kGuardBytes));
    for (std::size_t i = 0; i < kGuardBytes; ++i)
      if (found[i] != pattern()[i])
        return fail(Code::differs, is_behind
                                       ? fmt::format("byte {} past the end of {} was written", i, what)
                                       : fmt::format("the byte {} ahead of {} was written", kGuardBytes - i, what));
  }
  return {};
}

}  // namespace kvjit
