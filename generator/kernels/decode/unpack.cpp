// plan_unpack: the shifts and masks that spread the packed codes of a run to slots, and the slot that each code lands
// in.
//
// Which code lands in which slot is free, so codes that one shift puts right go together: a word of slots is a few
// shifted words, each masked. Where neighbouring codes stand closer than slots and no power of two apart, they are
// first moved to bytes of their own, a few to each, by two steps that serve all of them.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

struct CodeSource {  // of a term
  int word = 0, shift = 0;
  auto operator<=>(const CodeSource&) const = default;
};
CodeSource code_source_of(int bit, int to) { return {bit / 32, bit % 32 - to}; }

// Bits from .. from + count - 1 of the words go to bit `to` of a word; what else of `width` bits there comes with them
// is of no concern.
void add_bits(UnpackWord& word, int from, int count, int to, int width) {
  const std::uint32_t all = ((1u << (width - 1) << 1) - 1) << to;
  const CodeSource code_source = code_source_of(from, to);
  if (from % 32 + count <= 32) return word.push_back({code_source.word, code_source.shift, all});
  const std::uint32_t first = all & ((1u << (to + 32 - from % 32)) - 1);
  word.push_back({code_source.word, code_source.shift, first});
  word.push_back({code_source.word + 1, code_source.shift - 32, all & ~first});
}

// Four neighbouring fields of `bits` bits (at most 8) to the four bytes of a new word, which is returned.
int spread_to_bytes(LaneReads& reads, int from, int bits) {
  UnpackWord pairs, bytes;
  add_bits(pairs, from, 2 * bits, 0, 16);
  add_bits(pairs, from + 2 * bits, 2 * bits, 16, 16);
  reads.helpers.push_back(pairs);
  const int at = reads.words + int(reads.helpers.size());
  bytes.push_back({at - 1, 0, 0x00ff00ffu});
  bytes.push_back({at - 1, bits - 8, 0xff00ff00u});
  reads.helpers.push_back(bytes);
  return at;
}

// Three bits a code fit eight slots a word badly, whether they are a stream (two codes to a byte) or two bits and one
// (where the pairs of bits lie right, four to a byte, and the single ones follow them).
void spread_threes(CodePieces& codes, LaneReads& reads) {
  const bool is_stream = codes[0].size() == 1;
  const std::size_t piece = is_stream ? 0 : 1, per_byte = is_stream ? 2 : 4;
  const int bits = codes[0][piece].bits, field = bits * int(per_byte);
  for (std::size_t first = 0; first < codes.size(); first += 4 * per_byte) {
    const int from = codes[first][piece].at, word = spread_to_bytes(reads, from, field);
    for (std::size_t i = 0; i < 4 * per_byte; ++i)
      codes[first + i][piece].at = word * 32 + int(i / per_byte) * 8 + int(i % per_byte) * bits;
  }
}
bool are_threes(const CodePieces& codes, const CodeLanes& slots) {
  const auto& first = codes[0];
  const bool is_stream = first.size() == 1 && first[0].bits == 3,
             is_planes = first.size() == 2 && first[0].bits == 2 && first[1].bits == 1;
  const std::size_t piece = is_stream ? 0 : 1, at_once = is_stream ? 8 : 16;
  if (slots.per_word() != 8 || !(is_stream || is_planes) || codes.size() % at_once != 0) return false;
  for (std::size_t i = 0; i < codes.size(); ++i)
    if (codes[i][piece].at != first[piece].at + int(i) * first[piece].bits) return false;
  return true;
}

// Codes of bytes: those of one residue mod 8 sit at the same place of their byte, so one shift serves them. Taken by
// residue, a word at a time, and each kept in its own byte of the source where that is still free.
void fill_by_residue(const CodePieces& codes, LaneReads& reads, const CodeLanes& slots) {
  const int per_word = slots.per_word();
  const bool by_word = slots.bits % codes[0][0].bits == 0;
  const auto rank = [&](int code) {
    const int at = codes[std::size_t(code)][0].at;
    return std::pair(by_word ? at / 32 : 0, at % slots.bits);
  };
  std::vector<int> order(codes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  for (std::size_t first = 0; first < codes.size(); first += std::size_t(per_word)) {
    int* const mine = &reads.lane_order[first];
    std::vector<int> homeless;
    for (int i = 0; i < per_word; ++i) {
      const int code = order[first + std::size_t(i)], home = codes[std::size_t(code)][0].at / slots.bits % per_word;
      if (mine[home] < 0)
        mine[home] = code;
      else
        homeless.push_back(code);
    }
    for (int j = 0; j < per_word && !homeless.empty(); ++j)
      if (mine[j] < 0) mine[j] = homeless.back(), homeless.pop_back();
  }
}

// Narrower slots: the shift that puts the most codes right fills its slots, then the next. Of equal ones that to the
// left is cheaper: a multiplication, which leaves the pipe of the masks alone.
void fill_by_shift(const CodePieces& codes, LaneReads& reads, const CodeLanes& slots) {
  const int per_word = slots.per_word();
  std::vector<bool> is_placed(codes.size());
  const auto code_source = [&](std::size_t code, int slot) {
    return code_source_of(codes[code][0].at, slots.place(slot) + codes[code][0].low + slots.offset);
  };
  for (std::size_t first = 0; first < codes.size(); first += std::size_t(per_word)) {
    int* const mine = &reads.lane_order[first];
    for (int left = per_word; left > 0;) {
      std::map<CodeSource, int> counts;
      for (std::size_t code = 0; code < codes.size(); ++code)
        for (int slot = 0; slot < per_word; ++slot)
          if (!is_placed[code] && mine[slot] < 0) ++counts[code_source(code, slot)];
      const auto worth = [](const auto& entry) {
        const int shift = entry.first.shift;
        return std::tuple(entry.second, shift == 0, shift < 0, -shift * shift, -entry.first.word);
      };
      const CodeSource best = std::max_element(counts.begin(), counts.end(), [&](const auto& a, const auto& b) {
                                return worth(a) < worth(b);
                              })->first;
      for (std::size_t code = 0; code < codes.size(); ++code)
        for (int slot = 0; slot < per_word; ++slot)
          if (!is_placed[code] && mine[slot] < 0 && code_source(code, slot) == best)
            mine[slot] = int(code), is_placed[code] = true, --left;
    }
  }
}

// The terms of word m of slots.
UnpackWord terms_of(const CodePieces& codes, const LaneReads& reads, const CodeLanes& slots, int m) {
  const int per_word = slots.per_word();
  // Bits shifted in from outside the word are zero.
  const auto valid = [](const CodeSource& s) {
    return s.shift >= 0 ? 0xffffffffu >> s.shift : 0xffffffffu << -s.shift;
  };
  std::map<CodeSource, std::uint32_t> masks;
  for (int j = 0; j < per_word; ++j) {
    const auto& pieces = codes[std::size_t(reads.lane_order[std::size_t(m * per_word + j)])];
    int end = 0;  // of the code's bits in the slot
    CodeSource highest;
    for (const CodePiece& piece : pieces) {
      const int to = slots.place(j) + piece.low + slots.offset;
      const CodeSource code_source = code_source_of(piece.at, to);
      const std::uint32_t mask = ((1u << piece.bits) - 1) << to;
      masks[code_source] |= mask & valid(code_source);
      if (piece.at % 32 + piece.bits > 32) {  // straddles two words
        const CodeSource next{code_source.word + 1, code_source.shift - 32};
        masks[next] |= mask & valid(next);
      }
      if (piece.low + slots.offset + piece.bits > end)
        end = piece.low + slots.offset + piece.bits, highest = code_source;
    }
    const std::uint32_t width = (1u << slots.width(j)) - 1, code = (1u << end) - 1;
    if (!slots.is_clean) masks[highest] |= (width & ~code) << slots.place(j);
  }
  UnpackWord terms;
  for (const auto& [code_source, mask] : masks) terms.push_back({code_source.word, code_source.shift, mask});
  return terms;
}

}  // namespace

void plan_unpack(CodePieces codes, LaneReads& reads, const CodeLanes& slots) {
  const std::size_t per_word = std::size_t(slots.per_word());
  reads.helpers.clear();
  if (are_threes(codes, slots)) spread_threes(codes, reads);
  reads.lane_order.assign(codes.size(), -1);
  if (slots.bits == 8)
    fill_by_residue(codes, reads, slots);
  else
    fill_by_shift(codes, reads, slots);
  reads.unpack.clear();
  for (std::size_t m = 0; m < codes.size() / per_word; ++m)
    reads.unpack.push_back(terms_of(codes, reads, slots, int(m)));
}

}  // namespace kvjit
