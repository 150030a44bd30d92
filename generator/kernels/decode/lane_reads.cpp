// plan_lane_reads: which bytes of a packed row each lane reads.
//
// The head dimension may be contracted (K) or produced (V) in any order. So each lane loads neighbouring bytes of the
// stored row, whatever the packing. The order of dimensions that results is a table (LaneReads::elements), by which the
// kernel gathers Q and writes O.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

// The codes of each (read, lane of the block), at [read * lanes of a block + lane], in the order of their bits.
using CodeSets = std::vector<std::vector<int>>;

// The lowest bit of the field that any of the codes has.
int first_bit(const Field& plane, const std::vector<int>& codes) {
  int first = plane.bit_of(codes[0]);
  for (const int k : codes) first = std::min(first, plane.bit_of(k));
  return first;
}

// Deals out codes by their place in the widest plane, read_bits at a time: to each lane of a block one lane read, then
// to each lane the next.
CodeSets codes_by_bytes(const Field& plane, int count, int reads_per_group, int lanes_per_row, int read_bits) {
  CodeSets sets(std::size_t(reads_per_group * lanes_per_row));
  std::vector<int> order(static_cast<std::size_t>(count));
  for (int k = 0; k < count; ++k) order[std::size_t(k)] = k;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return plane.bit_of(a) < plane.bit_of(b); });
  for (const int k : order) {
    const int at = plane.bit_of(k) / read_bits;
    if (at < int(sets.size())) sets[std::size_t(at)].push_back(k);
  }
  return sets;
}

// Finds lanes that share bytes: where codes of a byte lie apart (Field::split), lane row_lane has the bytes of lane
// row_lane % wrap, and its codes are wrap_bits further on for each wrap lanes before it.
void wrap_lanes(const Field& plane, const CodeSets& sets, int reads_per_group, int lanes_per_row, FieldRead& load) {
  if (plane.split == 0 || reads_per_group > 1) return;
  for (int wrap = 2; wrap < lanes_per_row; wrap *= 2) {
    const int begin = first_bit(plane, sets[std::size_t(wrap)]);
    if (begin == 0 || begin >= 8) continue;
    load.wrap = wrap, load.wrap_bits = begin;
    return;
  }
}

// Plans the loads of one plane, of which lanes may share bytes (FieldRead::shared). False if the codes of some sets are
// placed differently from those of the first set, or if the distance from lane to lane, or from read to read, is not
// constant.
bool plan_shared_read(const Field& plane, int at, const CodeSets& sets, int reads_per_group, int lanes_per_row,
                      int shared, FieldRead& load) {
  load = {};
  if (first_bit(plane, sets[0]) != 0) return false;
  load.at = at;
  const int next = shared == 1 ? 2 : 1;  // the first lane that has other bytes than lane 0
  load.lane_bits = lanes_per_row > next ? first_bit(plane, sets[std::size_t(next)]) : 0;
  load.read_bits = reads_per_group > 1 ? first_bit(plane, sets[std::size_t(lanes_per_row)]) : 0;
  if (shared == 0)
    wrap_lanes(plane, sets, reads_per_group, lanes_per_row, load);
  else
    load.shared = shared, load.shared_bits = first_bit(plane, sets[std::size_t(shared)]);
  if (shared > 0 && (load.lane_bits % 8 != 0 || load.shared_bits >= 8)) return false;
  const auto lane_begin = [&](int row_lane) {
    const int bits = load.wrap > 0     ? row_lane / load.wrap * load.wrap_bits
                     : load.shared > 0 ? row_lane / load.shared % 2 * load.shared_bits
                                       : 0;
    return load.lanes_before(row_lane) * load.lane_bits + bits;
  };
  int span = 0;
  for (int r = 0; r < reads_per_group; ++r)
    for (int row_lane = 0; row_lane < lanes_per_row; ++row_lane) {
      const auto& set = sets[std::size_t(r * lanes_per_row + row_lane)];
      const int first = first_bit(plane, set);
      if (first != r * load.read_bits + lane_begin(row_lane)) return false;
      for (std::size_t i = 0; i < set.size(); ++i) {
        const int offset = plane.bit_of(set[i]) - first;
        if (offset != plane.bit_of(sets[0][i])) return false;
        span = std::max(span, offset + plane.bits);
      }
    }
  if (load.read_bits % 8 != 0) return false;
  if (plane.is_circular) {
    // Codes want at most a byte behind the lane read (Section::is_tail_biting). Where lane reads are no whole bytes,
    // each lane loads the circle and turns it.
    const int codes = int(sets[0].size()), bits = codes * plane.step;
    load.is_circular = true, load.loads_whole_field = bits % 8 != 0;
    load.load_bytes = load.loads_whole_field ? plane.bytes : bits / 8;
    load.words = load.loads_whole_field ? (bits + plane.bits - plane.step + 31) / 32 : load.load_bytes / 4 + 1;
    return !load.loads_whole_field || (plane.bytes <= 16 && plane.bytes % 4 == 0 && reads_per_group == 1);
  }
  if (load.lane_bits % 8 != 0 && reads_per_group == 1 && plane.bytes <= 4) {
    load.loads_whole_field = true;
    load.load_bytes = plane.bytes;
  } else {
    load.load_bytes =
        (span + (load.lane_bits % 8 == 0 ? load.shared_bits : 7) + 7) / 8;  // 7: a read may start inside a byte
  }
  load.words = (load.load_bytes + 3) / 4;
  return true;
}

bool plan_field_read(const Field& plane, int at, const CodeSets& sets, int reads_per_group, int lanes_per_row,
                     FieldRead& load) {
  if (plan_shared_read(plane, at, sets, reads_per_group, lanes_per_row, 0, load)) return true;
  for (int shared = 1; plane.split > 0 && 2 * shared <= lanes_per_row; shared *= 2)
    if (plan_shared_read(plane, at, sets, reads_per_group, lanes_per_row, shared, load)) return true;
  return false;
}

// Plans the reads of a field with Field::is_nibbles. A lane of K has a group of three words. A lane of V has half a
// group: one of the first two words, and the third word, which two lanes load. False if `lanes_per_block` lanes of a
// block do not divide like that.
bool plan_nibbles(const Field& field, int at, int lanes_per_row, int lanes_per_block, LaneReads& reads,
                  CodePieces& pieces_by_code) {
  const int groups = field.bytes / 12;
  const bool is_half = lanes_per_block == 2 * groups;
  if (!is_half && lanes_per_block != groups) return false;
  reads.codes = is_half ? 16 : 32;
  for (int word = 0; word < (is_half ? 2 : 3); ++word) {
    FieldRead& plane = reads.planes.emplace_back();
    const bool is_shared = is_half && word == 1;
    plane.at = at + 4 * (is_shared ? 2 : word) * groups;
    plane.lane_bits = 32, plane.load_bytes = 4, plane.words = 1, plane.first_word = word;
    if (is_shared) plane.wrap = groups, plane.wrap_bits = 2;
  }
  reads.words = int(reads.planes.size());
  for (int code = 0; code < reads.codes; ++code) {
    const auto place = [&](int bit) {  // in the words of lane 0
      const int b = field.bit_of(code, bit), word = b / 32 / groups;
      return (is_half && word == 2 ? 1 : word) * 32 + b % 32;
    };
    auto& code_pieces = pieces_by_code.emplace_back();
    if (place(2) == place(0) + 2)
      code_pieces.push_back({place(0), 3, 0});
    else
      code_pieces.push_back({place(0), 2, 0}), code_pieces.push_back({place(2), 1, 2});
  }
  for (int row_lane = 0; row_lane < lanes_per_row; ++row_lane)
    for (int code = 0; code < reads.codes; ++code)
      reads.elements.push_back(row_lane % lanes_per_block % groups * 32 + row_lane % lanes_per_block / groups * 16 +
                               code);
  return true;
}

// Joins lane reads of V of half a word each: those of tokens t and t + 8 are unpacked as one word. Token t then has the
// first half of each word of code lanes, and token t + 8 the second. Does nothing where the packing does not allow it.
void join_tokens(CodePieces pieces_by_code, LaneReads& reads, const CodeLanes& slots) {
  const int codes = int(pieces_by_code.size()), half = slots.per_word() / 2;
  if (reads.planes.size() != 1 || reads.planes[0].load_bytes != 2 || reads.planes[0].lane_bits % 8 != 0) return;
  for (int k = 0; k < codes; ++k) {
    auto& other = pieces_by_code.emplace_back(pieces_by_code[std::size_t(k)]);
    for (CodePiece& code_piece : other) code_piece.at += 16;
  }
  if (int(pieces_by_code.size()) % slots.per_word() != 0) return;
  LaneReads joined = reads;
  plan_unpack(std::move(pieces_by_code), joined, slots);
  std::vector<int> lane_order;
  for (int i = 0; i < 2 * codes; ++i) {
    if (i / half % 2 == 1) continue;
    if (joined.lane_order[std::size_t(i + half)] != joined.lane_order[std::size_t(i)] + codes) return;
    lane_order.push_back(joined.lane_order[std::size_t(i)]);
  }
  reads = joined;
  reads.lane_order = lane_order;
  reads.is_joined = true;
}

std::string outcome(const Format& format, int lanes_per_row, int head_dim) {
  return fmt::format("the packing of {} does not split evenly over {} lanes at head_dim {}", format.name, lanes_per_row,
                     head_dim);
}

}  // namespace

int bank_wavefronts(const std::vector<int>& addresses, int unit) {
  // A load of 16 (8) bytes a lane is served in quarter (half) warps; 32 banks of 4 bytes.
  const std::size_t lanes_at_once = unit == 16 ? 8 : unit == 8 ? 16 : 32;
  int wavefronts = 0;
  std::vector<int> words;
  for (std::size_t first = 0; first < addresses.size(); first += lanes_at_once) {
    words.clear();
    for (std::size_t i = first; i < std::min(first + lanes_at_once, addresses.size()); ++i)
      for (int at = addresses[i] / 4; at <= (addresses[i] + unit - 1) / 4; ++at) words.push_back(at);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<int, 32> of_bank{};
    for (const int word : words) ++of_bank[std::size_t(word % 32)];
    wavefronts += *std::max_element(of_bank.begin(), of_bank.end());
  }
  return wavefronts;
}

Result<LaneReads> plan_lane_reads(const SidePlan& side, int index, int head_dim, int lanes_per_row, bool is_by_value,
                                  const CodeLanes& slots) {
  const Format& format = side.format;
  const Section& section = format.sections[std::size_t(index)];
  LaneReads reads;
  reads.lanes_per_row = lanes_per_row, reads.block_stride = side.block_stride;
  // A row of values without blocks (f16, for one) is treated as one block.
  const bool is_bare = format.block == 1;
  const int dim = is_bare ? format.rotated_dim(head_dim) : format.stored_dim(head_dim),
            block = is_bare ? dim : format.block, count = section.count(block);
  std::vector<Field> planes;
  for (const Field& field : format.fields)
    if (field.kind == FieldKind::codes && field.section == index) planes.push_back(field);
  std::stable_sort(planes.begin(), planes.end(), [](const Field& a, const Field& b) { return a.bits > b.bits; });
  if (is_bare) planes[0].bytes = count * section.bits / 8;

  if (planes[0].is_nibbles) {
    // The eight lanes of a warp that share a row of V use one scale, so they share a block.
    const int groups = count / 32, lanes_per_block = lanes_per_row >= 8 ? 2 * groups : groups;
    CodePieces pieces_by_code;
    if (lanes_per_row % lanes_per_block != 0 || dim % (block * lanes_per_row / lanes_per_block) != 0 ||
        !plan_nibbles(planes[0], side.is_planar ? planes[0].plane_at : planes[0].at, lanes_per_row, lanes_per_block,
                      reads, pieces_by_code))
      return fail(Code::unsupported, outcome(format, lanes_per_row, head_dim));
    reads.blocks = lanes_per_row / lanes_per_block, reads.lanes_per_block = lanes_per_block;
    reads.groups = dim / (block * reads.blocks);
    const std::vector<int> codes = std::exchange(reads.elements, {});
    for (int g = 0; g < reads.groups; ++g)
      for (int i = 0; i < int(codes.size()); ++i)
        reads.elements.push_back((g * reads.blocks + i / reads.codes / lanes_per_block) * block +
                                 section.channel(codes[std::size_t(i)]));
    plan_unpack(std::move(pieces_by_code), reads, slots);
    return reads;
  }

  const int granule = section.is_wide()                           ? 4
                      : lanes_per_row == 4 || section.is_vector() ? 8
                                                                  : 4;  // a lane read has a multiple of so many codes
  const int stride = planes[0].stride(), widest = std::max(side.widest_read * 8, granule * stride);
  // Tries few lanes a block first, because one scale then serves many codes of a lane. Unless scales are multiplied to
  // values, the lanes of one warp share a block: four of K, eight of V.
  for (int lanes_per_block = is_by_value ? 1 : std::min(lanes_per_row, 8); lanes_per_block <= lanes_per_row;
       lanes_per_block *= 2) {
    const int blocks = lanes_per_row / lanes_per_block, lane_codes = count / lanes_per_block;
    if (count % lanes_per_block != 0 || dim % (block * blocks) != 0 || lane_codes % granule != 0) continue;
    int codes = lane_codes;
    if (lane_codes * stride % widest == 0 && widest % stride == 0) codes = widest / stride;
    while (is_by_value && codes > format.scale.group && codes % (2 * granule) == 0) codes /= 2;
    if (is_by_value && format.scale.group % codes != 0)  // whole reads in each scale group
      codes = std::gcd(lane_codes, format.scale.group);
    if (codes % granule != 0) continue;
    const int reads_per_group = lane_codes / codes;
    const CodeSets sets = codes_by_bytes(planes[0], count, reads_per_group, lanes_per_block, codes * stride);
    if (std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return int(set.size()) != codes; })) continue;
    reads.planes.assign(planes.size(), {});
    bool is_even = true;
    for (std::size_t p = 0; p < planes.size(); ++p)
      is_even = is_even && plan_field_read(planes[p], side.is_planar ? planes[p].plane_at : planes[p].at, sets,
                                           reads_per_group, lanes_per_block, reads.planes[p]);
    if (!is_even) continue;
    reads.groups = dim / (block * blocks), reads.reads_per_group = reads_per_group, reads.codes = codes;
    reads.blocks = blocks, reads.lanes_per_block = lanes_per_block;
    const int base = index == format.residual_section ? dim : 0;
    for (int g = 0; g < reads.groups; ++g)
      for (int r = 0; r < reads_per_group; ++r)
        for (int row_lane = 0; row_lane < lanes_per_row; ++row_lane)
          for (const int k : sets[std::size_t(r * lanes_per_block + row_lane % lanes_per_block)])
            reads.elements.push_back(base + (g * blocks + row_lane / lanes_per_block) * block + section.channel(k));
    reads.words = 0;
    for (FieldRead& plane : reads.planes) plane.first_word = reads.words, reads.words += plane.words;
    if (!is_spread(section)) return reads;
    CodePieces pieces_by_code;
    for (const int k : sets[0]) {
      auto& code_pieces = pieces_by_code.emplace_back();
      for (std::size_t p = 0; p < planes.size(); ++p)
        code_pieces.push_back({reads.planes[p].first_word * 32 + planes[p].bit_of(k), planes[p].bits, planes[p].low});
    }
    if (lanes_per_row > 8) join_tokens(pieces_by_code, reads, slots);
    if (!reads.is_joined) plan_unpack(std::move(pieces_by_code), reads, slots);
    return reads;
  }
  return fail(Code::unsupported, outcome(format, lanes_per_row, head_dim));
}

}  // namespace kvjit
