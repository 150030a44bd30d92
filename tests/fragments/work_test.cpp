// templates/core/work.cuh: random calls are cut as the definition says. Tiles are counted out one by one here, pair after pair.
// SPDX-License-Identifier: MIT
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Wreturn-type"  // g++ 12: a loop without an end looks finite to it below an unroll pragma
#include "core/work.cuh"
#pragma GCC diagnostic pop

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "runtime/cpu_block.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

using test::Rng;

constexpr int kTile = 32;

struct Piece {
  int block;
  kv::Part part;
  kv::i64 slot;
};

// What one lane finds out; every lane must find the same.
struct Found {
  std::vector<kv::u32> begins;  // of blocks 0 .. count: the last is the line's end
  std::vector<Piece> pieces;    // in the order of the line
  std::vector<kv::Part> pairs;
  std::vector<int> owners;  // the block of each tile
};

auto numbers(const kv::Part& p) {
  return std::array{p.sequence, p.head, p.length, p.first, p.last, p.tiles, int(p.pair_begin)};
}
std::vector<kv::i64> numbers(const Found& found) {
  std::vector<kv::i64> all(found.begins.begin(), found.begins.end());
  all.insert(all.end(), found.owners.begin(), found.owners.end());
  for (const Piece& piece : found.pieces) {
    all.push_back(piece.block), all.push_back(piece.slot);
    for (const int n : numbers(piece.part)) all.push_back(n);
  }
  for (const kv::Part& pair : found.pairs)
    for (const int n : numbers(pair)) all.push_back(n);
  return all;
}

// One warp walks through all blocks, as each block of decode does through its own piece.
Found cut(const kv::WorkArgs& args) {
  std::vector<Found> lanes(32);
  const auto ran = run_grid(
      [&] {
        Found& mine = lanes[std::size_t(kv::lane())];
        const kv::Work<kTile> work(args);
        for (int block = 0; block <= args.blocks; ++block) mine.begins.push_back(work.begin(block));
        for (int block = 0; block < args.blocks; ++block) {
          const kv::u32 end = mine.begins[std::size_t(block) + 1];
          for (kv::u32 at = mine.begins[std::size_t(block)]; at < end;) {
            const kv::Part part = work.part_at(at, end);
            mine.pieces.push_back({block, part, work.slot(block, part.sequence, part.head)});
            if (part.last <= part.first) break;  // would never end; the checks say so
            at += kv::u32(part.last - part.first);
          }
        }
        for (int s = 0; s < args.sequences; ++s)
          for (int head = 0; head < args.kv_heads; ++head) mine.pairs.push_back(work.pair(s, head));
        for (kv::u32 tile = 0; tile < mine.begins.back(); ++tile) mine.owners.push_back(work.block_of(tile));
      },
      {}, 32, 0);
  REQUIRE_MESSAGE(ran, ran.error().message);
  const auto first = numbers(lanes[0]);
  CHECK(std::all_of(lanes.begin(), lanes.end(), [&](const Found& lane) { return numbers(lane) == first; }));
  return lanes[0];
}

struct Shape {
  int sequences, heads, tokens, blocks;
  std::vector<int> lengths;  // as given; empty: null
  std::string name() const {
    return fmt::format("{} sequences x {} heads, {} tokens, {} blocks, lengths {}", sequences, heads, tokens, blocks,
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
  // As the host passes it: with lengths on the device it cannot count tiles.
  kv::WorkArgs args() const {
    kv::WorkArgs work{lengths.empty() ? nullptr : lengths.data(), tokens, sequences, heads, blocks, 0, 0, 0};
    if (lengths.empty())
      work.tiles = kv::u32(tiles(0)), work.share = kv::u32(all_tiles() / blocks),
      work.longer = kv::u32(all_tiles() % blocks);
    return work;
  }
};

void check(const Shape& shape) {
  INFO(shape.name());
  const kv::WorkArgs args = shape.args();
  const Found found = cut(args);

  // Pieces of the line: contiguous, all of it, equal up to one tile.
  REQUIRE(found.begins.front() == 0);
  REQUIRE(int(found.begins.back()) == shape.all_tiles());
  kv::u32 fewest = ~0u, most = 0;
  for (int block = 0; block < shape.blocks; ++block) {
    const kv::u32 count = found.begins[std::size_t(block) + 1] - found.begins[std::size_t(block)];
    fewest = std::min(fewest, count), most = std::max(most, count);
  }
  CHECK(most - fewest <= 1);
  for (int tile = 0; tile < shape.all_tiles(); ++tile) {
    const auto block = std::size_t(found.owners[std::size_t(tile)]);
    REQUIRE(block < std::size_t(shape.blocks));
    REQUIRE(found.begins[block] <= kv::u32(tile));
    REQUIRE(kv::u32(tile) < found.begins[block + 1]);
  }

  // Tile after tile of pair after pair: each is in the next place of a part, and pair() says where its pair begins.
  std::set<kv::i64> slots;
  std::map<int, int> split_pairs;  // by first block: pairs of several parts, whose arrivals are counted there
  std::size_t piece = 0;
  int begin = 0;
  for (int s = 0; s < shape.sequences; ++s)
    for (int head = 0; head < shape.heads; ++head, begin += shape.tiles(s)) {
      const int tiles = shape.tiles(s);
      REQUIRE(numbers(found.pairs[std::size_t(s * shape.heads + head)]) ==
              std::array{s, head, shape.length(s), 0, tiles, tiles, begin});
      const std::size_t first_piece = piece;
      for (int next = 0; next < tiles; ++piece) {
        REQUIRE(piece < found.pieces.size());
        const auto& [block, part, slot] = found.pieces[piece];
        REQUIRE(numbers(part) == std::array{s, head, shape.length(s), next, part.last, tiles, begin});
        REQUIRE(part.last > next);
        REQUIRE(part.last <= tiles);
        REQUIRE(part.is_whole() == (next == 0 && part.last == tiles));
        REQUIRE(kv::u32(begin + next) >= found.begins[std::size_t(block)]);
        REQUIRE(kv::u32(begin + part.last) <= found.begins[std::size_t(block) + 1]);
        REQUIRE(block == found.pieces[first_piece].block + int(piece - first_piece));
        REQUIRE(slot >= 0);
        REQUIRE(slot < shape.sequences * shape.heads + shape.blocks);  // what the workspace has room for
        REQUIRE(slots.insert(slot).second);
        next = part.last;
      }
      if (piece - first_piece > 1) ++split_pairs[found.pieces[first_piece].block];
    }
  CHECK(piece == found.pieces.size());
  for (const auto& [block, count] : split_pairs) REQUIRE(count == 1);
}

// Lengths that are none, short, whole tiles or anything; and some that no caller should give: they are cut to what there is.
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
  // With lengths on the device the host counts `tokens` for each sequence: there may be more blocks than tiles.
  if (has_lengths && rng.below(5) == 0) shape.blocks = tiles + 1 + rng.below(tiles);
  return shape;
}

}  // namespace

TEST_CASE("the parts of all blocks are the tiles of all pairs, each once, in even shares") {
  Rng rng(11);
  for (int i = 0; i < 150; ++i) {
    check(random_shape(rng, false));
    check(random_shape(rng, true));
  }
}

TEST_CASE("the edges of a warp's look at the lengths: 1, 31 to 33 and 64 sequences, all empty, all equal") {
  for (const int sequences : {1, 31, 32, 33, 63, 64, 65})
    for (const int length : {0, kTile, kTile + 1, 5 * kTile})
      for (const int blocks : {1, 7, sequences, 2 * sequences}) {
        const std::vector<int> lengths(std::size_t(sequences), length);
        check({sequences, 2, 5 * kTile, blocks, lengths});
        if (blocks <= sequences * 2) check({sequences, 2, std::max(length, 1), blocks, {}});
      }
}

}  // namespace kvjit
