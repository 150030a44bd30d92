// Checks of a cache's memory: see kv_checks.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/kv_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <tuple>

#include "runtime/base/sizes.hpp"

namespace kvjit {

tl::unexpected<Error> refuse(std::string message) { return fail(Code::bad_input, std::move(message)); }

Result<void> check_pointer(const MemoryName& name, const void* pointer, unsigned alignment) {
  if (!pointer) return refuse(fmt::format("{} is a null pointer", name.text()));
  if (const auto off = reinterpret_cast<std::uintptr_t>(pointer) % alignment; off != 0)
    return refuse(
        fmt::format("{} is {} bytes past a multiple of {}; it must be aligned to it", name.text(), off, alignment));
  return {};
}

namespace {

// The largest power of two, up to `most`, that divides `bytes`.
unsigned power_of_two_in(long long bytes, unsigned most) {
  return std::min(most, static_cast<unsigned>(bytes & -bytes));
}

// Alignment of one plane of a page (args/page_table.cuh). strides: from page to page, head to head, token to token.
Result<void> check_page(const ProgramSource& source, const MemoryName& what, const void* data, long long row_bytes,
                        bool is_scales, const long long (&strides)[3], long long heads) {
  const unsigned unit = source.is_planar() ? power_of_two_in(row_bytes, kVectorAlignment) : 2;
  const bool is_dense = is_scales && row_bytes < kVectorAlignment && strides[2] == row_bytes &&
                        source.page_tokens * row_bytes % kVectorAlignment == 0;
  const unsigned aligned = is_dense ? kVectorAlignment : unit, page = source.is_planar() ? aligned : kVectorAlignment;
  KV_CHECK(check_pointer(what, data, aligned));
  const std::tuple<const char*, long long, unsigned> all[] = {
      {"page", strides[0], page}, {"head", heads > 1 ? strides[1] : 0, aligned}, {"token", strides[2], unit}};
  for (const auto& [name, stride, alignment] : all)
    if (stride % alignment != 0)
      return refuse(fmt::format("{}: {} stride {} is not a multiple of {}", what.text(), name, stride, alignment));
  return {};
}

// The planes of rows that a side consists of.
struct Plane {
  const char* name;
  const void* data;
  long long row_bytes, sequence_stride, head_stride, token_stride;
};
// row_bytes of the second plane is 0 if there is none.
std::array<Plane, 2> planes_of(const ProgramSource& source, const SideInfo& info, const kv::CacheSide& side) {
  return {Plane{"codes", side.codes, source.is_planar() ? info.code_row_bytes : info.row_bytes,
                side.codes_sequence_stride, side.codes_head_stride, side.codes_token_stride},
          Plane{"scales", side.scales, source.is_planar() ? info.scale_row_bytes : 0, side.scales_sequence_stride,
                side.scales_head_stride, side.scales_token_stride}};
}

}  // namespace

std::vector<Footprint> footprints_of(const ProgramSource& source, const SideInfo& info, const SideTokens& tokens) {
  std::vector<Footprint> memory;
  memory.reserve(2);
  const bool is_paged = source.page_tokens > 0;
  for (const Plane& plane : planes_of(source, info, tokens.side)) {
    if (plane.row_bytes == 0) continue;
    const Wide first = is_paged ? 0 : Wide{tokens.first} * plane.token_stride;
    memory.emplace_back(
        MemoryName(tokens.name, plane.name), plane.data, plane.row_bytes, first,
        std::initializer_list<Dimension>{{plane.sequence_stride, is_paged ? tokens.pages : tokens.sequences},
                                         {plane.head_stride, tokens.heads},
                                         {plane.token_stride, is_paged ? source.page_tokens : tokens.tokens}});
  }
  return memory;
}

Result<void> check_side_memory(const ProgramSource& source, const SideInfo& info, const SideTokens& tokens,
                               bool is_written) {
  const bool is_paged = source.page_tokens > 0;
  SideTokens all = tokens;
  all.first = 0, all.tokens = tokens.first + tokens.tokens;
  const auto planes = planes_of(source, info, tokens.side);
  const std::vector<Footprint> memory = footprints_of(source, info, all);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const bool fits = memory[i].bytes() <= std::numeric_limits<std::ptrdiff_t>::max();
    if (fits && !(is_written && memory[i].overlaps_itself())) continue;
    const std::string strides =
        fmt::format("strides {}, {} and {} of {} {}, {} heads and {} tokens", planes[i].sequence_stride,
                    planes[i].head_stride, planes[i].token_stride, is_paged ? all.pages : all.sequences,
                    is_paged ? "pages" : "sequences", all.heads, is_paged ? source.page_tokens : all.tokens);
    if (!fits) return refuse(fmt::format("{}: {} do not fit 64 bits", memory[i].name(), strides));
    return refuse(fmt::format("{}: rows of {} bytes overlap, by {}", memory[i].name(), planes[i].row_bytes, strides));
  }
  return {};
}

Result<void> check_table(const ProgramSource& source, const char* name, const kv::PageTable& table, bool is_needed) {
  if (source.page_tokens == 0) {
    if (!table.pages) return {};
    return refuse(fmt::format("a page table for {} of {}, whose cache has no pages", name, source.id));
  }
  if (!table.pages && !is_needed) return {};
  KV_CHECK(check_pointer(fmt::format("{}: the page table", name).c_str(), table.pages, alignof(int)));
  if (table.row_stride < 0)
    return refuse(fmt::format("{}: page table rows {} entries apart; 0 or more is possible", name, table.row_stride));
  return {};
}

namespace {

// Checks the pointer and the strides of the scales of KV heads, which are not part of the cache.
Result<void> check_head_scales(const ProgramSource& source, const SideInfo& info, const char* name,
                               const kv::CacheSide& side) {
  if (!info.has_head_scales) return {};
  const MemoryName what(name, "scales");
  if (!side.scales)
    return refuse(fmt::format("{} is a null pointer; {} has a scale for each KV head, in device memory", what.text(),
                              info.format));
  KV_CHECK(check_pointer(what, side.scales, alignof(float)));
  for (const auto& [stride_name, stride, is_free] :
       {std::tuple{"head", side.scales_head_stride, true},
        std::tuple{source.page_tokens > 0 ? "page" : "sequence", side.scales_sequence_stride, source.page_tokens == 0},
        std::tuple{"token", side.scales_token_stride, false}})
    if (is_free ? stride % static_cast<long long>(sizeof(float)) != 0 : stride != 0)
      return refuse(fmt::format("{}: {} stride {}; the scales of heads need {}", what.text(), stride_name, stride,
                                is_free ? "a multiple of 4" : "0"));
  return {};
}

}  // namespace

Result<void> check_side(const ProgramSource& source, const SideInfo& info, const char* name, const kv::CacheSide& side,
                        long long heads) {
  KV_CHECK(check_head_scales(source, info, name, side));
  return check_planes(source, info, name, side, heads);
}

Result<void> check_planes(const ProgramSource& source, const SideInfo& info, const char* name,
                          const kv::CacheSide& side, long long heads) {
  const auto planes = planes_of(source, info, side);
  const unsigned alignment =
      source.is_planar() ? kVectorAlignment : 2;  // bytes; layout rows: an f16 scale may stand at any even address
  for (const Plane& plane : planes) {
    if (plane.row_bytes == 0) continue;
    const MemoryName what(name, plane.name);
    if (info.swizzles_scales && &plane != &planes[0] && plane.token_stride != plane.row_bytes)
      return refuse(fmt::format("{}: token stride {}; swizzled scales of a head are dense in a page: {} bytes a token",
                                what.text(), plane.token_stride, plane.row_bytes));
    if (source.page_tokens > 0) {
      KV_CHECK(check_page(source, what, plane.data, plane.row_bytes, &plane != &planes[0],
                          {plane.sequence_stride, plane.head_stride, plane.token_stride}, heads));
      continue;
    }
    KV_CHECK(check_pointer(what, plane.data, alignment));
    if (source.is_planar() && plane.token_stride != plane.row_bytes)
      return refuse(fmt::format("{}: token stride {}; layout planar stores rows densely: {} bytes of {}", what.text(),
                                plane.token_stride, plane.row_bytes, info.format));
    const long long strides[] = {plane.sequence_stride, plane.head_stride, source.is_planar() ? 0 : plane.token_stride};
    const char* names[] = {"sequence", "head", "token"};
    for (int i = 0; i < 3; ++i)
      if (strides[i] % alignment != 0)
        return refuse(
            fmt::format("{}: {} stride {} is not a multiple of {}", what.text(), names[i], strides[i], alignment));
  }
  return {};
}

Result<void> check_token_heads(const ProgramSource& source, const SideInfo& info, const char* name,
                               const kv::CacheSide& side, long long heads) {
  if (source.token_heads == 0) return {};
  if (heads != source.token_heads)
    return refuse(
        fmt::format("{} KV heads; {} is for tokens of {} (cache.token_heads)", heads, source.id, source.token_heads));
  KV_CHECK(check_pointer({name, "codes"}, side.codes, kVectorAlignment));
  const long long token = source.token_heads * info.row_bytes;
  if (side.codes_head_stride != info.row_bytes || side.codes_token_stride != token)
    return refuse(fmt::format(
        "{}.codes: heads {} and tokens {} bytes apart; with cache.token_heads = {} they lie side by "
        "side: {} and {} bytes of {}",
        name, side.codes_head_stride, side.codes_token_stride, source.token_heads, info.row_bytes, token, info.format));
  if (side.codes_sequence_stride % kVectorAlignment != 0)
    return refuse(fmt::format("{}.codes: sequence stride {} is not a multiple of {}, as cache.token_heads needs", name,
                              side.codes_sequence_stride, kVectorAlignment));
  return {};
}

}  // namespace kvjit
