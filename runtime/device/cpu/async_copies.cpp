// Queues, delivers and checks asynchronous copies: see async_copies.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/device/cpu/async_copies.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

namespace kvjit {
namespace {

constexpr unsigned kMostArrivals = (1u << 20) - 1;  // largest arrival and byte count (PTX ISA, mbarrier)
constexpr std::size_t kBarrierBytes = 8;
constexpr unsigned char kNanByte = 0xff;  // NaN as f16, bf16 and f32

std::uintptr_t past(const void* at, std::uintptr_t multiple) { return reinterpret_cast<std::uintptr_t>(at) % multiple; }

}  // namespace

std::string CopyQueue::add(void* to, const void* from, int bytes, int valid) {
  // PTX ISA, cp.async: cp-size is 4, 8 or 16 and both addresses are aligned to it.
  if (bytes != 4 && bytes != 8 && bytes != 16)
    return fmt::format("asynchronous copy of {} bytes (4, 8 and 16 are possible)", bytes);
  const auto size = static_cast<std::uintptr_t>(bytes);
  if (past(to, size) != 0 || past(from, size) != 0)
    return fmt::format(
        "asynchronous copy of {} bytes from an address that is {} mod {} to one that is {} mod {} "
        "(both must be aligned to the size)",
        bytes, past(from, size), bytes, past(to, size), bytes);
  if (valid < 0 || valid > bytes) return fmt::format("asynchronous copy of {} valid bytes of {}", valid, bytes);
  pending_.push_back({static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes, valid});
  return "";
}

std::string CopyQueue::wait(int groups_left) {
  if (groups_left < 0) return fmt::format("wait for asynchronous copies with {} groups left", groups_left);
  const auto left = static_cast<std::size_t>(groups_left);
  if (groups_.size() <= left) return "";
  const auto landing = static_cast<std::ptrdiff_t>(groups_.size() - left);
  const std::size_t copies = groups_[static_cast<std::size_t>(landing) - 1];
  for (std::size_t i = 0; i < copies; ++i) {
    const Copy& copy = pending_[i];
    const auto valid = static_cast<std::size_t>(copy.valid);
    if (valid != 0) std::memcpy(copy.to, copy.from, valid);
    std::memset(copy.to + valid, 0, static_cast<std::size_t>(copy.bytes) - valid);
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(copies));
  groups_.erase(groups_.begin(), groups_.begin() + landing);
  for (std::size_t& end : groups_) end -= copies;
  return "";
}

void BulkBarriers::Barrier::settle() {
  if (missing > 0 || expected != queued) return;
  for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
  copies.clear();
  missing = arrivals, expected = queued = 0;
  ++phase;
}

std::string BulkBarriers::open(void* at, unsigned arrivals) {
  if (past(at, kBarrierBytes) != 0) return "a barrier that is not aligned to 8 bytes";
  if (arrivals < 1 || arrivals > kMostArrivals) return fmt::format("a barrier of {} arrivals", arrivals);
  if (is_open(at)) return "a barrier is opened where one is open";
  std::memset(at, kNanByte, kBarrierBytes);
  Barrier& barrier = barriers_[at];
  barrier.arrivals = barrier.missing = arrivals;
  return "";
}

std::string BulkBarriers::close(void* at) {
  if (!is_open(at)) return "a barrier is closed that is not open";
  if (!barriers_[at].copies.empty()) return "a barrier is closed whose copies were never waited for";
  std::memset(at, kNanByte, kBarrierBytes);
  barriers_.erase(at);
  return "";
}

std::string BulkBarriers::arrive(void* at, unsigned bytes) {
  if (!is_open(at)) return "an arrival at a barrier that is not open";
  Barrier& barrier = barriers_[at];
  barrier.settle();
  if (barrier.missing == 0) return "an arrival at a barrier that waits for copies that were never queued";
  --barrier.missing;
  barrier.expected += bytes;
  if (barrier.expected > kMostArrivals) return fmt::format("{} bytes of one phase", barrier.expected);
  if (barrier.copies.empty()) barrier.settle();
  return "";
}

// PTX ISA, cp.async.bulk: addresses and size are multiples of 16.
std::string BulkBarriers::copy(void* to, const void* from, unsigned bytes, void* at) {
  if (!is_open(at)) return "a bulk copy for a barrier that is not open";
  if (past(to, 16) != 0 || past(from, 16) != 0 || bytes % 16 != 0 || bytes == 0)
    return fmt::format("a bulk copy of {} bytes from an address that is {} mod 16 to one that is {} (multiples of 16)",
                       bytes, past(from, 16), past(to, 16));
  std::memset(to, kNanByte, bytes);
  Barrier& barrier = barriers_[at];
  barrier.copies.push_back({to, from, bytes});
  barrier.queued += bytes;
  return "";
}

bool BulkBarriers::is_over(void* at, unsigned parity) {
  Barrier& barrier = barriers_[at];
  if (barrier.phase % 2 == parity) barrier.settle();
  return barrier.phase % 2 != parity;
}

std::string BulkBarriers::end_block() {
  bool has_copies = false;
  for (const auto& [at, barrier] : barriers_) has_copies |= !barrier.copies.empty();
  barriers_.clear();
  return has_copies ? "bulk copies were never waited for" : "";
}

}  // namespace kvjit
