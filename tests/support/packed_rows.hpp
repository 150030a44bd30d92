// Reads stored rows in two independent ways: code by code, by the fields of the format; and as the lanes of decode read
// them, by the plan LaneReads. Tests compare both.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <vector>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit::test {

// Returns bits 0 .. bits - 1 of the stored code k of a block.
inline int stored_code(const Format& f, const std::uint8_t* block, int section, int k) {
  int code = 0;
  for (const Field& field : f.fields)
    for (int bit = 0; field.kind == FieldKind::codes && field.section == section && bit < field.bits; ++bit) {
      const int at = field.place_of(k, bit);
      code |= (block[field.at + at / 8] >> at % 8 & 1) << (field.low + bit);
    }
  return code;
}
inline void store_code(const Format& f, std::uint8_t* block, int section, int k, int code) {
  for (const Field& field : f.fields)
    for (int bit = 0; field.kind == FieldKind::codes && field.section == section && bit < field.bits; ++bit) {
      const int at = field.place_of(k, bit);
      std::uint8_t& byte = block[field.at + at / 8];
      byte = std::uint8_t((byte & ~(1 << at % 8)) | (code >> (field.low + bit) & 1) << at % 8);
    }
}
// Returns the value that a stored code stands for, in units of the scale.
inline double value_of(const Section& s, int stored) {
  if (s.kind == CodeKind::table) return s.values[std::size_t(stored)];
  return (s.twos_complement ? stored ^ 1 << (s.bits - 1) : stored) - s.offset;
}

// Returns the code of each channel of a row in the rotated domain; -1: the channel belongs to another section.
inline std::vector<int> codes_of(const Format& f, const std::vector<std::uint8_t>& row, int section, int dim) {
  std::vector<int> codes(std::size_t(f.rotated_dim(dim)), -1);
  const Section& s = f.sections[std::size_t(section)];
  for (int block = 0; block < dim / f.block; ++block)
    for (int k = 0; k < s.count(f.block); ++k)
      codes[std::size_t((section == f.residual_section ? dim : 0) + block * f.block + s.channel(k))] =
          stored_code(f, row.data() + block * f.block_bytes, section, k);
  return codes;
}

// Loads the bytes of one field that a lane reads in lane read `run`, from a staged row of layout rows, as
// stage_tile.cuh does.
inline void load_plane(const FieldRead& plane, const std::uint8_t* block, int run, int row_lane,
                       std::vector<std::uint32_t>& words) {
  const int late = plane.wrap > 0     ? row_lane / plane.wrap * plane.wrap_bits
                   : plane.shared > 0 ? row_lane / plane.shared % 2 * plane.shared_bits
                                      : 0;
  row_lane = plane.lanes_before(row_lane);
  const int step = plane.is_unaligned ? 1 : plane.unit, bit = row_lane * plane.lane_bits, unit = 8 * step;
  const std::uint8_t* at =
      block + plane.at + run * plane.read_bits / 8 + (plane.loads_whole_field ? 0 : bit / unit * step);
  const int shift = plane.loads_whole_field ? bit : bit % unit;
  const int end = plane.load_bytes * 8 + (plane.lane_bits % 8 == 0 ? shift : 0);  // else the load includes the shift
  for (int b = shift; b < end; ++b)
    words[std::size_t(plane.first_word + (b - shift) / 32)] |= std::uint32_t(at[b / 8] >> b % 8 & 1)
                                                               << (b - shift) % 32;
  for (int i = 0; i < plane.words; ++i) words[std::size_t(plane.first_word + i)] >>= late;
}
inline std::vector<std::uint32_t> load_run(const SidePlan& side, const LaneReads& run, const std::uint8_t* row,
                                           int group, int r, int row_lane) {
  std::vector<std::uint32_t> words(std::size_t(run.words));
  const int block = group * run.blocks + row_lane / run.lanes_per_block;
  for (const FieldRead& plane : run.planes)
    load_plane(plane, row + block * side.block_stride, r, row_lane % run.lanes_per_block, words);
  return words;
}

// Evaluates one emitted unpack expression: the sum of shifted and masked words.
inline std::uint32_t sum_of(const UnpackWord& terms, const std::vector<std::uint32_t>& words) {
  std::uint32_t sum = 0;
  for (const UnpackTerm& t : terms) {
    const std::uint32_t word = words.at(std::size_t(t.word));
    sum |= (t.shift >= 0 ? word >> t.shift : word << -t.shift) & t.mask;
  }
  return sum;
}
inline std::vector<std::uint32_t> unpacked(const LaneReads& run, std::vector<std::uint32_t> words) {
  for (const UnpackWord& helper : run.helpers) words.push_back(sum_of(helper, words));
  std::vector<std::uint32_t> slots;
  for (const UnpackWord& terms : run.unpack) slots.push_back(sum_of(terms, words));
  return slots;
}

}  // namespace kvjit::test
