// plan_run: which bytes of a packed row each lane reads, and the shifts and masks that turn them into one
// code a byte.
//
// The tensor cores do not care in which order the head dimension is contracted (K) or produced (V), so every
// lane takes whole runs of bytes as they lie, whatever the packing; the order that results is data
// (RunPlan::elements) that the kernel applies to Q and to O.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "generator/plan.hpp"

namespace kvjit {

int bank_wavefronts(const std::vector<int>& addresses, int unit) {
  // A load of 16 (8) bytes a lane is served in quarter (half) warps; 32 banks of 4 bytes.
  const std::size_t lanes_at_once = unit == 16 ? 8 : unit == 8 ? 16 : 32;
  int wavefronts = 0;
  for (std::size_t first = 0; first < addresses.size(); first += lanes_at_once) {
    std::map<int, std::set<int>> words_of_bank;
    for (std::size_t i = first; i < std::min(first + lanes_at_once, addresses.size()); ++i)
      for (int at = addresses[i] / 4; at <= (addresses[i] + unit - 1) / 4; ++at) words_of_bank[at % 32].insert(at);
    std::size_t worst = 0;
    for (const auto& [bank, words] : words_of_bank) worst = std::max(worst, words.size());
    wavefronts += int(worst);
  }
  return wavefronts;
}

void plan_unpack(const std::vector<int>& positions, int bits, RunPlan& run) {
  // Codes of one residue mod 8 sit at the same place of their byte, so one shift serves them: take codes by residue, four a byte word,
  // and keep each in its own byte of the source where that byte is still free. Widths that divide 8 fill byte words from one source
  // word: taken word by word, the low and high nibbles of a byte meet in one pair, which is then that byte itself.
  const bool by_word = 8 % bits == 0;
  const auto rank = [&](int code) { return std::pair(by_word ? positions[code] / 32 : 0, positions[code] % 8); };
  std::vector<int> codes(positions.size());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = int(i);
  std::stable_sort(codes.begin(), codes.end(), [&](int a, int b) { return rank(a) < rank(b); });
  run.slots.assign(positions.size(), -1);
  run.unpack.assign(positions.size() / 4, {});
  const std::uint32_t mask = (1u << bits) - 1;
  for (std::size_t m = 0; m < run.unpack.size(); ++m) {
    int* const slots = &run.slots[4 * m];
    std::vector<int> homeless;
    for (int i = 0; i < 4; ++i) {
      const int code = codes[4 * m + i], home = positions[code] / 8 % 4;
      if (slots[home] < 0)
        slots[home] = code;
      else
        homeless.push_back(code);
    }
    for (int j = 0; j < 4 && !homeless.empty(); ++j)
      if (slots[j] < 0) slots[j] = homeless.back(), homeless.pop_back();
    std::map<std::pair<int, int>, std::uint32_t> terms;  // (word, shift) -> mask
    for (int j = 0; j < 4; ++j) {
      const int at = positions[slots[j]], word = at / 32;
      terms[{word, at % 32 - 8 * j}] |= mask << 8 * j;
      if (at % 32 + bits > 32) terms[{word + 1, at % 32 - 32 - 8 * j}] |= mask << 8 * j;  // straddles two words
    }
    for (const auto& [key, term_mask] : terms) {
      // A straddling code's parts overlap nothing: bits shifted in from outside the word are zero, and the
      // mask keeps to the code.
      std::uint32_t valid = 0xffffffffu;
      valid = key.second >= 0 ? valid >> key.second : valid << -key.second;
      run.unpack[m].push_back({key.first, key.second, term_mask & valid});
    }
  }
}

Result<RunPlan> plan_run(const Format& format, int head_dim, int parts) {
  RunPlan run;
  run.parts = parts;
  const int group = format.has_scale() ? format.block : head_dim;  // values that must not be mixed in one accumulator
  const int bits = format.codes().bits;
  if (group < 32)
    return fail(
        Code::unsupported,
        fmt::format("the decode family reads scale groups of at least 32 values; {} has {}", format.name, group), {},
        {"blocks of 32, 64, 128 or 256 values work"});
  run.groups = head_dim / group;
  const int part_bits = group / parts * bits;  // per lane and group
  constexpr int kWidest = 128;
  if (part_bits % kWidest == 0 && kWidest % bits == 0) {
    run.runs = part_bits / kWidest;
    run.part_bits = kWidest;
  } else {
    run.part_bits = part_bits;
  }
  run.codes = run.part_bits / bits;
  run.run_stride = run.part_bits * parts / 8;
  const int slack = run.part_bits % 8 == 0 ? 0 : 7;  // a run that starts inside a byte
  run.load_bytes = (run.part_bits + slack + 7) / 8;
  run.words = (run.load_bytes + 3) / 4;

  // Which values each run holds; the positions inside a run must be the same for every lane, group and run.
  std::vector<int> positions;
  for (int g = 0; g < run.groups; ++g)
    for (int r = 0; r < run.runs; ++r)
      for (int part = 0; part < parts; ++part) {
        const int first = r * run.run_stride * 8 + part * run.part_bits;
        std::vector<std::pair<int, int>> found;  // position in the run, value
        for (int i = 0; i < group; ++i) {
          const int at = (format.codes().kind == CodeKind::plain ? i * bits : format.field(FieldKind::codes)->bit_of(i)) - first;
          if (at >= 0 && at + bits <= run.part_bits) found.push_back({at, i});
        }
        std::sort(found.begin(), found.end());
        std::vector<int> here;
        for (const auto& [at, value] : found) {
          here.push_back(at);
          run.elements.push_back(g * group + value);
        }
        if (positions.empty()) positions = here;
        if (here != positions || int(here.size()) != run.codes)
          return fail(Code::unsupported,
                      fmt::format("the packing of {} does not split evenly over {} lanes at head_dim {}", format.name,
                                  parts, head_dim));
      }
  if (format.codes().kind == CodeKind::plain) return run;
  if (run.codes % (parts == 4 ? 8 : 4) != 0)
    return fail(Code::unsupported, fmt::format("{} codes a lane of {} cannot be paired", run.codes, format.name));
  plan_unpack(positions, bits, run);
  return run;
}

}  // namespace kvjit
