// Who does what in a decode call. The tiles of all (sequence, KV head) pairs form one line, sequence after sequence and head
// after head, and the line is cut into `blocks` pieces of equal length, so a block's share is even whatever the lengths are.
// Where a cut falls inside a pair, the pair has several parts, each with a partial result of its own.
//
//   line     | s0 h0        | s0 h1        | s1 h0 | s1 h1 |        lengths 14, 14, 7, 7 tiles
//   blocks   |      0    |     1     |     2     |    3    |        four of 10 or 11
//   parts    |0,0        |0,0|0,1    |0,1|1,0    |.. 1,1   |
//
// A pair without tokens has one tile, which is masked: its output is zeros, and somebody must write them.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/args.cuh"
#include "core/simt.cuh"

namespace kv {

// A block's part of one pair: tiles [first, last) of the pair.
struct Part {
  int sequence, head, length;  // length: tokens of the sequence
  int first, last, tiles;      // tiles: of the whole pair
  u32 pair_begin;              // the pair's first tile on the line
  KV_DEVICE bool is_whole() const { return last - first == tiles; }
};

// Which tokens of a sequence have tiles: all of them, or (features/range.cuh) those that its queries see.
struct AllTokens {
  static constexpr bool kCutsTiles = false;
  KV_DEVICE int first(int, int) const { return 0; }
  KV_DEVICE int end(int, int length) const { return length; }
};

template <int kTile, class Seen = AllTokens>
class Work {
 public:
  KV_DEVICE explicit Work(const WorkArgs& args, const Seen& seen = Seen())
      : args_(args), seen_(seen), share_(args.share), longer_(args.longer) {
    if (!counts()) return;
    const u32 total = count_tiles(args.sequences) * u32(args.kv_heads);
    share_ = total / u32(args.blocks), longer_ = total % u32(args.blocks);
  }

  // Where a block's piece of the line begins; the next one's begin is its end.
  KV_DEVICE u32 begin(int block) const { return u32(block) * share_ + (u32(block) < longer_ ? u32(block) : longer_); }
  // The block that has a tile of the line.
  KV_DEVICE int block_of(u32 tile) const {
    const u32 in_longer = longer_ * (share_ + 1);
    const bool is_longer = tile < in_longer;  // one division, whichever it is
    return int((is_longer ? tile : tile - in_longer) / (is_longer ? share_ + 1 : share_) + (is_longer ? 0 : longer_));
  }
  // The place of a block's partial result of a pair. Along the line, from part to part, the block or the pair or both go one up.
  KV_DEVICE i64 slot(int block, int sequence, int head) const {
    return i64(block) + i64(sequence) * args_.kv_heads + head;
  }

  // A whole pair.
  KV_DEVICE Part pair(int sequence, int head) const {
    Part part{sequence, head, length_of(sequence), 0, 0, 0, 0};
    part.tiles = tiles_of(sequence, part.length);
    part.first = first_tile(sequence, part.length), part.last = part.first + part.tiles;
    const u32 before = counts() ? count_tiles(sequence) : u32(sequence) * u32(part.tiles);
    part.pair_begin = before * u32(args_.kv_heads) + u32(head) * u32(part.tiles);
    return part;
  }
  // The pair whose tiles include `tile`, cut to [tile, end).
  KV_DEVICE Part part_at(u32 tile, u32 end) const {
    Part part;
    u32 begin = 0;  // of the sequence
    if (counts()) {
      part.sequence = find_sequence(tile, begin);
    } else {
      part.sequence = args_.sequences == 1 ? 0 : int(tile / (args_.tiles * u32(args_.kv_heads)));
      begin = u32(part.sequence) * args_.tiles * u32(args_.kv_heads);
    }
    part.length = length_of(part.sequence);
    part.tiles = tiles_of(part.sequence, part.length);
    part.head = int((tile - begin) / u32(part.tiles));
    part.pair_begin = begin + u32(part.head) * u32(part.tiles);
    part.first = int(tile - part.pair_begin);
    part.last = int(end - part.pair_begin) < part.tiles ? int(end - part.pair_begin) : part.tiles;
    part.first += first_tile(part.sequence, part.length), part.last += first_tile(part.sequence, part.length);
    return part;
  }

 private:
  // Does the kernel find out how many tiles there are? Else the host knew.
  KV_DEVICE bool counts() const { return Seen::kCutsTiles || args_.lengths; }
  // A sequence without any token to see has the tile of its last one, or its first.
  KV_DEVICE int first_tile(int sequence, int length) const {
    const int first = seen_.first(sequence, length);
    return (first < length || first == 0 ? first : length - 1) / kTile;
  }
  KV_DEVICE int tiles_of(int sequence, int length) const {
    const int seen = seen_.end(sequence, length) - first_tile(sequence, length) * kTile;
    return seen <= kTile ? 1 : (seen + kTile - 1) / kTile;
  }
  KV_DEVICE int length_of(int sequence) const {
    const int given = args_.lengths ? args_.lengths[sequence] : args_.tokens;
    return given < 0 ? 0 : given < args_.tokens ? given : args_.tokens;
  }
  // Tiles of a head of the sequences first .. first + 31, one a lane; 0 from `end` on.
  KV_DEVICE u32 tiles_of_mine(int first, int end) const {
    const int sequence = first + lane();
    return sequence < end ? u32(tiles_of(sequence, length_of(sequence))) : 0;
  }
  KV_DEVICE u32 count_tiles(int end) const {
    u32 sum = 0;
    KV_NO_UNROLL
    for (int first = 0; first < end; first += 32) sum += tiles_of_mine(first, end);
    KV_UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) sum += shfl_xor(sum, mask);
    return sum;
  }
  // The sequence whose heads' tiles include `tile`, and where they begin.
  KV_DEVICE int find_sequence(u32 tile, u32& begin) const {
    begin = 0;
    KV_NO_UNROLL
    for (int first = 0; true; first += 32) {
      u32 end = tiles_of_mine(first, args_.sequences);  // then of all sequences up to the lane's
      KV_UNROLL
      for (int step = 1; step < 32; step <<= 1) {
        const u32 before = shfl(end, lane() - step);
        if (lane() >= step) end += before;
      }
      const int passed = count_bits(ballot(begin + end * u32(args_.kv_heads) <= tile));
      if (passed == 32 && first + 32 < args_.sequences) {
        begin += shfl(end, 31) * u32(args_.kv_heads);
        continue;
      }
      const u32 before = shfl(end, passed - 1);  // every lane takes part
      if (passed > 0) begin += before * u32(args_.kv_heads);
      return first + passed;
    }
  }

  const WorkArgs& args_;
  const Seen seen_;
  u32 share_, longer_;
};

// Of a kernel's arguments, unless features have a say in it (kernels/decode_features.cuh); and whether the work hangs on memory that the
// launch ahead may write.
template <class Plan, class Args>
KV_DEVICE Work<Plan::kTile> work_of(const Args& args) {
  return Work<Plan::kTile>(args.work);
}
template <class Args>
KV_DEVICE bool has_work_in_memory(const Args& args) {
  return args.work.lengths;
}

}  // namespace kv
