// Pools, page tables and row places inside pages: see pages.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/pages.hpp"

#include <algorithm>
#include <limits>
#include <random>

namespace kvjit {
namespace {

constexpr long long kPageAlign = 16;  // bytes: the least from page to page, and what it is a multiple of

long long round_up(long long v, long long to) { return (v + to - 1) / to * to; }
// The largest power of two, up to 16, that divides v: the alignment that all rows of v bytes have.
long long power_of_two_in(long long v) { return v == 0 ? 1 : std::min(v & -v, 16LL); }

long long pages_of(int page_tokens, long long tokens) { return (tokens + page_tokens - 1) / page_tokens; }

}  // namespace

SideGeometry pool_geometry(const ProgramSource& source, const SideInfo& side, long long heads, long long pages,
                           PagePlaces places) {
  const long long tokens = source.page_tokens;
  SideGeometry geometry = side_geometry(source, side, 1, heads, pages * tokens);
  if (places == PagePlaces::own || side.swizzles_scales ||
      geometry.total_bytes == std::numeric_limits<std::size_t>::max())
    return geometry;
  kv::CacheSide& strides = geometry.strides;
  const auto swap = [&](kv::i64& head, kv::i64& token, long long row) {
    const bool is_by_token = head == row && heads > 1;
    head = is_by_token ? row * tokens : row, token = is_by_token ? row : row * heads;
  };
  if (places == PagePlaces::other) {
    swap(strides.codes_head_stride, strides.codes_token_stride,
         source.is_planar() ? side.code_row_bytes : side.row_bytes);
    if (!side.has_head_scales)
      swap(strides.scales_head_stride, strides.scales_token_stride, source.is_planar() ? side.scale_row_bytes : 0);
    if (strides.codes_sequence_stride % (2 * kPageAlign) == 0) {
      strides.codes_sequence_stride += kPageAlign;
      if (!side.has_head_scales) strides.scales_sequence_stride += kPageAlign;
      const bool has_planes = geometry.total_bytes > geometry.codes_bytes;
      geometry.total_bytes += static_cast<std::size_t>(pages * kPageAlign);
      if (!has_planes) geometry.codes_bytes = geometry.total_bytes;
    }
    return geometry;
  }
  constexpr long long kForeign = 6;  // bytes of the engine behind each row of whole blocks
  const long long codes = source.is_planar() ? side.code_row_bytes : side.row_bytes + kForeign,
                  scales = source.is_planar() ? side.scale_row_bytes : 0;
  const long long scales_at = round_up(codes, power_of_two_in(scales)),
                  unit = source.is_planar() ? std::max(power_of_two_in(codes), power_of_two_in(scales)) : 2,
                  slot = round_up(scales_at + scales, unit), page = round_up(slot * tokens * heads, 16);
  geometry.total_bytes = static_cast<std::size_t>(page * pages);
  geometry.codes_bytes = scales > 0 ? static_cast<std::size_t>(scales_at) : geometry.total_bytes;
  strides.codes_sequence_stride = page, strides.codes_head_stride = slot * tokens, strides.codes_token_stride = slot;
  if (scales > 0)
    strides.scales_sequence_stride = page, strides.scales_head_stride = slot * tokens,
    strides.scales_token_stride = slot;
  return geometry;
}

std::vector<int> PageDeal::table(const std::vector<int>& lengths) const {
  std::vector<int> table = entries;
  for (std::size_t s = 0; s < lengths.size(); ++s)
    std::fill(table.begin() + static_cast<std::ptrdiff_t>(s * static_cast<std::size_t>(row_stride()) +
                                                          static_cast<std::size_t>(pages_of(page_tokens, lengths[s]))),
              table.begin() + static_cast<std::ptrdiff_t>((s + 1) * static_cast<std::size_t>(row_stride())),
              s % 2 ? std::numeric_limits<int>::min() : std::numeric_limits<int>::max());
  return table;
}

long long pool_pages(int page_tokens, long long sequences, long long tokens) {
  const long long used = pages_of(page_tokens, tokens) * sequences;
  return used + used / 8 + 1;
}

PageDeal deal_pages(int page_tokens, long long sequences, long long tokens, std::uint64_t seed) {
  PageDeal deal;
  if (page_tokens == 0) return deal;
  deal.page_tokens = page_tokens;
  deal.each = pages_of(page_tokens, tokens);
  deal.pool = pool_pages(page_tokens, sequences, tokens);
  std::vector<int> order(static_cast<std::size_t>(deal.pool));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::mt19937_64 random(seed);
  for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  deal.entries.resize(static_cast<std::size_t>(sequences * deal.row_stride()));
  for (long long s = 0; s < sequences; ++s)
    for (long long p = 0; p < deal.row_stride(); ++p)
      deal.entries[static_cast<std::size_t>(s * deal.row_stride() + p)] =
          p < deal.each ? order[static_cast<std::size_t>(s * deal.each + p)] : std::numeric_limits<int>::max();
  return deal;
}

}  // namespace kvjit
