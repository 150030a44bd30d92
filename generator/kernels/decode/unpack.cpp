// plan_unpack: the shifts and masks that spread the packed codes of a lane read to code lanes, and the slot (the number
// of a code lane in its word) that each code gets.
//
// A code may get any slot, so codes that need the same shift are taken together: a word of code lanes is the bitwise or
// of a few shifted and masked words. Codes of three bits do not fit code lanes of a power of two; they are first moved
// to bytes, two or four codes to a byte, by two steps for every four bytes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

// The loaded word that a term takes, and its shift (UnpackTerm).
struct CodeSource {
  int word = 0, shift = 0;
  auto operator<=>(const CodeSource&) const = default;
};
// The source that brings bit `bit` of the loaded words to bit `to` of a word.
CodeSource code_source_of(int bit, int to) { return {bit / 32, bit % 32 - to}; }

// Adds the terms that bring bits from .. from + count - 1 of the loaded words to bit `to` of a word. The masks keep
// `width` bits there; those above `count` may have any value.
void add_bits(UnpackWord& word, int from, int count, int to, int width) {
  const std::uint32_t all = ((1u << (width - 1) << 1) - 1) << to;
  const CodeSource code_source = code_source_of(from, to);
  if (from % 32 + count <= 32) return word.push_back({code_source.word, code_source.shift, all});
  const std::uint32_t first = all & ((1u << (to + 32 - from % 32)) - 1);
  word.push_back({code_source.word, code_source.shift, first});
  word.push_back({code_source.word + 1, code_source.shift - 32, all & ~first});
}

// Adds helper words that bring four neighbouring fields of `bits` bits (at most 8) to the four bytes of a word. Returns
// the number of that word.
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

// Moves codes of three bits to bytes, if eight code lanes make a word. A stream of three-bit codes gets two codes to a
// byte. If codes are in two fields, of two bits and of one bit, only the single bits move, four to a byte.
void spread_threes(CodePieces& codes, LaneReads& reads) {
  const bool is_stream = codes[0].size() == 1;
  const std::size_t index = is_stream ? 0 : 1, per_byte = is_stream ? 2 : 4;
  const int bits = codes[0][index].bits, field = bits * int(per_byte);
  for (std::size_t first = 0; first < codes.size(); first += 4 * per_byte) {
    const int from = codes[first][index].at, word = spread_to_bytes(reads, from, field);
    for (std::size_t i = 0; i < 4 * per_byte; ++i)
      codes[first + i][index].at = word * 32 + int(i / per_byte) * 8 + int(i % per_byte) * bits;
  }
}
// Whether spread_threes serves these codes.
bool are_threes(const CodePieces& codes, const CodeLanes& slots) {
  const auto& first = codes[0];
  const bool is_stream = first.size() == 1 && first[0].bits == 3,
             is_planes = first.size() == 2 && first[0].bits == 2 && first[1].bits == 1;
  const std::size_t index = is_stream ? 0 : 1, at_once = is_stream ? 8 : 16;
  if (slots.per_word() != 8 || !(is_stream || is_planes) || codes.size() % at_once != 0) return false;
  for (std::size_t i = 0; i < codes.size(); ++i)
    if (codes[i][index].at != first[index].at + int(i) * first[index].bits) return false;
  return true;
}

// Assigns code lanes of a byte. Codes with the same place inside a byte (bit number modulo 8) need the same shift, so
// codes are taken by that place, a word at a time. Each gets the byte that it has in its source, if that is free.
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
    int* const word_slots = &reads.lane_order[first];
    std::vector<int> unplaced;
    for (int i = 0; i < per_word; ++i) {
      const int code = order[first + std::size_t(i)], home = codes[std::size_t(code)][0].at / slots.bits % per_word;
      if (word_slots[home] < 0)
        word_slots[home] = code;
      else
        unplaced.push_back(code);
    }
    for (int j = 0; j < per_word && !unplaced.empty(); ++j)
      if (word_slots[j] < 0) word_slots[j] = unplaced.back(), unplaced.pop_back();
  }
}

// Assigns narrower code lanes. Of all sources, the one that serves the most free slots goes first, then the next. Among
// equals no shift is best, then a shift to the left: that is a multiplication, which uses another pipe than masks do.
void fill_by_shift(const CodePieces& codes, LaneReads& reads, const CodeLanes& slots) {
  const int per_word = slots.per_word();
  std::vector<bool> is_placed(codes.size());
  const auto code_source = [&](std::size_t code, int slot) {
    return code_source_of(codes[code][0].at, slots.place(slot) + codes[code][0].low + slots.offset);
  };
  for (std::size_t first = 0; first < codes.size(); first += std::size_t(per_word)) {
    int* const word_slots = &reads.lane_order[first];
    for (int left = per_word; left > 0;) {
      std::map<CodeSource, int> counts;
      for (std::size_t code = 0; code < codes.size(); ++code)
        for (int slot = 0; slot < per_word; ++slot)
          if (!is_placed[code] && word_slots[slot] < 0) ++counts[code_source(code, slot)];
      const auto worth = [](const auto& entry) {
        const int shift = entry.first.shift;
        return std::tuple(entry.second, shift == 0, shift < 0, -shift * shift, -entry.first.word);
      };
      const CodeSource best = std::max_element(counts.begin(), counts.end(), [&](const auto& a, const auto& b) {
                                return worth(a) < worth(b);
                              })->first;
      for (std::size_t code = 0; code < codes.size(); ++code)
        for (int slot = 0; slot < per_word; ++slot)
          if (!is_placed[code] && word_slots[slot] < 0 && code_source(code, slot) == best)
            word_slots[slot] = int(code), is_placed[code] = true, --left;
    }
  }
}

// The terms of word m of code lanes.
UnpackWord terms_of(const CodePieces& codes, const LaneReads& reads, const CodeLanes& slots, int m) {
  const int per_word = slots.per_word();
  // Bits shifted in from outside the word are zero.
  const auto valid = [](const CodeSource& s) {
    return s.shift >= 0 ? 0xffffffffu >> s.shift : 0xffffffffu << -s.shift;
  };
  std::map<CodeSource, std::uint32_t> masks;
  for (int j = 0; j < per_word; ++j) {
    const auto& code_pieces = codes[std::size_t(reads.lane_order[std::size_t(m * per_word + j)])];
    int end = 0;  // where the code's bits end in the code lane
    CodeSource highest;
    for (const CodePiece& code_piece : code_pieces) {
      const int to = slots.place(j) + code_piece.low + slots.offset;
      const CodeSource code_source = code_source_of(code_piece.at, to);
      const std::uint32_t mask = ((1u << code_piece.bits) - 1) << to;
      masks[code_source] |= mask & valid(code_source);
      if (code_piece.at % 32 + code_piece.bits > 32) {  // straddles two words
        const CodeSource next{code_source.word + 1, code_source.shift - 32};
        masks[next] |= mask & valid(next);
      }
      if (code_piece.low + slots.offset + code_piece.bits > end)
        end = code_piece.low + slots.offset + code_piece.bits, highest = code_source;
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
