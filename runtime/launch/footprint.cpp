// Footprints of tensors and caches: see footprint.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/footprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/launch/kv_checks.hpp"

namespace kvjit {

Footprint::Footprint(MemoryName name, const void* data, Wide row_bytes, Wide first,
                     std::initializer_list<Dimension> dimensions)
    : name_(name), begin_(static_cast<Wide>(reinterpret_cast<std::uintptr_t>(data)) + first), row_bytes_(row_bytes) {
  for (Dimension dimension : dimensions) {
    if (dimension.count <= 1) continue;
    if (dimension.stride < 0) {
      begin_ += dimension.stride * (dimension.count - 1);
      dimension.stride = -dimension.stride;
    }
    if (dimension.stride == 0)
      repeats_ = true;
    else
      dimensions_[used_++] = dimension;
  }
  std::sort(dimensions_.begin(), dimensions_.begin() + static_cast<std::ptrdiff_t>(used_),
            [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
}

Wide Footprint::bytes_from(std::size_t level) const {
  Wide bytes = row_bytes_;
  for (std::size_t i = level; i < used_; ++i) bytes += dimensions_[i].stride * (dimensions_[i].count - 1);
  return bytes;
}

bool Footprint::overlaps_itself() const {
  for (std::size_t i = 0; i < used_; ++i)
    if (dimensions_[i].stride < bytes_from(i + 1)) return true;
  return repeats_;
}

// distance: from the first byte of a's part to the first byte of b's part.
bool Footprint::overlap(const Footprint& a, std::size_t level, const Footprint& b, std::size_t other_level,
                        Wide distance) {
  if (distance >= a.bytes_from(level) || -distance >= b.bytes_from(other_level)) return false;
  if (level == a.used_ || other_level == b.used_) return true;
  const Dimension &mine = a.dimensions_[level], &other = b.dimensions_[other_level];
  const Wide stride = mine.stride, bytes = a.bytes_from(level + 1), other_bytes = b.bytes_from(other_level + 1);
  if (other.stride != stride || bytes > stride || other_bytes > stride) return true;
  // Part i of a and part i + steps of b are distance + steps * stride apart. Only the three distances around zero can
  // be short enough.
  const Wide nearest = -distance / stride;
  for (Wide steps = std::max<Wide>(nearest - 1, 1 - mine.count); steps <= std::min<Wide>(nearest + 1, other.count - 1);
       ++steps)
    if (overlap(a, level + 1, b, other_level + 1, distance + steps * stride)) return true;
  return false;
}

bool overlap(const Footprint& a, const Footprint& b) { return Footprint::overlap(a, 0, b, 0, b.begin_ - a.begin_); }

Result<void> check_apart(const Footprint& written, const Footprint& other) {
  if (!overlap(written, other)) return {};
  return refuse(fmt::format("{} overlaps {}; what a call writes must be apart from it", written.name(), other.name()));
}

Result<void> check_apart(const Footprint& written, const std::vector<Footprint>& others) {
  for (const Footprint& other : others) KV_CHECK(check_apart(written, other));
  return {};
}

}  // namespace kvjit
