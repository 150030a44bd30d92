// place_rows, place_token_heads: where the rows of a tile are in shared memory, and by which loads lanes read them
// there. Both try each possible layout (pitch, swizzle, order of rows, gaps), count the shared-memory wavefronts of the
// warp's first load, and take the layout with the fewest.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <numeric>
#include <optional>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

constexpr int kSector = 32;  // bytes; a copy asks the L2 twice for a sector that goes to two sectors of shared memory

int round_up(int v, int to) { return (v + to - 1) / to * to; }

int power_of_two_in(int v, int most) {  // the largest power of two <= most that divides v
  int unit = most;
  while (unit > 1 && v % unit != 0) unit /= 2;
  return unit;
}

// The place of byte `at` of a tile after the swizzle (`swizzled` of templates/kernels/decode/stage_tile.cuh).
int swizzled(const SidePlan& side, int at) {
  if (side.swizzle == 0) return at;
  return side.swizzle < 0 ? at ^ (at >> 7 & ((1 << -side.swizzle) - 1)) << 4 : at ^ (at >> (side.swizzle + 4) & 3) << 5;
}

// Addresses of the 32 lanes in the warp's first load of a plane. With K a lane loads row lane / 4 as row lane lane % 4;
// with V it loads row 2 (lane % 4) as row lane lane / 4. unit: places in a row are rounded down to multiples of so many
// bytes.
std::vector<int> lane_addresses(const SidePlan& side, const LaneReads& reads, const FieldRead& plane, bool is_key,
                                int unit) {
  std::vector<int> addresses(32);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, c = lane % 4, row = is_key ? g : 2 * c, row_lane = is_key ? c : g;
    const int block_lane = row_lane % reads.lanes_per_block, loads_as = plane.lanes_before(block_lane);
    const int slot = side.has_even_odd_order ? (row & 1) << 2 | row >> 1 : row;
    const int row_at = side.heads > 1 ? side.eighth_at(row) : slot * side.pitch;
    const int at = plane.at + row_at + row_lane / reads.lanes_per_block * reads.block_stride +
                   loads_as * plane.lane_bits / (8 * unit) * unit;
    addresses[std::size_t(lane)] = swizzled(side, at);
  }
  return addresses;
}

// The widest load, in bytes, that every address of a plane's reads allows. row: bytes of which addresses of rows are
// multiples.
int widest_load(const LaneReads& reads, const FieldRead& plane, int row) {
  int unit = power_of_two_in(row, 16);
  unit = std::min(unit, power_of_two_in(plane.at, 16));
  if (reads.groups > 1 || reads.blocks > 1) unit = std::min(unit, power_of_two_in(reads.block_stride, 16));
  if (reads.reads_per_group > 1) unit = std::min(unit, power_of_two_in(plane.read_bits / 8, 16));
  if (!plane.loads_whole_field && reads.lanes_per_block > 1) {
    const int row_lane = plane.lane_bits % 8 == 0 ? power_of_two_in(plane.lane_bits / 8, 16) : 1;
    // Where lanes begin inside a word, loads of whole words are fewer than loads of bytes.
    const int latest = 32 - std::gcd(plane.lane_bits, 32);
    if (row_lane < 4 && unit >= 4 && plane.load_bytes > row_lane * plane.words &&
        plane.load_bytes * 8 + latest <= plane.words * 32)
      return 4;
    unit = std::min(unit, row_lane);
  }
  // A load may go past the read, to a whole word or power of two, because the last stage has slack behind it.
  return std::min(unit, power_of_two_in(round_up(plane.load_bytes, std::min(unit, 4)), 16));
}

// How the lane reads of a plane are loaded. Of two aligned layouts the one with the wider load is better; with equal
// width the one with the lower cost.
struct Load {
  int unit = 1,        // bytes of a load
      cost = 0,        // of all loads, to compare layouts
      wavefronts = 0;  // shared-memory wavefronts of one load
  bool is_unaligned = false;
};

// The cheapest load of unaligned rows: one load if it may begin at any even address, else aligned loads around the
// bytes, which are then shifted into place. The cost counts wavefronts and instructions that shift; four of those issue
// in the time of a wavefront. It is a sum over all misalignments, which are equally likely. With slot_align 16 there
// are half as many misalignments, so the factors 4 and 10 make copies that split sectors cost a quarter more.
Load misaligned_load(const SidePlan& side, const LaneReads& reads, const FieldRead& plane, bool is_key) {
  const int misalignments = side.slot_align / 2;
  std::optional<Load> best;
  const auto consider = [&](int unit, int loads, int moves, bool is_unaligned) {
    int wavefronts = 0;
    for (int i = 0; i < misalignments * loads; ++i) {
      std::vector<int> addresses = lane_addresses(side, reads, plane, is_key, 1);
      for (int& at : addresses) at = ((at + 2 * (i % misalignments)) / unit + i / misalignments) * unit;
      wavefronts += bank_wavefronts(addresses, unit);
    }
    const int cost = (4 * wavefronts + misalignments * (loads + moves)) * (side.slot_align == kSector ? 4 : 10);
    if (!best || cost < best->cost) best = {unit, cost, (wavefronts - 1) / (misalignments * loads) + 1, is_unaligned};
  };
  const int bytes = plane.load_bytes, words = (bytes + 3) / 4;
  if (bytes <= widest_load(reads, plane, 2)) {
    consider(bytes, 1, 0, false);
    return *best;
  }
  if (reads.is_joined) {  // another token's read is the other half of the word, so nothing beyond this read is loaded
    consider(1, bytes, words, false);
    return *best;
  }
  // Two bytes at a time need no realignment, but a load each.
  if (bytes <= 4 && widest_load(reads, plane, 2) == 2) consider(2, (bytes + 1) / 2, words, false);
  for (int unit = 4; unit == 4 || (unit <= 16 && unit < 2 * bytes); unit *= 2)
    consider(unit, (bytes + 2 * (unit - 1)) / unit, words + (unit >= 16 ? words + 2 : 0) + (unit >= 8 ? words + 1 : 0),
             true);
  return *best;
}

// The load of V by ldmatrix: the chunks of eight tokens are one matrix, which is served at once.
Load matrix_load(const SidePlan& side, const FieldRead& plane) {
  std::vector<int> addresses;
  for (int row = 0; row < 8; ++row) addresses.push_back(swizzled(side, (row | row % 2 * 8) * side.pitch));
  const int wavefronts = bank_wavefronts(addresses, 16);
  return {plane.load_bytes, wavefronts, wavefronts, false};
}

Load load_of(const SidePlan& side, const LaneReads& reads, const FieldRead& plane, bool is_key) {
  if (side.by_matrices) return matrix_load(side, plane);
  if (side.is_misaligned) return misaligned_load(side, reads, plane, is_key);
  const int unit = widest_load(reads, plane, side.heads > 1 ? side.row_bytes : side.pitch);
  const int wavefronts = bank_wavefronts(lane_addresses(side, reads, plane, is_key, unit), unit);
  return {unit, wavefronts, wavefronts, false};
}

// Chooses the loads of all planes of all sections, once the places of rows are decided.
void choose_loads(SidePlan& side, bool is_key) {
  for (SectionPlan& section : side.sections)
    for (FieldRead& plane : section.reads.planes) {
      const Load load = load_of(side, section.reads, plane, is_key);
      plane.unit = load.unit, plane.is_unaligned = load.is_unaligned;
    }
}

}  // namespace

void put_in_keys(SidePlan& v, const SidePlan& k) {
  v.in_keys = true;
  v.row_bytes = k.row_bytes, v.pitch = k.pitch, v.swizzle = k.swizzle;
  v.is_record = k.is_record, v.keeps_sectors = k.keeps_sectors, v.by_bulk = k.by_bulk;
  v.is_misaligned = k.is_misaligned, v.slot_align = k.slot_align, v.has_even_odd_order = k.has_even_odd_order;
  v.scale_row_bytes = k.scale_row_bytes;
  if (v.format.scale_bytes > 0) v.scale_pitch = k.scale_pitch;
  choose_loads(v, false);
}

namespace {

// The shared-memory wavefronts of the loads of a tile relative to the least possible, weighted by the loaded bits.
double relative_wavefronts(const SidePlan& side, bool is_key) {
  constexpr double kLine = 128;
  double sum = 0;
  for (const SectionPlan& section : side.sections)
    for (const FieldRead& plane : section.reads.planes) {
      const Load load = load_of(side, section.reads, plane, is_key);
      sum += load.wavefronts * kLine / (32 * load.unit) * section.dim * section.codes.bits;
    }
  return sum;
}

}  // namespace

void place_together(SidePlan& k, SidePlan& v) {
  const int least_pitch = k.row_bytes + (k.keeps_sectors ? kSector / 2 : 0);
  SidePlan best = k;
  double least = 0;
  for (int pitch = least_pitch; pitch <= least_pitch + 112; pitch += kSector / 2)
    for (const bool has_even_odd_order : {false, true}) {
      k.pitch = pitch, k.has_even_odd_order = has_even_odd_order;
      put_in_keys(v, k);
      const double cost = relative_wavefronts(k, true) + relative_wavefronts(v, false);
      if (least == 0 || cost < least) least = cost, best = k;
    }
  k = best;
  if (k.format.scale_bytes > 0) k.scale_pitch = k.pitch;
  choose_loads(k, true);
  put_in_keys(v, k);
  for (SidePlan* side : {&k, &v}) {
    LaneReads& reads = side->sections[0].reads;
    reads.bank_cost = load_of(*side, reads, reads.planes[0], side == &k).wavefronts;
  }
}

void place_records(SidePlan& side, const Problem& problem, bool is_key, bool by_bulk) {
  constexpr int kLeastBulkRow = 256;  // bytes: a copy has a fixed cost; the shortest rows measured have 288
  const bool is_bulk = by_bulk && side.row_bytes % 16 == 0 && side.row_bytes >= kLeastBulkRow &&
                       !side.format.codes().is_wide();  // bf16 was read 3 % slower (NOTES.md)
  if (side.is_planar || problem.token_heads > 0) return;
  if (!is_bulk && (!side.format.has_segments() || side.row_bytes % kSector != kSector / 2)) return;
  // Pages may lie 16 bytes apart, so that a row's place in its sector does not follow from its number.
  side.is_record = true, side.by_bulk = is_bulk, side.keeps_sectors = problem.page_tokens == 0 && !is_bulk;
  place_rows(side, is_key);
  if (side.format.scale_bytes > 0) side.scale_pitch = side.pitch;
}

void place_token_heads(SidePlan& side, bool is_key, int tile) {
  constexpr int kBanks = 128;  // bytes of the 32 banks of shared memory
  if (side.placed_tile == tile) return;
  const int token = side.heads * side.row_bytes;
  side.placed_tile = tile, side.pitch = token / 8, side.swizzle = 0, side.has_even_odd_order = false;
  if (side.format.scale_bytes > 0) side.scale_pitch = side.pitch;
  side.eighth_bytes = tile / 8 * token, side.copy_eighths = 8, side.copy_gap = 0;
  LaneReads& reads = side.sections[0].reads;
  if (reads.planes.empty()) return;  // masked: byte by byte
  SidePlan best = side;
  std::optional<Load> best_load;
  for (int eighths = 8; eighths >= 1; eighths /= 2)  // few copies first: more must cost less to be chosen
    for (int gap = eighths == 8 ? 0 : 16; gap < (eighths == 8 ? 16 : kBanks); gap += 16) {
      side.copy_eighths = eighths, side.copy_gap = gap;
      const Load load = load_of(side, reads, reads.planes[0], is_key);
      if (best_load && load.cost >= best_load->cost) continue;
      best_load = load, best = side;
      best.sections[0].reads.bank_cost = load.wavefronts;
    }
  side = best;
  choose_loads(side, is_key);
}

void place_rows(SidePlan& side, bool is_key) {
  // stage_padded copies 512 bytes a step, which must be whole rows or divide a row.
  const bool can_pad =
      !side.is_planar || (side.row_bytes % 16 == 0 && (512 % side.row_bytes == 0 || side.row_bytes % 512 == 0));
  const int shortest = side.is_misaligned ? round_up(side.row_bytes + kSector - 2, kSector)
                                          : side.row_bytes + (side.keeps_sectors ? kSector / 2 : side.pad_bytes);
  side.pitch = shortest;
  LaneReads& reads = side.sections[0].reads;
  if (reads.planes.empty()) return;  // masked: byte by byte
  SidePlan best = side;
  std::optional<Load> best_load;
  const auto consider = [&](int pitch, int swizzle, bool has_even_odd_order) {
    side.pitch = pitch, side.swizzle = swizzle, side.has_even_odd_order = has_even_odd_order;
    const Load load = load_of(side, reads, reads.planes[0], is_key);
    const bool is_wider = !side.is_misaligned && best_load && load.unit > best_load->unit;
    const bool is_narrower = !side.is_misaligned && best_load && load.unit < best_load->unit;
    if (best_load && !is_wider && (is_narrower || load.cost >= best_load->cost)) return;
    best_load = load, best = side;
    best.sections[0].reads.bank_cost = load.wavefronts;
  };
  consider(shortest, 0, false);
  if (side.is_misaligned)
    for (const int align : {kSector, 16}) {
      side.slot_align = align;
      const int fitting = round_up(side.row_bytes + align - 2, align);
      for (const int pitch : {fitting, fitting + align})
        for (const bool has_even_odd_order : {false, true}) consider(pitch, 0, has_even_odd_order);
    }
  // A swizzle of chunks costs no memory. It must repeat after eight rows, and each load must lie in one chunk.
  const bool fits_chunks = std::all_of(side.sections.begin(), side.sections.end(), [&](const SectionPlan& section) {
    return std::all_of(section.reads.planes.begin(), section.reads.planes.end(), [&](const FieldRead& plane) {
      return plane.load_bytes <= 16 && plane.lane_bits % 8 == 0 && (plane.load_bytes & (plane.load_bytes - 1)) == 0;
    });
  });
  if (side.by_matrices && side.row_bytes == 64) consider(shortest, -2, false);
  if (side.is_planar && fits_chunks && !side.by_matrices && side.row_bytes >= 32 &&
      (side.row_bytes & (side.row_bytes - 1)) == 0)
    for (const int swizzle : {2, 3, 4, 5, -1, -2, -3})
      if ((swizzle < 0 ? 128 << -swizzle : 64 << swizzle) <= 8 * side.row_bytes) consider(shortest, swizzle, false);
  // Rows of records may have slots that begin in the middle of a sector.
  const int step = side.is_record ? kSector / 2 : kSector;
  if (!side.is_misaligned && can_pad)
    for (int pitch = round_up(shortest + 1, step); pitch <= shortest + 112; pitch += step) consider(pitch, 0, false);
  side = best;
  choose_loads(side, is_key);
}

void align_slots(SidePlan& side, int page_tokens) {
  if (side.is_misaligned && page_tokens > 0) side.slot_align = 16;
}

}  // namespace kvjit
