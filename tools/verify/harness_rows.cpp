// KernelHarness's stored rows: reads, writes and repeats them in a cache of any layout. Host arrays have rows as whole
// blocks in file order. visit_row maps each field of a row to its byte in the cache: inside whole blocks (layout rows),
// or in a plane of codes and a plane of scales (planar).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/verify/harness.hpp"
#include "tools/verify/harness_data.hpp"

namespace kvjit {

using namespace harness;

std::size_t KernelHarness::rows_bytes(int side) const {
  return static_cast<std::size_t>(stored_sequences() * shape_.kv_heads * shape_.tokens *
                                  format(side).row_bytes(format(side).stored_dim(problem_.dim(side))));
}

namespace {

// Visits each scale of a row, which is one block. scales: where those of its piece begin, plus its number in the piece.
template <class Visit>
void visit_swizzled(const Field& scale, long long scales, long long row, Visit visit) {
  Field one = scale;
  one.bytes = 1;
  const int quarter = scale.bytes / 4;
  for (int group = 0; group < scale.bytes; ++group)
    visit(one, scales + group / quarter * scale.bytes + group % quarter * 4, row + group);
}

}  // namespace

long long KernelHarness::scales_of_token(int side, long long token) const {
  const long long stride = geometry_[side].strides.scales_token_stride;
  return info(side).swizzles_scales ? token / 4 * 4 * stride + token % 4 : token * stride;
}

// codes and scales are the offsets of the row in the side's memory; row is its offset among the rows in file order.
template <class Visit>
void KernelHarness::visit_row(int side, long long codes, long long scales, long long row, Visit visit) const {
  const Format& stored = format(side);
  const bool is_planar = program_->source().is_planar();
  for (int block = 0; block < stored.stored_dim(problem_.dim(side)) / stored.block;
       ++block, row += stored.block_bytes, codes += is_planar ? 0 : stored.block_bytes)
    for (const Field& field : stored.fields) {
      if (field.kind == FieldKind::pad && is_planar) continue;
      if (stored.swizzles_scales && !field.is_code()) {
        visit_swizzled(field, scales, row + field.at, visit);
        continue;
      }
      long long& plane = field.is_code() ? codes : scales;
      visit(field, is_planar ? plane : codes + field.at, row + field.at);
      if (is_planar) plane += field.bytes;
    }
}

std::pair<long long, long long> KernelHarness::row_place(int side, long long sequence, long long head,
                                                         long long token) const {
  const kv::CacheSide& strides = geometry_[side].strides;
  if (const PageDeal& pages = pages_[side]; pages.page_tokens > 0)
    sequence = pages.page_of(sequence, token), token %= pages.page_tokens;
  return {shape_.rows.front + sequence * strides.codes_sequence_stride + head * strides.codes_head_stride +
              token * strides.codes_token_stride,
          static_cast<long long>(geometry_[side].codes_bytes) + sequence * strides.scales_sequence_stride +
              head * strides.scales_head_stride + scales_of_token(side, token)};
}

template <class Visit>
void KernelHarness::for_each_field(int side, Visit visit) const {
  long long row = 0;
  for (long long s = 0; s < stored_sequences(); ++s)
    for (long long h = 0; h < shape_.kv_heads; ++h)
      for (long long t = 0; t < shape_.tokens; ++t, row += info(side).row_bytes) {
        const auto [codes, scales] = row_place(side, s, h, t);
        visit_row(side, codes, scales, row, visit);
      }
}

Result<std::vector<std::uint8_t>> KernelHarness::rows(int side) const {
  std::vector<std::uint8_t> memory(geometry_[side].total_bytes), rows(rows_bytes(side));
  KV_CHECK(context_->backend()->copy_to_host(memory.data(), this->memory(0, side), memory.size()));
  for_each_field(side, [&](const Field& field, long long at, long long row) {
    std::memcpy(&rows[static_cast<std::size_t>(row)], &memory[static_cast<std::size_t>(at)],
                static_cast<std::size_t>(field.bytes));
  });
  return rows;
}

Result<void> KernelHarness::set_rows(int side, std::span<const std::uint8_t> rows) {
  KV_CHECK(check_count("the stored rows", rows.size(), rows_bytes(side)));
  std::vector<std::uint8_t> memory(geometry_[side].total_bytes, 0xFF);
  for_each_field(side, [&](const Field& field, long long at, long long row) {
    if (field.kind != FieldKind::pad)
      std::memcpy(&memory[static_cast<std::size_t>(at)], &rows[static_cast<std::size_t>(row)],
                  static_cast<std::size_t>(field.bytes));
  });
  return context_->backend()->copy_to_device(this->memory(0, side), memory.data(), memory.size());
}

std::vector<std::pair<DevicePointer, DevicePointer>> KernelHarness::unmapped_ranges() const {
  constexpr std::size_t kChunk = 16;  // bytes; a read of a row may take its whole chunks
  std::vector<std::pair<DevicePointer, DevicePointer>> ranges;
  const int sides = values_at_ == 0 ? 1 : 2;  // V may be in K's rows
  for (int side = 0; side < sides; ++side) {
    if (unmapped_[side].empty()) continue;
    const DevicePointer begin = memory(0, side), end = side + 1 < sides ? memory(0, 1) : memory(0) + copy_bytes_;
    std::vector<bool> is_kept((end - begin + kChunk - 1) / kChunk);
    for_each_field(side, [&](const Field& field, long long at, long long row) {
      if (unmapped_[side][static_cast<std::size_t>(row / info(side).row_bytes)]) return;
      const auto first = static_cast<std::size_t>(at), bytes = static_cast<std::size_t>(std::max(field.bytes, 1));
      for (std::size_t chunk = first / kChunk; chunk <= (first + bytes - 1) / kChunk; ++chunk) is_kept[chunk] = true;
    });
    for (std::size_t chunk = 0; chunk < is_kept.size();) {
      const auto first = chunk;
      while (chunk < is_kept.size() && !is_kept[chunk]) ++chunk;
      if (chunk > first) ranges.push_back({begin + first * kChunk, std::min(begin + chunk * kChunk, end)});
      while (chunk < is_kept.size() && is_kept[chunk]) ++chunk;
    }
  }
  return ranges;
}

Result<void> KernelHarness::fill(int side, std::span<const std::uint8_t> rows) {
  const SideInfo& stored = info(side);
  const long long count = static_cast<long long>(rows.size()) / stored.row_bytes;
  if (count < 1) return fail(Code::internal, fmt::format("{} bytes are no row of {}", rows.size(), stored.format));
  if (pages_[side].page_tokens > 0) return fill_pages(side, rows, count);
  const bool is_planar = program_->source().is_planar();
  const long long code_row = is_planar ? stored.code_row_bytes : stored.row_bytes;
  const long long scale_row = is_planar ? stored.scale_row_bytes : 0;
  std::vector<std::uint8_t> planes(static_cast<std::size_t>(count * (code_row + scale_row)), 0xFF);
  for (long long t = 0; t < count; ++t)
    visit_row(side, t * code_row, count * code_row + t * scale_row, t * stored.row_bytes,
              [&](const Field& field, long long at, long long row) {
                if (field.kind != FieldKind::pad)
                  std::memcpy(&planes[static_cast<std::size_t>(at)], &rows[static_cast<std::size_t>(row)],
                              static_cast<std::size_t>(field.bytes));
              });
  // The rows of a plane have no gaps, so the pattern repeats over the whole plane: over heads, over sequences, and over
  // the tokens by which the capacity of a head is rounded up.
  Backend& backend = *context_->backend();
  const auto codes = static_cast<std::size_t>(count * code_row);
  const std::size_t codes_bytes = geometry_[side].codes_bytes, bytes = geometry_[side].total_bytes;
  const auto lay = [&](std::size_t at, std::span<const std::uint8_t> pattern, std::size_t plane) -> Result<void> {
    const std::size_t some = std::min(pattern.size(), plane);
    KV_CHECK(backend.copy_to_device(memory(0, side) + at, pattern.data(), some));
    return repeat(backend, memory(0, side) + at, some, plane);
  };
  const std::span<const std::uint8_t> pattern = planes;
  KV_CHECK(lay(0, pattern.first(codes), codes_bytes));
  if (scale_row > 0) KV_CHECK(lay(codes_bytes, pattern.subspan(codes), bytes - codes_bytes));
  for (int copy = 1; copy < shape_.copies; ++copy)
    KV_CHECK(backend.copy_on_device(memory(copy, side), memory(0, side), bytes, nullptr));
  return backend.synchronize(nullptr);
}

// Every page may have the same content: the first few pages get the rows one after the other, and the rest are copies
// of these pages.
Result<void> KernelHarness::fill_pages(int side, std::span<const std::uint8_t> rows, long long count) {
  const SideGeometry& geometry = geometry_[side];
  const auto page = static_cast<std::size_t>(geometry.strides.codes_sequence_stride);
  const long long tokens = pages_[side].page_tokens, heads = shape_.kv_heads;
  const long long some = std::min(pages_[side].pool, (count + tokens * heads - 1) / (tokens * heads));
  std::vector<std::uint8_t> memory(static_cast<std::size_t>(some) * page, 0xFF);
  const kv::CacheSide& strides = geometry.strides;
  long long row = 0;
  for (long long p = 0; p < some; ++p)
    for (long long h = 0; h < heads; ++h)
      for (long long t = 0; t < tokens; ++t, row = (row + 1) % count)
        visit_row(side,
                  p * strides.codes_sequence_stride + h * strides.codes_head_stride + t * strides.codes_token_stride,
                  static_cast<long long>(geometry.codes_bytes) + p * strides.scales_sequence_stride +
                      h * strides.scales_head_stride + scales_of_token(side, t),
                  row * info(side).row_bytes, [&](const Field& field, long long at, long long from) {
                    if (field.kind != FieldKind::pad)
                      std::memcpy(&memory[static_cast<std::size_t>(at)], &rows[static_cast<std::size_t>(from)],
                                  static_cast<std::size_t>(field.bytes));
                  });
  Backend& backend = *context_->backend();
  KV_CHECK(backend.copy_to_device(this->memory(0, side), memory.data(), memory.size()));
  KV_CHECK(repeat(backend, this->memory(0, side), memory.size(), geometry.total_bytes));
  for (int copy = 1; copy < shape_.copies; ++copy)
    KV_CHECK(backend.copy_on_device(this->memory(copy, side), this->memory(0, side), geometry.total_bytes, nullptr));
  return backend.synchronize(nullptr);
}

}  // namespace kvjit
