// Tile scheduler: which block attends to which tiles of which batch-heads. A batch-head is one sequence and one of its
// heads (a KV head, or one query chunk of it: kernels/decode/query_chunks.cuh). The tiles of all batch-heads are
// numbered through, sequence after sequence and head after head, and each of `blocks` blocks takes an equal range of
// the numbers, whatever the lengths are. Where a range ends inside a batch-head, the batch-head has several KV splits,
// each with a partial result. For example, heads of 13, 13, 6 and 6 tiles for 4 blocks are 38 tiles, 9 or 10 a block:
//
//   batch-heads  | s0 h0, 13 tiles         | s0 h1, 13 tiles         | s1 h0, 6  | s1 h1, 6  |
//   blocks       | 0: 10 tiles       | 1: 10 tiles       | 2: 9 tiles      | 3: 9 tiles      |
//   KV splits    | s0 h0             | s0h0| s0 h1       | s0 h1     |s1h0 |s1h0 | s1 h1     |
//
// Blocks 1, 2 and 3 have splits of two batch-heads each. Such a split boundary costs a second prologue and epilogue,
// which take as long as many tiles. So each batch-head begins with a block of its own and is padded to a multiple of
// the tiles per block, unless a block's share then exceeds the even one by more than a boundary costs. The same heads
// for 6 blocks of 7 tiles, where each head is padded by one tile:
//
//   batch-heads  | s0 h0, 13 + 1             | s0 h1, 13 + 1             | s1 h0, 6+1  | s1 h1, 6+1  |
//   blocks       | 0           | 1           | 2           | 3           | 4           | 5           |
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"

namespace kv {

// KV split: tiles [first, last) of one batch-head, which one block attends to.
struct Part {
  int sequence,     // index of the sequence
      head,         // scheduler head: a KV head, or a query chunk of one
      length;       // tokens of the sequence
  int first, last;  // tiles of the batch-head: [first, last)
  int first_block,  // the block that has the first split of the batch-head
      parts;        // splits of the batch-head, one a block from first_block on
  u32 line_end;     // number of the tile behind the split among all tiles; padding counts
  KV_DEVICE bool is_whole() const { return parts == 1; }
};

// The tokens of a sequence that are scheduled. AllTokens: all of them; SeenRange (features/token_range.cuh): those that
// any query of the call sees.
struct AllTokens {
  static constexpr bool kCutsTiles = false;
  KV_DEVICE int first(int, int) const { return 0; }
  KV_DEVICE int end(int, int length) const { return length; }
};

// The schedule of a call. A block calls look(), finds its range with begin(), its first split with part_at(), and walks
// on with next() until the range ends.
//
// A real call: 8 KV heads of kv4 with 4100 tokens on the 132 SMs of an H200. Tiles of 32 tokens make 129 tiles a head
// and 1032 in all. Evenly cut, 108 blocks have 8 tiles and 24 have 7, and 7 of the 8 heads begin inside a block: 12.5
// us. A boundary costs the time of 54 tiles (7 us at 33 KB/us, 4224 bytes a tile). With 9 tiles a block, each head has
// 15 blocks (the last has 3 tiles), no boundary and at most the 16 splits that are merged at once: 120 blocks, 7.6 us.
//
// If there are more batch-heads than blocks, each block takes whole ones, all padded to the longest, by the same rule.
// A batch-head without tokens has one tile, all of it masked: its output is zeros, and a block must write them.
//
// If lengths are in host memory, the host applies this rule (runtime/launch) and passes the result. If they are in
// device memory, or a window cuts tiles, each block applies it by itself, and all blocks come to the same result.
template <int kTile, class Seen = AllTokens>
class Work {
 public:
  KV_DEVICE explicit Work(const WorkArgs& args, const Seen& seen = Seen())
      : args_(args),
        seen_(seen),
        share_(args.share),
        longer_(args.longer),
        unit_(1),
        end_(u32(args.sequences) * u32(args.kv_heads) * args.room),
        length_(0) {}

  // Must be called first: makes the schedule from the lengths that are in memory now, if the host did not make it.
  KV_DEVICE void look() {
    if (counts()) share_out();
  }
  // Do the lengths in memory differ from those of the schedule? Asked for up to kRemembered sequences, one a lane.
  static constexpr int kRemembered = 32;
  KV_DEVICE bool has_changed() const {
    return args_.lengths && args_.sequences <= kRemembered && any(length_of_lane(0, args_.sequences) != length_);
  }

  // The number of a block's first tile among all tiles. The next block's begin() is its end.
  KV_DEVICE u32 begin(int block) const {
    const u32 at = u32(block) * share_ + (u32(block) < longer_ ? u32(block) : longer_);
    return at < end_ ? at : end_;
  }
  // Where a block's partial result of a batch-head is stored. No two splits share a slot: from each split to the next,
  // the block or the batch-head or both go up by one.
  KV_DEVICE i64 slot(int block, int sequence, int head) const {
    return i64(block) + i64(sequence) * args_.kv_heads + head;
  }

  // A whole batch-head, as one split.
  KV_DEVICE Part pair(int sequence, int head) const {
    const int length = length_of(sequence);
    const u32 room = counts() ? rounded(u32(tiles_of(sequence, length)), unit_) : args_.room,
              before = counts() ? count(sequence, unit_).sum : u32(sequence) * room,
              begin = before * u32(args_.kv_heads) + u32(head) * room;
    return cut(sequence, head, length, begin, room, begin, begin + room);
  }
  // The split from tile number `tile` on: of the batch-head that has this tile, and not beyond `end`.
  KV_DEVICE Part part_at(u32 tile, u32 end) const {
    int sequence = 0, length = args_.tokens;
    u32 begin = 0, room = args_.room;  // the first tile number of the sequence; tiles of each of its heads
    if (counts()) {
      sequence = find_sequence(tile, begin, room, length);
    } else if (args_.sequences > 1) {
      sequence = int(tile / (room * u32(args_.kv_heads)));
      begin = u32(sequence) * room * u32(args_.kv_heads);
    }
    const u32 head = (tile - begin) / room;
    return cut(sequence, int(head), length, begin + head * room, room, tile, end);
  }

  // The block's next split: of the batch-head behind that of `part`, from its first tile on, and not beyond `end`.
  KV_DEVICE Part next(const Part& part, u32 end) const {
    const bool is_last = part.head + 1 == args_.kv_heads;
    const int sequence = part.sequence + (is_last ? 1 : 0), length = is_last ? length_of(sequence) : part.length;
    const u32 begin = part.line_end, room = counts() ? rounded(u32(tiles_of(sequence, length)), unit_) : args_.room;
    return cut(sequence, is_last ? 0 : part.head + 1, length, begin, room, begin, end);
  }

  // During the loop registers are for sums, so the scheduler state and the present split are saved to shared memory.
  // Thread 0 saves them. They may be restored behind any later barrier of the block, and must be restored before the
  // barrier that comes ahead of the next split.
  static constexpr int kBytes = 48;
  KV_DEVICE void put_away(SharedAddress at, const Part& part) const {
    if (thread() != 0) return;
    store_shared_u128(at, share_, longer_, unit_, end_);
    store_shared_u128(at + 16, u32(part.sequence), u32(part.head), u32(part.length), part.line_end);
    store_shared_u128(at + 32, u32(part.first_block), u32(part.parts), 0, 0);
  }
  KV_DEVICE Part fetch(SharedAddress at) {
    u32 line[4], part[4], pair[2];
    load_shared_u128(line, at);
    load_shared_u128(part, at + 16);
    load_shared_u64(pair, at + 32);
    share_ = line[0], longer_ = line[1], unit_ = line[2], end_ = line[3];
    return {int(part[0]), int(part[1]), int(part[2]), 0, 0, int(pair[0]), int(pair[1]), part[3]};
  }

 private:
  // The split [tile, end) of the batch-head that has the tile numbers [begin, begin + room), cut to its tiles.
  KV_DEVICE Part cut(int sequence, int head, int length, u32 begin, u32 room, u32 tile, u32 end) const {
    const int before = first_tile(sequence, length), tiles = tiles_of(sequence, length), last = int(end - begin),
              first_block = block_of(begin), last_block = block_of(begin + u32(tiles) - 1);
    return {sequence,
            head,
            length,
            before + int(tile - begin),
            before + (last < tiles ? last : tiles),
            first_block,
            last_block - first_block + 1,
            begin + room < end ? begin + room : end};
  }
  // The block that has a tile number.
  KV_DEVICE int block_of(u32 tile) const {
    const u32 in_longer = longer_ * (share_ + 1);
    const bool is_longer = tile < in_longer;  // one division for both cases
    return int((is_longer ? tile : tile - in_longer) / (is_longer ? share_ + 1 : share_) + (is_longer ? 0 : longer_));
  }
  // Does the kernel make the schedule? Otherwise the host has made it.
  KV_DEVICE bool counts() const { return Seen::kCutsTiles || args_.lengths; }
  // The first tile that is scheduled. A sequence of which no token is seen has one tile all the same: that of its last
  // token, or tile 0 if it is empty.
  KV_DEVICE int first_tile(int sequence, int length) const {
    const int first = seen_.first(sequence, length);
    return (first < length || first == 0 ? first : length - 1) / kTile;
  }
  KV_DEVICE int tiles_of(int sequence, int length) const {
    const int seen = seen_.end(sequence, length) - first_tile(sequence, length) * kTile;
    return seen <= kTile ? 1 : (seen + kTile - 1) / kTile;
  }
  KV_DEVICE int length_of(int sequence) const {
    const int given = args_.lengths ? int(load_coherent_u32(args_.lengths + sequence)) : args_.tokens;
    return given < 0 ? 0 : given < args_.tokens ? given : args_.tokens;
  }
  // The length of sequence first + lane(); 0 from sequence `end` on.
  KV_DEVICE int length_of_lane(int first, int end) const {
    return first + lane() < end ? length_of(first + lane()) : 0;
  }
  KV_DEVICE static u32 rounded(u32 tiles, u32 unit) { return unit == 1 ? tiles : (tiles + unit - 1) / unit * unit; }

  // Tiles of one head of sequence first + lane(), rounded up to a multiple of `unit`; 0 from sequence `end` on.
  KV_DEVICE u32 tiles_of_lane(int first, int end, int length, u32 unit) const {
    return first + lane() < end ? rounded(u32(tiles_of(first + lane(), length)), unit) : 0;
  }
  KV_DEVICE static u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
  struct Count {
    u32 sum,   // tiles of one head, over all sequences
        most;  // tiles of one head of the longest sequence
  };
  // Counts the tiles of one head of each sequence before `end`, each rounded up to a multiple of `unit`.
  KV_DEVICE Count count(int end, u32 unit) const {
    Count all{0, 0};
    KV_NO_UNROLL
    for (int first = 0; first < end; first += 32) {
      const u32 mine = tiles_of_lane(first, end, first == 0 ? length_ : length_of_lane(first, end), unit);
      all.sum += mine, all.most = larger_of(all.most, mine);
    }
    KV_UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      all.sum += shfl_xor(all.sum, mask), all.most = larger_of(all.most, shfl_xor(all.most, mask));
    }
    return all;
  }
  // Chooses tiles per block, with the even cut as the fallback: all tiles / blocks, and one more for the first blocks.
  // (1) More batch-heads than blocks: each block takes `whole` batch-heads, all padded to the longest.
  // (2) Else a binary search finds, to a sixteenth, the smallest tiles per block at which every batch-head begins with
  //     a block of its own and the blocks suffice. It starts at the even share. If that takes no more than a merge
  //     round longer, it starts at the share by which the longest batch-head has at most kPartsAtOnce splits.
  // Either choice is taken only if it exceeds the even share by no more than slack().
  KV_DEVICE void share_out() {
    const u32 heads = u32(args_.kv_heads), blocks = u32(args_.blocks);
    length_ = length_of_lane(0, args_.sequences);
    u32 least = 1, unit = 1, end = 0;
    KV_NO_UNROLL
    for (u32 trial = 1; true;) {
      const Count all = count(args_.sequences, trial);
      const u32 line = all.sum * heads;
      if (agreed(end == 0)) {  // the first pass counts without padding
        end_ = end = line;
        share_ = line / blocks, longer_ = line % blocks;
        if (args_.pieces == 0) {
          const u32 whole = args_.whole * all.most;
          if (whole <= share_ + slack())
            unit_ = all.most, share_ = whole, longer_ = 0, end_ = u32(args_.sequences) * heads * all.most;
          return;
        }
        least = share_ + (longer_ > 0 ? 1 : 0);
        const u32 few = (all.most + kPartsAtOnce - 1) / kPartsAtOnce;
        if (few <= least + args_.round) least = larger_of(least, few);
        trial = larger_of(least, (all.most + args_.pieces - 1) / args_.pieces);
        continue;
      }
      if (line <= blocks * trial)
        unit = trial, end = line;
      else
        least = trial + 1;
      if (agreed(unit - least <= unit / 16)) break;
      trial = (least + unit) / 2;
    }
    if (unit <= share_ + slack()) unit_ = share_ = unit, longer_ = 0, end_ = end;
  }
  // Tiles by which a block's share may exceed the even one so that no split boundary is left: as many as a boundary
  // costs, or a sixteenth of the share, since memory is as busy without a sixteenth of the blocks.
  KV_DEVICE u32 slack() const { return larger_of(args_.seam, share_ / 16); }
  // The sequence that has tile number `tile`. Also: the number of its first tile, tiles of each of its heads, its
  // length.
  KV_DEVICE int find_sequence(u32 tile, u32& begin, u32& room, int& length) const {
    const u32 heads = u32(args_.kv_heads);
    begin = 0;
    KV_NO_UNROLL
    for (int first = 0; true; first += 32) {
      const int mine = first == 0 ? length_ : length_of_lane(first, args_.sequences);
      u32 end =
          tiles_of_lane(first, args_.sequences, mine, unit_);  // after the scan: of all sequences up to the lane's
      KV_UNROLL
      for (int step = 1; step < 32; step <<= 1) {
        const u32 before = shfl(end, lane() - step);
        if (lane() >= step) end += before;
      }
      const int passed = count_bits(ballot(begin + end * heads <= tile));
      if (agreed(passed == 32 && first + 32 < args_.sequences)) {
        begin += shfl(end, 31) * heads;
        continue;
      }
      const u32 sum = shfl(end, passed - 1), before = passed > 0 ? sum : 0;  // every lane takes part in the shuffle
      room = shfl(end, passed) - before;
      begin += before * heads;
      length = int(shfl(u32(mine), passed));
      return first + passed;
    }
  }

  const WorkArgs& args_;
  const Seen seen_;
  u32 share_,   // tiles of a block
      longer_;  // so many blocks, the first ones, have one tile more
  u32 unit_,    // tiles of a batch-head are padded to a multiple of this
      end_;     // tiles of the call, with padding
  int length_;  // tokens of sequence lane(), as the schedule was made with them
};

// The tile scheduler of a kernel's arguments. Plans with features have their own form (kernels/decode/features.cuh).
template <class Plan, class Args>
KV_DEVICE Work<Plan::kTile> work_of(const Args& args) {
  return Work<Plan::kTile>(args.work);
}
// May lengths be read before `wait_for_predecessor`? They may if has_changed() can tell afterwards that they changed.
template <class Plan, class Args>
KV_DEVICE bool may_look_early(const Args& args) {
  return !args.work.lengths || args.work.sequences <= Work<Plan::kTile>::kRemembered;
}

}  // namespace kv
