// Who does what in a decode call. The tiles of all (sequence, KV head) pairs form one line, sequence after sequence and
// head after head, and the line is cut into `blocks` pieces of equal length, so a block's share is even whatever the
// lengths are. Where a cut falls inside a pair, the pair has several parts, each with a partial result of its own.
//
//   line     | s0 h0        | s0 h1        | s1 h0 | s1 h1 |        lengths 14, 14, 7, 7 tiles
//   blocks   |      0    |     1     |     2     |    3    |        four of 10 or 11
//   parts    |0,0        |0,0|0,1    |0,1|1,0    |.. 1,1   |
//
// A block with parts of two pairs has a seam: a second prologue and epilogue, which cost as much time as many tiles. So
// each pair begins with a block of its own, padded to a multiple of the blocks' share, where the longest share is no
// worse for it than by a seam:
//
//   line     | s0 h0            | s0 h1            | s1 h0   | s1 h1   |        6 blocks of 9: the last of s0 h0 has 5
//   blocks   |    0    |    1   |    2    |    3   |    4    |    5    |
//
// Likewise blocks take whole pairs, all padded to the longest, where there are more pairs than blocks.
//
// A pair without tokens has one tile, which is masked: its output is zeros, and somebody must write them.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "device/simt.cuh"

namespace kv {

// A block's part of one pair: tiles [first, last) of the pair.
struct Part {
  int sequence, head, length;  // length: tokens of the sequence
  int first, last;
  int first_block, parts;  // of the pair: the block of its first part, and how many there are
  u32 line_end;            // where the part ends on the line, with the padding behind it
  KV_DEVICE bool is_whole() const { return parts == 1; }
};

// Which tokens of a sequence have tiles: all of them, or (features/token_range.cuh) those that its queries see.
struct AllTokens {
  static constexpr bool kCutsTiles = false;
  KV_DEVICE int first(int, int) const { return 0; }
  KV_DEVICE int end(int, int length) const { return length; }
};

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

  // To be called first: what the host does not know is found out by the lengths that are in memory now.
  KV_DEVICE void look() {
    if (counts()) share_out();
  }
  // Are they other ones by now? Of up to kRemembered sequences.
  static constexpr int kRemembered = 32;
  KV_DEVICE bool has_changed() const {
    return args_.lengths && args_.sequences <= kRemembered && any(length_of_lane(0, args_.sequences) != length_);
  }

  // Where a block's piece of the line begins; the next one's begin is its end.
  KV_DEVICE u32 begin(int block) const {
    const u32 at = u32(block) * share_ + (u32(block) < longer_ ? u32(block) : longer_);
    return at < end_ ? at : end_;
  }
  // The place of a block's partial result of a pair. Along the line, from part to part, the block or the pair or both
  // go one up.
  KV_DEVICE i64 slot(int block, int sequence, int head) const {
    return i64(block) + i64(sequence) * args_.kv_heads + head;
  }

  // A whole pair.
  KV_DEVICE Part pair(int sequence, int head) const {
    const int length = length_of(sequence);
    const u32 room = counts() ? rounded(u32(tiles_of(sequence, length)), unit_) : args_.room,
              before = counts() ? count(sequence, unit_).sum : u32(sequence) * room,
              begin = before * u32(args_.kv_heads) + u32(head) * room;
    return cut(sequence, head, length, begin, room, begin, begin + room);
  }
  // The pair whose tiles include `tile`, cut to [tile, end).
  KV_DEVICE Part part_at(u32 tile, u32 end) const {
    int sequence = 0, length = args_.tokens;
    u32 begin = 0, room = args_.room;  // where the sequence's pairs begin, and what each takes
    if (counts()) {
      sequence = find_sequence(tile, begin, room, length);
    } else if (args_.sequences > 1) {
      sequence = int(tile / (room * u32(args_.kv_heads)));
      begin = u32(sequence) * room * u32(args_.kv_heads);
    }
    const u32 head = (tile - begin) / room;
    return cut(sequence, int(head), length, begin + head * room, room, tile, end);
  }

  // The part behind it on a block's piece of the line: of the pair that begins there.
  KV_DEVICE Part next(const Part& part, u32 end) const {
    const bool is_last = part.head + 1 == args_.kv_heads;
    const int sequence = part.sequence + (is_last ? 1 : 0), length = is_last ? length_of(sequence) : part.length;
    const u32 begin = part.line_end, room = counts() ? rounded(u32(tiles_of(sequence, length)), unit_) : args_.room;
    return cut(sequence, is_last ? 0 : part.head + 1, length, begin, room, begin, end);
  }

  // While tiles are taken registers are for sums: what is known of the line, and the part, wait in shared memory. One
  // thread puts them there; to be fetched behind a barrier of the block, and before the one ahead of the next part.
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
  // The part on the line's [tile, end) of a pair that has [begin, begin + room).
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
  // The block that has a tile of the line.
  KV_DEVICE int block_of(u32 tile) const {
    const u32 in_longer = longer_ * (share_ + 1);
    const bool is_longer = tile < in_longer;  // one division, whichever it is
    return int((is_longer ? tile : tile - in_longer) / (is_longer ? share_ + 1 : share_) + (is_longer ? 0 : longer_));
  }
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
    const int given = args_.lengths ? int(load_coherent_u32(args_.lengths + sequence)) : args_.tokens;
    return given < 0 ? 0 : given < args_.tokens ? given : args_.tokens;
  }
  // Of sequence first + lane(); 0 from `end` on.
  KV_DEVICE int length_of_lane(int first, int end) const {
    return first + lane() < end ? length_of(first + lane()) : 0;
  }
  KV_DEVICE static u32 rounded(u32 tiles, u32 unit) { return unit == 1 ? tiles : (tiles + unit - 1) / unit * unit; }

  // Tiles of a head of that sequence, as a multiple of `unit`; 0 from `end` on.
  KV_DEVICE u32 tiles_of_lane(int first, int end, int length, u32 unit) const {
    return first + lane() < end ? rounded(u32(tiles_of(first + lane(), length)), unit) : 0;
  }
  KV_DEVICE static u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
  struct Count {
    u32 sum, most;
  };
  // Of a head of the sequences before `end`.
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
  // The shares of blocks. Without seams: whole pairs, where there are more than blocks; else the smallest share, to a
  // sixteenth, by which all pairs find blocks, or the one by which they have no more parts than are merged at once, if
  // that is no worse than another round.
  KV_DEVICE void share_out() {
    const u32 heads = u32(args_.kv_heads), blocks = u32(args_.blocks);
    length_ = length_of_lane(0, args_.sequences);
    u32 least = 1, unit = 1, end = 0;
    KV_NO_UNROLL
    for (u32 trial = 1; true;) {
      const Count all = count(args_.sequences, trial);
      const u32 line = all.sum * heads;
      if (agreed(end == 0)) {  // of single tiles
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
  // By how much the longest share may be above the even one, without seams: the memory is as busy without a sixteenth
  // of the blocks.
  KV_DEVICE u32 slack() const { return larger_of(args_.seam, share_ / 16); }
  // The sequence whose heads' tiles include `tile`, its length, where they begin, and how many of the line each head
  // has.
  KV_DEVICE int find_sequence(u32 tile, u32& begin, u32& room, int& length) const {
    const u32 heads = u32(args_.kv_heads);
    begin = 0;
    KV_NO_UNROLL
    for (int first = 0; true; first += 32) {
      const int mine = first == 0 ? length_ : length_of_lane(first, args_.sequences);
      u32 end = tiles_of_lane(first, args_.sequences, mine, unit_);  // then of all sequences up to the lane's
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
      const u32 sum = shfl(end, passed - 1), before = passed > 0 ? sum : 0;  // every lane takes part
      room = shfl(end, passed) - before;
      begin += before * heads;
      length = int(shfl(u32(mine), passed));
      return first + passed;
    }
  }

  const WorkArgs& args_;
  const Seen seen_;
  u32 share_, longer_;  // tiles of a block; of how many blocks one more
  u32 unit_, end_;      // of the line: what pairs take multiples of
  int length_;          // of the lane's sequence, when it was looked at
};

// Of a kernel's arguments, unless features have a say in it (kernels/decode/features.cuh); and whether it may be looked
// at while the launch ahead still runs, since has_changed() tells.
template <class Plan, class Args>
KV_DEVICE Work<Plan::kTile> work_of(const Args& args) {
  return Work<Plan::kTile>(args.work);
}
template <class Plan, class Args>
KV_DEVICE bool may_look_early(const Args& args) {
  return !args.work.lengths || args.work.sequences <= Work<Plan::kTile>::kRemembered;
}

}  // namespace kv
