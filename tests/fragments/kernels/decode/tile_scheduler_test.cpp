// templates/kernels/decode/tile_scheduler.cuh against its definition, on random calls. The tiles of all batch-heads
// form one line, batch-head after batch-head, and each block takes consecutive tiles of the line. A block that has
// tiles of two batch-heads has a split boundary, which costs as much time as `split_boundary_tiles` tiles. The test
// counts tiles one by one, batch-head after batch-head. The test tries all numbers of tiles a block to find the
// smallest one without split boundaries, and whether blocks may have them.
// SPDX-License-Identifier: MIT
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Wreturn-type"  // false positive of g++ 12: below an unroll pragma g++ takes an endless loop for a finite one
#include "kernels/decode/tile_scheduler.cuh"
#pragma GCC diagnostic pop

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "runtime/device/cpu/block_scheduler.hpp"
#include "runtime/launch/tile_schedule.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

using test::Rng;

constexpr int kTile = 32;

struct Piece {
  int block;
  kv::KvSplit split;
  kv::i64 slot;
};

// The schedule that a lane computes. Every lane must compute the same schedule.
struct Found {
  std::vector<kv::u32> begins;  // first tile of blocks 0 .. count; the last entry is the end of the line
  std::vector<Piece> pieces;    // in the order of the line
  std::vector<kv::KvSplit> batch_heads;
};

auto numbers(const kv::KvSplit& p) {
  return std::array{p.sequence, p.head, p.length, p.first, p.last, p.first_block, p.splits, int(p.linear_end)};
}
std::vector<kv::i64> numbers(const Found& found) {
  std::vector<kv::i64> all(found.begins.begin(), found.begins.end());
  for (const Piece& piece : found.pieces) {
    all.push_back(piece.block), all.push_back(piece.slot);
    for (const int n : numbers(piece.split)) all.push_back(n);
  }
  for (const kv::KvSplit& batch_head : found.batch_heads)
    for (const int n : numbers(batch_head)) all.push_back(n);
  return all;
}

// One warp walks through all blocks, as each block of decode walks through its own splits.
Found cut(const kv::SchedulerArgs& args) {
  std::vector<Found> lanes(32);
  const auto ran = run_grid(
      [&] {
        Found& mine = lanes[std::size_t(kv::lane())];
        kv::TileScheduler<kTile> scheduler(args);
        scheduler.read_lengths();
        for (int block = 0; block <= args.blocks; ++block) mine.begins.push_back(scheduler.begin(block));
        for (int block = 0; block < args.blocks; ++block) {
          const kv::u32 end = mine.begins[std::size_t(block) + 1];
          if (mine.begins[std::size_t(block)] == end) continue;
          for (kv::KvSplit split = scheduler.split_at(mine.begins[std::size_t(block)], end); true;
               split = scheduler.next(split, end)) {
            mine.pieces.push_back({block, split, scheduler.partial_index(block, split.sequence, split.head)});
            if (split.last <= split.first || split.linear_end >= end) break;  // else an endless loop; check() fails
          }
        }
        for (int s = 0; s < args.sequences; ++s)
          for (int head = 0; head < args.kv_heads; ++head) mine.batch_heads.push_back(scheduler.batch_head(s, head));
      },
      {}, 32, 0);
  REQUIRE_MESSAGE(ran, ran.error().message);
  const auto first = numbers(lanes[0]);
  CHECK(std::all_of(lanes.begin(), lanes.end(), [&](const Found& lane) { return numbers(lane) == first; }));
  return lanes[0];
}

struct Shape {
  int sequences, heads, tokens, blocks;
  std::vector<int> lengths;  // tokens of each sequence; empty: the call passes none
  int split_boundary_tiles = 0, merge_round_tiles = 0;
  std::string name() const {
    return fmt::format("{} sequences x {} heads, {} tokens, {} blocks, a split boundary of {} tiles, lengths {}",
                       sequences, heads, tokens, blocks, split_boundary_tiles,
                       lengths.empty() ? "null" : fmt::format("{}", fmt::join(lengths, " ")));
  }
  int length(int sequence) const {
    return lengths.empty() ? tokens : std::clamp(lengths[std::size_t(sequence)], 0, tokens);
  }
  int tiles(int sequence) const { return std::max((length(sequence) + kTile - 1) / kTile, 1); }
  int all_tiles() const {
    int sum = 0;
    for (int s = 0; s < sequences; ++s) sum += tiles(s) * heads;
    return sum;
  }
  int blocks_of(int tiles_per_block) const {
    int sum = 0;
    for (int s = 0; s < sequences; ++s) sum += (tiles(s) + tiles_per_block - 1) / tiles_per_block * heads;
    return sum;
  }
  // Returns the smallest number of tiles a block for which no block has tiles of two batch-heads; 0 if there are more
  // batch-heads than blocks.
  int tiles_without_boundary() const {
    if (sequences * heads > blocks) return 0;
    int tiles_per_block = 1;
    while (blocks_of(tiles_per_block) > blocks) ++tiles_per_block;
    return tiles_per_block;
  }
  // Returns the tiles a block for which no batch-head has more than kSplitsAtOnce splits; 0 if those tiles take longer
  // than another merge round.
  int tiles_for_few_splits() const {
    int most = 0;
    for (int s = 0; s < sequences; ++s) most = std::max(most, tiles(s));
    const int few = (most + kv::kSplitsAtOnce - 1) / kv::kSplitsAtOnce, even = (all_tiles() + blocks - 1) / blocks;
    return few <= even + merge_round_tiles ? few : 0;
  }
  // Returns the tiles a block for blocks that take whole batch-heads.
  int tiles_of_whole_heads() const {
    int most = 0;
    for (int s = 0; s < sequences; ++s) most = std::max(most, tiles(s));
    return (sequences * heads + blocks - 1) / blocks * most;
  }
  // Returns by how many tiles the longest block may exceed the mean to avoid split boundaries.
  int slack() const { return std::max(split_boundary_tiles, all_tiles() / blocks / 16); }
  // Returns the arguments as the host passes them. With lengths on the device the host cannot count tiles.
  kv::SchedulerArgs args() const {
    kv::SchedulerArgs scheduler{};
    scheduler.lengths = lengths.empty() ? nullptr : lengths.data();
    scheduler.tokens = tokens, scheduler.sequences = sequences, scheduler.kv_heads = heads, scheduler.blocks = blocks;
    scheduler.splits_per_head = kv::u32(blocks / (sequences * heads));
    scheduler.heads_per_block = kv::u32((sequences * heads + blocks - 1) / blocks);
    scheduler.split_boundary_tiles = kv::u32(split_boundary_tiles),
    scheduler.merge_round_tiles = kv::u32(merge_round_tiles);
    if (!lengths.empty()) return scheduler;
    scheduler.tiles_per_head = kv::u32(tiles(0));
    scheduler.tiles_per_block = kv::u32(all_tiles() / blocks),
    scheduler.blocks_with_one_more = kv::u32(all_tiles() % blocks);
    if (scheduler.splits_per_head == 0 && tiles_of_whole_heads() <= int(scheduler.tiles_per_block) + slack()) {
      scheduler.tiles_per_block = kv::u32(tiles_of_whole_heads()), scheduler.blocks_with_one_more = 0;
      scheduler.blocks = (sequences * heads + int(scheduler.heads_per_block) - 1) / int(scheduler.heads_per_block);
    }
    const int tiles_per_block = std::max(tiles_without_boundary(), tiles_for_few_splits());
    if (tiles_without_boundary() > 0 && tiles_per_block <= int(scheduler.tiles_per_block) + slack()) {
      scheduler.blocks = blocks_of(tiles_per_block);
      scheduler.tiles_per_head = kv::u32((tiles(0) + tiles_per_block - 1) / tiles_per_block * tiles_per_block),
      scheduler.tiles_per_block = kv::u32(tiles_per_block), scheduler.blocks_with_one_more = 0;
    }
    return scheduler;
  }
};

void check(const Shape& shape) {
  INFO(shape.name());
  const kv::SchedulerArgs args = shape.args();
  const Found found = cut(args);
  REQUIRE(found.begins.front() == 0);

  // Walk over all tiles of all batch-heads. Each must be the next tile of a split, batch_head() must say where its
  // batch-head begins, and every split must have a slot of its own in the workspace.
  std::set<kv::i64> slots;
  std::map<int, int> split_heads, block_tiles,
      counted_at;  // split_heads: by first block, split batch-heads whose counter lies there
  std::size_t piece = 0;
  int begin = 0;
  for (int s = 0; s < shape.sequences; ++s)
    for (int head = 0; head < shape.heads; ++head) {
      const int tiles = shape.tiles(s);
      const kv::KvSplit& batch_head = found.batch_heads[std::size_t(s * shape.heads + head)];
      REQUIRE(int(batch_head.linear_end) >= begin + tiles);
      const std::size_t first_piece = piece;
      REQUIRE(piece < found.pieces.size());
      const int first_block = found.pieces[piece].block;
      REQUIRE(numbers(batch_head) == std::array{s, head, shape.length(s), 0, tiles, first_block, batch_head.splits,
                                                int(batch_head.linear_end)});
      for (int next = 0; next < tiles; ++piece) {
        REQUIRE(piece < found.pieces.size());
        const auto& [block, split, slot] = found.pieces[piece];
        const kv::u32 from = found.begins[std::size_t(block)], to = found.begins[std::size_t(block) + 1];
        REQUIRE(numbers(split) == std::array{s, head, shape.length(s), next, split.last, first_block, batch_head.splits,
                                             int(std::min(to, batch_head.linear_end))});
        REQUIRE(split.last > next);
        REQUIRE(split.last <= tiles);
        REQUIRE(split.is_unsplit() == (next == 0 && split.last == tiles));
        REQUIRE(kv::u32(begin + next) >= from);
        REQUIRE(kv::u32(begin + split.last) <= to);
        REQUIRE(block == first_block + int(piece - first_piece));
        REQUIRE(slot >= 0);
        REQUIRE(slot < shape.sequences * shape.heads + shape.blocks);  // the capacity of the workspace
        REQUIRE(slots.insert(slot).second);
        block_tiles[block] += split.last - next, ++counted_at[block];
        next = split.last;
      }
      REQUIRE(batch_head.splits == int(piece - first_piece));
      if (batch_head.splits > 1) ++split_heads[first_block];
      begin = int(batch_head.linear_end);
    }
  CHECK(piece == found.pieces.size());
  CHECK(begin == int(found.begins.back()));
  for (const auto& [block, count] : split_heads) REQUIRE(count == 1);

  // Blocks must have equal numbers of tiles, up to one, unless a schedule without split boundaries costs no more.
  int most = 0, fewest = 1 << 30, most_parts = 0;
  for (const auto& [block, count] : block_tiles) most = std::max(most, count), fewest = std::min(fewest, count);
  for (const auto& [block, count] : counted_at) most_parts = std::max(most_parts, count);
  const int even = shape.all_tiles() / shape.blocks, without_boundary = shape.tiles_without_boundary();
  const bool is_padded = int(found.begins.back()) > shape.all_tiles();
  if (without_boundary == 0 && shape.tiles_of_whole_heads() <= even + shape.slack()) {
    CHECK(piece == std::size_t(shape.sequences * shape.heads));
    CHECK(most_parts == (shape.sequences * shape.heads + shape.blocks - 1) / shape.blocks);
    return;
  }
  const int tiles_per_block = without_boundary > 0 ? std::max(without_boundary, shape.tiles_for_few_splits()) : 0;
  if (tiles_per_block == 0 || tiles_per_block > even + shape.slack()) CHECK(!is_padded);
  if (tiles_per_block > 0 && tiles_per_block + tiles_per_block / 16 + 1 <= even + shape.slack()) CHECK(most_parts == 1);
  if (most_parts == 1 && tiles_per_block > 0) {
    CHECK(most >= tiles_per_block);
    CHECK(most <= std::max(tiles_per_block + tiles_per_block / 16, even) + 1);
  }
  if (!is_padded && most_parts > 1) {
    CHECK(most <= even + 1);
    if (shape.blocks <= shape.all_tiles()) CHECK(most - fewest <= 1);
  }
}

// Returns a length: 0, short, whole tiles, or anything. Sometimes it is invalid (negative, or above the capacity); the
// scheduler clamps it.
int random_length(Rng& rng, int tokens) {
  switch (rng.below(6)) {
    case 0:
      return 0;
    case 1:
      return 1 + rng.below(kTile);
    case 2:
      return kTile * rng.below(tokens / kTile + 1);
    case 3:
      return rng.below(20) == 0 ? (rng.below(2) ? tokens + 1 + rng.below(1000) : -1 - rng.below(1000)) : tokens;
    default:
      return rng.below(tokens + 1);
  }
}

Shape random_shape(Rng& rng, bool has_lengths) {
  Shape shape{1 + rng.below(70), 1 + rng.below(9), 0, 1, {}};
  shape.tokens =
      rng.below(3) == 0 ? 1 + rng.below(2 * kTile) : kTile * (1 + rng.below(12)) + rng.below(2) * rng.below(kTile);
  for (int s = 0; has_lengths && s < shape.sequences; ++s) shape.lengths.push_back(random_length(rng, shape.tokens));
  const int tiles = shape.all_tiles();
  shape.blocks = rng.below(4) == 0 ? tiles : 1 + rng.below(rng.below(2) ? tiles : std::min(tiles, 140));
  // With lengths on the device the host counts `tokens` for each sequence, so there may be more blocks than tiles.
  if (has_lengths && rng.below(5) == 0) shape.blocks = tiles + 1 + rng.below(tiles);
  if (rng.below(3) > 0) shape.split_boundary_tiles = rng.below(12);
  if (rng.below(2) > 0) shape.merge_round_tiles = rng.below(4);
  return shape;
}

}  // namespace

TEST_CASE("the splits of all blocks are the tiles of all batch-heads, each once, evenly or without split boundaries") {
  Rng rng(11);
  for (int i = 0; i < 150; ++i) {
    check(random_shape(rng, false));
    check(random_shape(rng, true));
  }
}

TEST_CASE("lengths as a warp reads them, at its edges: 1, 31 to 33 and 64 sequences, all empty, all equal") {
  for (const int sequences : {1, 31, 32, 33, 63, 64, 65})
    for (const int length : {0, kTile, kTile + 1, 5 * kTile})
      for (const int blocks : {1, 7, sequences, 2 * sequences}) {
        const std::vector<int> lengths(std::size_t(sequences), length);
        for (const int split_boundary_tiles : {0, 3}) {
          check({sequences, 2, 5 * kTile, blocks, lengths, split_boundary_tiles});
          if (blocks <= sequences * 2) check({sequences, 2, std::max(length, 1), blocks, {}, split_boundary_tiles});
        }
      }
}

TEST_CASE("lengths that change after they were read are noticed, for up to 32 sequences") {
  for (const int sequences : {1, 32, 33}) {
    std::vector<int> lengths(std::size_t(sequences), 100);
    kv::SchedulerArgs args = Shape{sequences, 2, 320, 12, lengths}.args();
    args.lengths = lengths.data();
    int noticed = 0, still = 0, ends = 0;
    const auto ran = run_grid(
        [&] {
          kv::TileScheduler<kTile> scheduler(args);
          scheduler.read_lengths();
          still += scheduler.lengths_changed();
          kv::sync_block();
          if (kv::lane() == 0) lengths.back() = 320;
          kv::sync_block();
          noticed += scheduler.lengths_changed();
          scheduler.read_lengths();
          still += scheduler.lengths_changed();
          ends += int(scheduler.begin(args.blocks)) == (sequences * 4 + 6) * 2;
        },
        {}, 32, 0);
    REQUIRE_MESSAGE(ran, ran.error().message);
    CHECK(noticed == (sequences <= 32 ? 32 : 0));  // longer lists are final before the kernel reads them
    CHECK(still == 0);
    CHECK(ends == 32);
  }
}

TEST_CASE(
    "what is saved to shared memory while tiles are read comes back to every thread, and the next split follows") {
  const struct {
    int blocks, block, split_boundary_tiles;
  } kCalls[] = {{3, 1, 12}, {4, 2, 0}};  // two whole batch-heads a block, padded to the longest; boundaries inside
  const std::vector<int> lengths = {320, 100, 31};
  for (const auto& call : kCalls)
    for (const bool is_on_device : {false, true}) {
      const Shape shape{3, 2, 320, call.blocks, is_on_device ? lengths : std::vector<int>{}, call.split_boundary_tiles};
      const kv::SchedulerArgs args = shape.args();
      INFO(shape.name());
      int alike = 0, followed = 0;
      const auto ran = run_grid(
          [&] {
            kv::TileScheduler<kTile> scheduler(args), other(args);
            scheduler.read_lengths();
            const kv::u32 end = scheduler.begin(call.block + 1);
            const kv::KvSplit split = scheduler.split_at(scheduler.begin(call.block), end),
                              next = scheduler.next(split, end);
            scheduler.save_to_shared(0, split);
            kv::sync_block();
            kv::KvSplit again = other.restore_from_shared(0);
            again.first = split.first, again.last = split.last;  // the two members that are not restored
            alike += numbers(again) == numbers(split) && other.begin(call.block + 1) == end;
            followed += split.linear_end < end && numbers(other.next(again, end)) == numbers(next);
          },
          {}, 64, kv::TileScheduler<kTile>::kBytes);
      REQUIRE_MESSAGE(ran, ran.error().message);
      CHECK(alike == 64);
      CHECK(followed == 64);
    }
}

TEST_CASE("no split boundary and no second merge round where those would take longer") {
  const auto blocks = [](int sequences, int heads, int tokens, bool is_on_device) {
    Shape shape{sequences, heads, tokens, 132, {}, 57, 9};
    if (is_on_device) shape.lengths.assign(std::size_t(sequences), tokens);
    check(shape);
    const Found found = cut(shape.args());
    std::set<int> used;
    for (const Piece& piece : found.pieces) used.insert(piece.block);
    return int(used.size());
  };
  for (const bool is_on_device : {false, true}) {
    CHECK(blocks(1, 3, 4096, is_on_device) == 48);       // 128 tiles a batch-head in 16 splits
    CHECK(blocks(1, 8, 4100, is_on_device) == 120);      // 129 tiles, 9 a block
    CHECK(blocks(3, 1, 9 * 1024, is_on_device) == 126);  // 288 tiles, 7 a block: 18 a block would be too many
    CHECK(blocks(2, 12, 16400, is_on_device) == 120);    // 513 tiles, 103 a block instead of 94
    CHECK(blocks(2, 12, 131072, is_on_device) == 132);   // 820 tiles a block instead of 745
  }
  check({3, 2, 8192, 132, {8192, 100, 4000}, 57, 9});
  check({5, 2, 40000, 132, {31, 40000, 9000, 8999, 20000}, 57, 9});
}

TEST_CASE("the host and the kernel come to the same schedule when all lengths in memory are equal") {
  Rng rng(5);
  int unsplit = 0, padded = 0, even = 0;
  for (int i = 0; i < 400; ++i) {
    ProgramSource source;
    source.tile_tokens = kTile, source.q_heads_per_kv = 4, source.rows = 4, source.query_chunks = 1 + rng.below(3);
    source.k.row_bytes = source.v.row_bytes = 1 + rng.below(512);
    source.timing.read_bytes_per_us = 33e3;
    source.timing.split_boundary_us = rng.below(3) * rng.below(8), source.timing.merge_round_us = rng.below(3);
    DeviceInfo device;
    device.is_gpu = rng.below(8) > 0, device.multiprocessors = 1 + rng.below(rng.below(2) ? 10 : 160);
    AttentionCall call;
    call.sequences = 1 + rng.below(rng.below(2) ? 4 : 70), call.kv_heads = 1 + rng.below(9);
    call.tokens = 1 + rng.below(rng.below(2) ? 20 * kTile : 200 * kTile);
    call.blocks = rng.below(3) == 0 ? 1 + rng.below(150) : 0;
    const kv::SchedulerArgs by_host = make_schedule(source, device, call);
    const std::vector<int> lengths(std::size_t(call.sequences), call.tokens);
    call.lengths = lengths.data();
    const kv::SchedulerArgs by_kernel = make_schedule(source, device, call);
    INFO(fmt::format("{} sequences x {} heads, {} tokens, {} blocks", call.sequences, by_host.kv_heads, call.tokens,
                     by_kernel.blocks));
    REQUIRE(by_host.lengths == nullptr);
    REQUIRE(by_kernel.lengths == lengths.data());
    REQUIRE(by_kernel.tiles_per_block == 0);
    REQUIRE(by_host.blocks <= by_kernel.blocks);

    Found host = cut(by_host), kernel = cut(by_kernel);
    // Blocks that the host does not launch have no tiles in the kernel's schedule.
    for (int block = by_host.blocks; block < by_kernel.blocks; ++block)
      REQUIRE(kernel.begins[std::size_t(block) + 1] == host.begins.back());
    kernel.begins.resize(host.begins.size());
    REQUIRE(numbers(host) == numbers(kernel));
    const bool is_padded = int(by_host.tiles_per_head) * call.sequences * by_host.kv_heads > tiles(source, call);
    by_host.blocks_with_one_more > 0 ? ++even : is_padded ? ++padded : ++unsplit;
  }
  CHECK(std::min({unsplit, padded, even}) > 20);
}

}  // namespace kvjit
