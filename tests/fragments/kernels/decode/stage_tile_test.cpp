// templates/kernels/decode/stage_tile.cuh: swizzles, which permute the 16-byte chunks of staged rows against bank
// conflicts, and the planner's choice of a swizzle.
// SPDX-License-Identifier: MIT
#include "kernels/decode/stage_tile.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "generator/kernels/decode/plan.hpp"
#include "runtime/device/cpu/block_scheduler.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

constexpr int kChunk = 16, kSector = 32, kPeriod = 8;  // bytes; rows

kv::u32 swizzled(int swizzle, kv::u32 byte) {
  switch (swizzle) {
    case -3:
      return kv::swizzled<-3>(byte);
    case -2:
      return kv::swizzled<-2>(byte);
    case -1:
      return kv::swizzled<-1>(byte);
    case 2:
      return kv::swizzled<2>(byte);
    case 3:
      return kv::swizzled<3>(byte);
    case 4:
      return kv::swizzled<4>(byte);
    case 5:
      return kv::swizzled<5>(byte);
    default:
      REQUIRE(swizzle == 0);
      return kv::swizzled<0>(byte);
  }
}

// Bytes of the shortest rows for a swizzle, whose pattern repeats every eight rows.
template <int kSwizzle>
constexpr int kShortestRow = kv::swizzle_period(kSwizzle) / kPeriod;

template <int kSwizzle>
void check_pattern() {
  constexpr int kRow = kShortestRow<kSwizzle>, kTile = 32 * kRow;
  CAPTURE(kSwizzle);
  std::vector<bool> is_taken(kTile);
  int wrong = 0, moved = 0;
  for (kv::u32 byte = 0; byte < kTile; ++byte) {
    const kv::u32 to = kv::swizzled<kSwizzle>(byte);
    REQUIRE(to < kTile);
    wrong += is_taken[to];
    is_taken[to] = true;
    moved += to != byte;
    wrong += to % kChunk != byte % kChunk;                                                   // keeps chunks whole
    wrong += to / kSector != kv::swizzled<kSwizzle>(byte ^ kChunk) / kSector;                // keeps sectors whole
    wrong += kv::swizzled<kSwizzle>(byte + kPeriod * kRow) != to + kv::u32(kPeriod * kRow);  // repeats every eight rows
  }
  CHECK(wrong == 0);
  CHECK(moved > 0);
}

// Checks where stage_dense puts each byte, for whole tiles and for tiles that end early.
template <int kSwizzle, bool kIsWhole>
void check_staged(int valid) {
  constexpr int kBytes = 16 * kShortestRow<kSwizzle>;
  alignas(16) static kv::u8 from[kBytes];
  test::Rng rng(kSwizzle);
  for (kv::u8& byte : from) byte = kv::u8(rng.bits());
  int wrong = 0;
  const auto ran = run_grid(
      [&] {
        kv::stage_dense<kBytes, kSwizzle, kIsWhole>(64, from + kv::lane() * 16, valid);
        kv::copy_commit();
        kv::copy_wait<0>();
        kv::sync_warp();
        if (kv::lane() == 0)
          for (int byte = 0; byte < kBytes; ++byte)
            wrong += kv::load_shared_u8(64 + kv::swizzled<kSwizzle>(kv::u32(byte))) != (byte < valid ? from[byte] : 0u);
      },
      {}, 32, 64 + kBytes);
  REQUIRE_MESSAGE(ran, ran.error().message);
  CHECK(wrong == 0);
}

template <int kSwizzle>
void check_all() {
  check_pattern<kSwizzle>();
  constexpr int kRow = kShortestRow<kSwizzle>;
  check_staged<kSwizzle, true>(16 * kRow);
  for (const int rows : {0, 1, 7, 15, 16}) check_staged<kSwizzle, false>(rows * kRow);
  check_staged<kSwizzle, false>(3 * kRow + 6);
}

// Returns the lanes' addresses for one load of section 0, with g = lane / 4 and c = lane % 4. A lane of K reads row g,
// a lane of V row 2 c, both counted from `row`. The lanes that share a row (c for K, g for V) read different bytes of
// it.
std::vector<int> addresses(const SidePlan& side, bool is_key, int row, int group, int r) {
  const LaneReads& reads = side.sections[0].reads;
  const FieldRead& plane = reads.planes[0];
  std::vector<int> at;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, c = lane % 4, part = is_key ? c : g;
    const int block = group * reads.blocks + part / reads.lanes_per_block,
              bits = part % reads.lanes_per_block * plane.lane_bits;
    const int byte = (row + (is_key ? g : 2 * c)) * side.pitch + block * side.block_stride + plane.at +
                     r * plane.read_bits / 8 + (plane.loads_whole_field ? 0 : bits / (8 * plane.unit) * plane.unit);
    at.push_back(int(swizzled(side.swizzle, kv::u32(byte))));
  }
  return at;
}

// Returns a lower bound for the wavefronts of a load, whatever the places of the chunks: lanes that are served together
// read the same word of their chunks, and the banks hold eight chunks side by side.
int fewest_wavefronts(const std::vector<int>& addresses, int unit) {
  const std::size_t together = unit == 16 ? 8 : unit == 8 ? 16 : 32;
  int sum = 0;
  for (std::size_t first = 0; first < 32; first += together) {
    std::map<int, std::set<int>> chunks;  // by word in a chunk
    for (std::size_t i = first; i < first + together; ++i)
      for (int at = addresses[i] / 4; at <= (addresses[i] + unit - 1) / 4; ++at) chunks[at % 4].insert(at / 4);
    std::size_t most = 0;
    for (const auto& [word, wanted] : chunks) most = std::max(most, (wanted.size() + 7) / 8);
    sum += int(most);
  }
  return sum;
}

// A format whose loads have a bank conflict.
struct Conflict {
  const char* format;
  bool is_key;
  int head_dim;
};
constexpr Conflict kConflicts[] = {
    // Lanes read both halves of every second chunk, and the swizzle does not exchange odd and even chunks.
    {"nvfp4", false, 256},
    {"ggml_nvfp4_4over6", false, 256},
    // Lane reads of 6 bytes load the two words that hold them. They may cross chunks, so rows are padded, and words of
    // different rows fall into one bank. Pads of 16 bytes would separate some of them but split sectors, and are no
    // faster (templates/kernels/decode/NOTES.md).
    {"turbo4_qjl68", true, 128},
    {"turbo4_qjl68", false, 128},
    {"turbo4_qjl68", true, 256},
    {"turbo4_qjl68", false, 256},
    {"amesianx_tbqp4_0", false, 256},
    {"amesianx_tbqp4_1", true, 128},
    {"amesianx_tbqp4_1", false, 128},
    {"amesianx_tbqp4_1", true, 256},
    {"amesianx_tbqp4_1", false, 256},
    {"amesianx_tbqp4_2", false, 64},
    {"amesianx_tbqp4_2", false, 128},
    {"amesianx_tbqp4_2", false, 256},
    {"tbqp4_dense256_qsfirst_raw", false, 256},
};

// Checks a side's plan: a swizzle fulfils its conditions, every load of section 0 stays in one chunk, and loads take
// the fewest wavefronts possible unless the format is known to conflict.
void check_side(const SidePlan& side, bool is_key, bool has_conflicts) {
  const LaneReads& reads = side.sections[0].reads;
  if (side.row_bytes % kSector == 0) CHECK(side.pitch % kSector == 0);
  if (side.swizzle != 0) {
    CHECK(side.pitch == side.row_bytes);
    CHECK(kv::swizzle_period(side.swizzle) <= kPeriod * side.row_bytes);
    for (const SectionPlan& section : side.sections)
      for (const FieldRead& plane : section.reads.planes) CHECK(plane.load_bytes <= kChunk);
  }
  int conflicts = 0, torn = 0;
  for (const int row : {0, 1, 8, 9, 16, 25})
    for (int group = 0; group < reads.groups; ++group)
      for (int r = 0; r < reads.reads_per_group; ++r) {
        const auto at = addresses(side, is_key, row, group, r);
        const FieldRead& plane = reads.planes[0];
        conflicts += bank_wavefronts(at, plane.unit) != fewest_wavefronts(at, plane.unit);
        for (const int byte : at) torn += byte / kChunk != (byte + plane.load_bytes - 1) / kChunk;
      }
  CHECK((conflicts > 0) == has_conflicts);
  if (side.swizzle != 0) CHECK(torn == 0);
}

}  // namespace

TEST_CASE("swizzles: each chunk has a place of its own, every eight rows alike, and copies store where loads read") {
  check_all<-3>();
  check_all<-2>();
  check_all<-1>();
  check_all<2>();
  check_all<3>();
  check_all<4>();
  check_all<5>();
  for (const kv::u32 byte : {0u, 17u, 12345u}) CHECK(kv::swizzled<0>(byte) == byte);
}

TEST_CASE("rows of 32, 64 and 128 bytes are read without a bank conflict that could be saved") {
  const Registry registry = *Registry::load(embedded_files());
  std::map<std::pair<int, int>, int> seen;  // (bytes of a row, swizzle)
  for (const std::string& name : test::format_names(registry))
    for (const int head_dim : test::fitting(registry, name, {32, 64, 128, 256, 512}))
      for (const bool is_key : {true, false}) {
        const auto side = plan_side(*registry.format_for(name, head_dim, {}), head_dim, true, is_key, is_key);
        if (!side || side->sections[0].is_masked) continue;
        if (side->row_bytes != 32 && side->row_bytes != 64 && side->row_bytes != 128) continue;
        INFO(name, is_key ? " as K" : " as V", ", head_dim ", head_dim, ", pitch ", side->pitch, ", swizzle ",
             side->swizzle);
        check_side(*side, is_key, std::any_of(std::begin(kConflicts), std::end(kConflicts), [&](const Conflict& c) {
          return c.format == name && c.is_key == is_key && c.head_dim == head_dim;
        }));
        ++seen[{side->row_bytes, side->swizzle}];
      }
  for (const auto& each :
       {std::pair{32, -1}, {32, 2}, {64, -2}, {64, 2}, {64, 3}, {128, -3}, {128, 2}, {128, 3}, {128, 4}})
    CHECK_MESSAGE(seen[each] > 0, "no row of ", each.first, " bytes with swizzle ", each.second);
}

}  // namespace kvjit
