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
// the tiles per block, unless a block then has more tiles beyond the even cut than a boundary costs. The same heads for
// 6 blocks of 7 tiles, where each head is padded by one tile:
//
//   batch-heads  | s0 h0, 13 + 1             | s0 h1, 13 + 1             | s1 h0, 6+1  | s1 h1, 6+1  |
//   blocks       | 0           | 1           | 2           | 3           | 4           | 5           |
// SPDX-License-Identifier: MIT
#pragma once
#include "args/schedule.cuh"
#include "args/tokens.cuh"
#include "device/simt.cuh"

namespace kv {

// Plans whose queries may see no token of a sequence. Plans without features have no rule of which tokens are seen.
template <class Plan>
concept MaySeeNothing = LeavesTokens<typename Plan::Feature::Range>;

// KV split: tiles [first, last) of one batch-head, which one block attends to.
struct KvSplit {
  int sequence,     // index of the sequence
      head,         // scheduler head: a KV head, or a query chunk of one
      length;       // tokens of the sequence
  TokenRange seen;  // those of them that any query of the call sees
  int first, last;  // tiles of the batch-head: [first, last)
  int first_block,  // the block that has the first split of the batch-head
      splits;       // splits of the batch-head, one a block from first_block on
  u32 linear_end;   // number of the tile behind the split among all tiles; padding counts
  KV_DEVICE bool is_unsplit() const { return splits == 1; }
  // Tokens whose memory may be read: none of a sequence of which no query sees a token. Its one tile is masked.
  template <class Plan>
  KV_DEVICE int readable() const {
    return MaySeeNothing<Plan> && seen.end <= seen.first ? 0 : length;
  }
};

// The tokens of a sequence that are scheduled. AllTokens: all of them; SeenRange (features/token_range.cuh): those that
// any query of the call sees.
struct AllTokens {
  static constexpr bool kCutsTiles = false;
  KV_DEVICE int first(int, int) const { return 0; }
  KV_DEVICE int end(int, int length) const { return length; }
  KV_DEVICE TokenRange seen(int, int length) const { return {0, length}; }
};

// The schedule of a call. A block calls read_lengths(), finds its range with begin(), its first split with split_at(),
// and walks on with next() until the range ends.
//
// A real call: 8 KV heads of kv4 with 4100 tokens on the 132 SMs of an H200. Tiles of 32 tokens make 129 tiles a head
// and 1032 in all. Evenly cut, 108 blocks have 8 tiles and 24 have 7, and 7 of the 8 heads begin inside a block: 12.5
// us. A boundary costs the time of 54 tiles (7 us at 33 KB/us, 4224 bytes a tile). With 9 tiles a block, each head has
// 15 blocks (the last has 3 tiles), no boundary and at most the 16 splits that are merged at once: 120 blocks, 7.6 us.
//
// If there are more batch-heads than blocks, each block takes whole ones, all padded to the longest, by the same rule.
// A batch-head without tokens has one tile, all of it masked: its output is zeros, and a block must write them.
//
// The rule is choose_schedule() of args/schedule.cuh. If the host knows the lengths, it applies the rule and passes the
// result. If lengths are in device memory, or a window cuts tiles, each block applies it by itself.
template <int kTile, class Seen = AllTokens>
class TileScheduler {
 public:
  KV_DEVICE explicit TileScheduler(const SchedulerArgs& args, const Seen& seen = Seen())
      : args_(args),
        seen_(seen),
        tiles_per_block_(args.tiles_per_block),
        blocks_with_one_more_(args.blocks_with_one_more),
        multiple_(1),
        end_(u32(args.sequences) * u32(args.kv_heads) * args.tiles_per_head),
        length_(0) {}

  // Must be called first: makes the schedule from the lengths that are in memory now, if the host did not make it.
  KV_DEVICE void read_lengths() {
    if (reads_lengths()) make_schedule();
  }
  // Do the lengths in memory differ from those of the schedule? Asked for up to kRemembered sequences, one a lane.
  static constexpr int kRemembered = 32;
  KV_DEVICE bool lengths_changed() const {
    return args_.lengths && args_.sequences <= kRemembered &&
           any((is_alone() ? length_of(0) : length_of_lane(0, args_.sequences)) != length_);
  }

  // The number of a block's first tile among all tiles. The next block's begin() is its end.
  KV_DEVICE u32 begin(int block) const {
    const u32 at =
        u32(block) * tiles_per_block_ + (u32(block) < blocks_with_one_more_ ? u32(block) : blocks_with_one_more_);
    return at < end_ ? at : end_;
  }
  // Where a block's partial result of a batch-head is stored. No two splits share a slot: from each split to the next,
  // the block or the batch-head or both go up by one.
  KV_DEVICE i64 partial_index(int block, int sequence, int head) const {
    return i64(block) + i64(sequence) * args_.kv_heads + head;
  }

  // A whole batch-head, as one split.
  KV_DEVICE KvSplit batch_head(int sequence, int head) const {
    const int length = length_of(sequence);
    const u32 tiles_per_head =
                  reads_lengths() ? padded(u32(tiles_of(sequence, length)), multiple_) : args_.tiles_per_head,
              before = reads_lengths() ? count(sequence, multiple_).sum : u32(sequence) * tiles_per_head,
              begin = before * u32(args_.kv_heads) + u32(head) * tiles_per_head;
    return cut(sequence, head, length, begin, tiles_per_head, begin, begin + tiles_per_head);
  }
  // The split from tile number `tile` on: of the batch-head that has this tile, and not beyond `end`.
  KV_DEVICE KvSplit split_at(u32 tile, u32 end) const {
    int sequence = 0, length = args_.tokens;
    u32 begin = 0,
        tiles_per_head = args_.tiles_per_head;  // the first tile number of the sequence; tiles of each of its heads
    if (reads_lengths()) {
      sequence = find_sequence(tile, begin, tiles_per_head, length);
    } else if (args_.sequences > 1) {
      sequence = int(tile / (tiles_per_head * u32(args_.kv_heads)));
      begin = u32(sequence) * tiles_per_head * u32(args_.kv_heads);
    }
    const u32 head = (tile - begin) / tiles_per_head;
    return cut(sequence, int(head), length, begin + head * tiles_per_head, tiles_per_head, tile, end);
  }

  // The block's next split: of the batch-head behind that of `split`, from its first tile on, and not beyond `end`.
  KV_DEVICE KvSplit next(const KvSplit& split, u32 end) const {
    const bool is_last = split.head + 1 == args_.kv_heads;
    const int sequence = split.sequence + (is_last ? 1 : 0), length = is_last ? length_of(sequence) : split.length;
    const u32 begin = split.linear_end, tiles_per_head = reads_lengths()
                                                             ? padded(u32(tiles_of(sequence, length)), multiple_)
                                                             : args_.tiles_per_head;
    return cut(sequence, is_last ? 0 : split.head + 1, length, begin, tiles_per_head, begin, end);
  }

  // During the loop registers are for sums, so the scheduler state and the present split are saved to shared memory.
  // Thread 0 saves them. They may be restored behind any later barrier of the block, and must be restored before the
  // barrier that comes ahead of the next split.
  static constexpr int kBytes = 48;
  KV_DEVICE void save_to_shared(SharedAddress at, const KvSplit& split) const {
    if (thread() != 0) return;
    store_shared_u128(at, tiles_per_block_, blocks_with_one_more_, multiple_, end_);
    store_shared_u128(at + 16, u32(split.sequence), u32(split.head), u32(split.length), split.linear_end);
    store_shared_u128(at + 32, u32(split.first_block), u32(split.splits), 0, 0);
  }
  KV_DEVICE KvSplit restore_from_shared(SharedAddress at) {
    u32 line[4], split[4], batch_head[2];
    load_shared_u128(line, at);
    load_shared_u128(split, at + 16);
    load_shared_u64(batch_head, at + 32);
    tiles_per_block_ = line[0], blocks_with_one_more_ = line[1], multiple_ = line[2], end_ = line[3];
    return {int(split[0]), int(split[1]), int(split[2]), {}, 0, 0, int(batch_head[0]), int(batch_head[1]), split[3]};
  }

 private:
  // The split [tile, end) of the batch-head that has tile numbers [begin, begin + tiles_per_head), without padding.
  KV_DEVICE KvSplit cut(int sequence, int head, int length, u32 begin, u32 tiles_per_head, u32 tile, u32 end) const {
    const int before = first_tile(sequence, length), tiles = tiles_of(sequence, length), last = int(end - begin),
              first_block = block_of(begin), last_block = block_of(begin + u32(tiles) - 1);
    return {sequence,
            head,
            length,
            seen_.seen(sequence, length),
            before + int(tile - begin),
            before + (last < tiles ? last : tiles),
            first_block,
            last_block - first_block + 1,
            begin + tiles_per_head < end ? begin + tiles_per_head : end};
  }
  // The block that has a tile number.
  KV_DEVICE int block_of(u32 tile) const {
    const u32 in_larger_blocks = blocks_with_one_more_ * (tiles_per_block_ + 1);
    const bool is_larger_block = tile < in_larger_blocks;  // one division for both cases
    return int((is_larger_block ? tile : tile - in_larger_blocks) /
                   (is_larger_block ? tiles_per_block_ + 1 : tiles_per_block_) +
               (is_larger_block ? 0 : blocks_with_one_more_));
  }
  // Does the kernel make the schedule? Otherwise the host has made it.
  KV_DEVICE bool reads_lengths() const { return Seen::kCutsTiles || args_.lengths; }
  // A single sequence needs no sums over lanes, which take 0.4 us (H200). Where tiles are not cut, the host makes the
  // schedule of most single sequences.
  KV_DEVICE bool is_alone() const { return Seen::kCutsTiles && args_.sequences == 1; }
  // The first tile that is scheduled. A sequence of which no token is seen has one tile all the same: that of its last
  // token, or tile 0 if it is empty. All of it is masked.
  KV_DEVICE int first_tile(int sequence, int length) const {
    const int first = seen_.first(sequence, length);
    return (first < length || first == 0 ? first : length - 1) / kTile;
  }
  KV_DEVICE int tiles_of(int sequence, int length) const {
    const int seen = seen_.end(sequence, length) - first_tile(sequence, length) * kTile;
    return seen <= kTile ? 1 : (seen + kTile - 1) / kTile;
  }
  KV_DEVICE int length_of(int sequence) const {
    const int stored_length = args_.lengths ? int(load_coherent_u32(args_.lengths + sequence)) : args_.tokens;
    return stored_length < 0 ? 0 : stored_length < args_.tokens ? stored_length : args_.tokens;
  }
  // The length of sequence first + lane(); 0 from sequence `end` on.
  KV_DEVICE int length_of_lane(int first, int end) const {
    return first + lane() < end ? length_of(first + lane()) : 0;
  }
  // Tiles of one head of sequence first + lane(), rounded up to a multiple of `multiple`; 0 from sequence `end` on.
  KV_DEVICE u32 tiles_of_lane(int first, int end, int length, u32 multiple) const {
    return first + lane() < end ? padded(u32(tiles_of(first + lane(), length)), multiple) : 0;
  }
  // Counts the tiles of one head of each sequence before `end`, each rounded up to a multiple of `multiple`.
  KV_DEVICE TileCount count(int end, u32 multiple) const {
    TileCount all{0, 0};
    if (is_alone()) {
      if (end > 0) all.sum = all.most = padded(u32(tiles_of(0, length_)), multiple);
      return all;
    }
    KV_NO_UNROLL
    for (int first = 0; first < end; first += 32) {
      const u32 mine = tiles_of_lane(first, end, first == 0 ? length_ : length_of_lane(first, end), multiple);
      all.sum += mine, all.most = larger_of(all.most, mine);
    }
    KV_UNROLL
    for (int mask = 16; mask > 0; mask >>= 1) {
      all.sum += shfl_xor(all.sum, mask), all.most = larger_of(all.most, shfl_xor(all.most, mask));
    }
    return all;
  }
  // What choose_schedule() asks of the sequences in memory.
  struct LengthsInMemory {
    const TileScheduler& scheduler;
    KV_DEVICE TileCount count(u32 multiple) const { return scheduler.count(scheduler.args_.sequences, multiple); }
    KV_DEVICE bool uniform(bool v) const { return warp_uniform(v); }
  };
  KV_DEVICE void make_schedule() {
    length_ = is_alone() ? length_of(0) : length_of_lane(0, args_.sequences);
    const Schedule schedule = choose_schedule(args_, LengthsInMemory{*this});
    tiles_per_block_ = schedule.tiles_per_block, blocks_with_one_more_ = schedule.blocks_with_one_more;
    multiple_ = schedule.multiple, end_ = schedule.end;
  }
  // The sequence that has tile number `tile`. Also: the number of its first tile, tiles of each of its heads, its
  // length.
  KV_DEVICE int find_sequence(u32 tile, u32& begin, u32& tiles_per_head, int& length) const {
    const u32 heads = u32(args_.kv_heads);
    begin = 0;
    if (is_alone()) {
      length = length_, tiles_per_head = padded(u32(tiles_of(0, length_)), multiple_);
      return 0;
    }
    KV_NO_UNROLL
    for (int first = 0; true; first += 32) {
      const int mine = first == 0 ? length_ : length_of_lane(first, args_.sequences);
      u32 end =
          tiles_of_lane(first, args_.sequences, mine, multiple_);  // after the scan: of all sequences up to the lane's
      KV_UNROLL
      for (int step = 1; step < 32; step <<= 1) {
        const u32 before = shfl(end, lane() - step);
        if (lane() >= step) end += before;
      }
      const int passed = count_bits(ballot(begin + end * heads <= tile));
      if (warp_uniform(passed == 32 && first + 32 < args_.sequences)) {
        begin += shfl(end, 31) * heads;
        continue;
      }
      const u32 sum = shfl(end, passed - 1), before = passed > 0 ? sum : 0;  // every lane takes part in the shuffle
      tiles_per_head = shfl(end, passed) - before;
      begin += before * heads;
      length = int(shfl(u32(mine), passed));
      return first + passed;
    }
  }

  const SchedulerArgs& args_;
  const Seen seen_;
  u32 tiles_per_block_,       // tiles of a block
      blocks_with_one_more_;  // so many blocks, the first ones, have one tile more
  u32 multiple_,              // tiles of a batch-head are padded to a multiple of this
      end_;                   // tiles of the call, with padding
  int length_;                // tokens of sequence lane(), or of the only one, as the schedule was made with them
};

// The tile scheduler of a kernel's arguments. Plans with features have their own form (kernels/decode/features.cuh).
template <class Plan, class Args>
KV_DEVICE TileScheduler<Plan::kTile> scheduler_of(const Args& args) {
  return TileScheduler<Plan::kTile>(args.scheduler);
}
// May lengths be read before `pdl_wait`? They may if lengths_changed() can tell afterwards that they changed.
template <class Plan, class Args>
KV_DEVICE bool may_read_lengths_early(const Args& args) {
  return !args.scheduler.lengths || args.scheduler.sequences <= TileScheduler<Plan::kTile>::kRemembered;
}

}  // namespace kv
