// write_unpack: the text of the unpack sequence that plan_unpack has planned: each word from its terms, in the fewest
// instructions.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>

#include "generator/kernels/decode/emit.hpp"

namespace kvjit::emit {
namespace {

// A term as text: (word >> shift) & mask. shift < 0: to the left.
struct Operand {
  std::string word;
  int shift = 0;
  std::uint32_t mask = 0;
  std::string shifted() const {
    return shift == 0 ? word : shift > 0 ? fmt::format("{} >> {}", word, shift) : fmt::format("{} << {}", word, -shift);
  }
};

// The operands of a word. Two terms that take one bit field across two neighbouring words become one operand.
std::vector<Operand> operands_of(const UnpackWord& terms, int words) {
  const auto name = [&](int i) { return i < words ? fmt::format("w[{}]", i) : fmt::format("t{}", i - words); };
  std::vector<Operand> operands;
  std::vector<bool> is_taken(terms.size());
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (is_taken[i]) continue;
    const UnpackTerm& t = terms[i];
    std::size_t j = i + 1;
    while (j < terms.size() && !(terms[j].word == t.word + 1 && terms[j].shift == t.shift - 32)) ++j;
    if (j < terms.size() && t.shift > 0 && t.word + 1 < words) {
      is_taken[j] = true;
      operands.push_back(
          {fmt::format("shift_right({}, {}, {})", name(t.word), name(t.word + 1), t.shift), 0, t.mask | terms[j].mask});
    } else {
      operands.push_back({name(t.word), t.shift, t.mask});
    }
  }
  return operands;
}

// A word each bit of which comes from one operand: a permute of bytes where that saves a shift, else select_bits by
// masks. The bits that a shift fills with zeros are not used.
std::string mixed(const std::vector<Operand>& operands) {
  const auto is_whole_bytes = [](const Operand& o) {
    for (int i = 0; i < 4; ++i)
      if (const std::uint32_t byte = o.mask >> 8 * i & 0xff; byte != 0 && byte != 0xff) return false;
    return true;
  };
  const auto bytes_moved = [](const Operand& o) { return o.shift % 8 == 0 ? o.shift / 8 : 0; };
  if (operands.size() == 2 && is_whole_bytes(operands[0]) && is_whole_bytes(operands[1]) &&
      (bytes_moved(operands[0]) || bytes_moved(operands[1]))) {
    const auto source = [&](const Operand& o) { return o.shift % 8 == 0 ? o.word : o.shifted(); };
    unsigned selector = 0;
    for (int i = 0; i < 4; ++i) {
      const bool is_second = operands[1].mask >> 8 * i & 0xff;
      const int byte = std::clamp(i + bytes_moved(operands[is_second]), 0, 3);
      selector |= unsigned(byte + (is_second ? 4 : 0)) << 4 * i;
    }
    return fmt::format("permute({}, {}, {:#06x}u)", source(operands[0]), source(operands[1]), selector);
  }
  std::string text = operands.back().shifted();
  for (std::size_t i = operands.size() - 1; i-- > 0;)
    text = fmt::format("select_bits({:#010x}u, {}, {})", operands[i].mask, operands[i].shifted(), text);
  return text;
}

// The expression of a word.
std::string word_of(const UnpackWord& terms, int words) {
  const std::vector<Operand> operands = operands_of(terms, words);
  std::uint32_t all = 0;
  int bits = 0;
  for (const Operand& o : operands) all |= o.mask, bits += std::popcount(o.mask);
  if (all == 0xffffffffu && bits == 32) return mixed(operands);
  std::string sum;
  for (const Operand& o : operands)
    sum += fmt::format("{}({} & {:#010x}u)", sum.empty() ? "" : " | ", o.shifted(), o.mask);
  return sum;
}

}  // namespace

void write_unpack(Writer& w, const SectionPlan& section) {
  const LaneReads& reads = section.reads;
  w.line("  KV_DEVICE static void unpack(const u32 (&w)[{}], u32* y) {{", reads.words);
  for (std::size_t i = 0; i < reads.helpers.size(); ++i)
    w.line("    const u32 t{} = {};", i, word_of(reads.helpers[i], reads.words));
  const bool by_integers = section.integers.kind != IntegerKind::none;
  const bool flips_top = by_integers ? section.integers.flips : section.codes.twos_complement;
  const std::uint32_t top = 0x01010101u << (by_integers ? 7 : section.codes.bits - 1);  // the top bit of each code
  for (std::size_t m = 0; m < reads.unpack.size(); ++m) {
    const std::string word = word_of(reads.unpack[m], reads.words);
    w.line("    y[{}] = {}{};", m, flips_top ? "(" + word + ")" : word,
           flips_top ? fmt::format(" ^ {:#010x}u", top) : "");
  }
  w.line("  }}");
}

}  // namespace kvjit::emit
