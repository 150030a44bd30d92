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
namespace {

using CodeSets = std::vector<std::vector<int>>;  // of each (run, part of a block): its codes, in the order they lie

int first_bit(const Field& plane, const std::vector<int>& codes) {
  int first = plane.bit_of(codes[0]);
  for (const int k : codes) first = std::min(first, plane.bit_of(k));
  return first;
}

// Codes by the bytes of the widest plane: interleaved runs of run_bits, one of each part after the other.
CodeSets codes_by_bytes(const Field& plane, int count, int runs, int parts, int run_bits) {
  CodeSets sets(std::size_t(runs * parts));
  std::vector<int> order(static_cast<std::size_t>(count));
  for (int k = 0; k < count; ++k) order[std::size_t(k)] = k;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return plane.bit_of(a) < plane.bit_of(b); });
  for (const int k : order) {
    const int at = plane.bit_of(k) / run_bits;
    if (at < int(sets.size())) sets[std::size_t(at)].push_back(k);
  }
  return sets;
}

// The loads of one plane, if the bits of each set lie alike and the sets lie at even distances.
bool plan_plane(const Field& plane, int at, const CodeSets& sets, int runs, int parts, PlaneRun& load) {
  const int origin = first_bit(plane, sets[0]);
  if (origin != 0) return false;
  load.at = at;
  load.part_bits = parts > 1 ? first_bit(plane, sets[1]) : 0;
  load.run_bits = runs > 1 ? first_bit(plane, sets[std::size_t(parts)]) : 0;
  int span = 0;
  for (int r = 0; r < runs; ++r)
    for (int part = 0; part < parts; ++part) {
      const auto& set = sets[std::size_t(r * parts + part)];
      const int first = first_bit(plane, set);
      if (first != r * load.run_bits + part * load.part_bits) return false;
      for (std::size_t i = 0; i < set.size(); ++i) {
        const int offset = plane.bit_of(set[i]) - first;
        if (offset != plane.bit_of(sets[0][i])) return false;
        span = std::max(span, offset + plane.bits);
      }
    }
  if (load.run_bits % 8 != 0) return false;
  if (load.part_bits % 8 != 0 && runs == 1 && plane.bytes <= 4) {
    load.is_whole = true;
    load.load_bytes = plane.bytes;
  } else {
    load.load_bytes = (span + (load.part_bits % 8 == 0 ? 0 : 7) + 7) / 8;  // a run that starts inside a byte
  }
  load.words = (load.load_bytes + 3) / 4;
  return true;
}

std::string outcome(const Format& format, int parts, int head_dim) {
  return fmt::format("the packing of {} does not split evenly over {} lanes at head_dim {}", format.name, parts,
                     head_dim);
}

}  // namespace

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

void plan_unpack(const std::vector<std::vector<CodePiece>>& pieces, RunPlan& run, int slot_bits, int lift) {
  // Codes of one residue mod 8 sit at the same place of their byte, so one shift serves them: take codes by residue, a word of slots
  // at a time, and keep each in its own slot of the source where that is still free. Widths that divide 8 fill words from one source
  // word: taken word by word, the low and high nibbles of a byte meet in one pair, which is then that byte itself.
  const int per_word = 32 / slot_bits;
  const bool by_word = slot_bits % pieces[0][0].bits == 0;
  const auto rank = [&](int code) {
    const int at = pieces[std::size_t(code)][0].at;
    return std::pair(by_word ? at / 32 : 0, at % slot_bits);
  };
  std::vector<int> codes(pieces.size());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = int(i);
  std::stable_sort(codes.begin(), codes.end(), [&](int a, int b) { return rank(a) < rank(b); });
  run.slots.assign(pieces.size(), -1);
  run.unpack.assign(pieces.size() / std::size_t(per_word), {});
  for (std::size_t m = 0; m < run.unpack.size(); ++m) {
    const std::size_t first = m * std::size_t(per_word);
    int* const slots = &run.slots[first];
    std::vector<int> homeless;
    for (int i = 0; i < per_word; ++i) {
      const int code = codes[first + std::size_t(i)], home = pieces[std::size_t(code)][0].at / slot_bits % per_word;
      if (slots[home] < 0)
        slots[home] = code;
      else
        homeless.push_back(code);
    }
    for (int j = 0; j < per_word && !homeless.empty(); ++j)
      if (slots[j] < 0) slots[j] = homeless.back(), homeless.pop_back();
    std::map<std::pair<int, int>, std::uint32_t> terms;  // (word, shift) -> mask
    for (int j = 0; j < per_word; ++j)
      for (const CodePiece& piece : pieces[std::size_t(slots[j])]) {
        const int word = piece.at / 32, to = slot_bits * j + piece.low + lift;
        const std::uint32_t mask = ((1u << piece.bits) - 1) << to;
        terms[{word, piece.at % 32 - to}] |= mask;
        if (piece.at % 32 + piece.bits > 32) terms[{word + 1, piece.at % 32 - 32 - to}] |= mask;  // straddles two words
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

namespace {

// Runs of half a word, where those of two tokens then unpack together, bytes 0 and 1 of each word for the one, 2 and 3 for the other.
void join_tokens(std::vector<std::vector<CodePiece>> pieces, RunPlan& run) {
  const std::size_t codes = pieces.size();
  if (run.planes.size() != 1 || run.planes[0].load_bytes != 2 || run.planes[0].part_bits % 8 != 0) return;
  for (std::size_t k = 0; k < codes; ++k) {
    auto& other = pieces.emplace_back(pieces[k]);
    for (CodePiece& piece : other) piece.at += 16;
  }
  RunPlan joined = run;
  plan_unpack(pieces, joined);
  std::vector<int> slots;
  for (std::size_t i = 0; i < joined.slots.size(); i += 4)
    for (std::size_t j = i; j < i + 2; ++j) {
      if (joined.slots[j + 2] != joined.slots[j] + int(codes)) return;
      slots.push_back(joined.slots[j]);
    }
  run = joined;
  run.slots = slots;
  run.is_joined = true;
}

}  // namespace

Result<RunPlan> plan_run(const SidePlan& side, int index, int head_dim, int parts, bool is_by_value,
                         const IntegerPlan& integers) {
  const Format& format = side.format;
  const Section& section = format.sections[std::size_t(index)];
  RunPlan run;
  run.parts = parts;
  // Numbers that carry no scale of their own are one long block.
  const bool is_bare = format.block == 1;
  const int dim = format.stored_dim(head_dim), block = is_bare ? dim : format.block, count = section.count(block);
  std::vector<Field> planes;
  for (const Field& field : format.fields)
    if (field.kind == FieldKind::codes && field.section == index) planes.push_back(field);
  std::stable_sort(planes.begin(), planes.end(), [](const Field& a, const Field& b) { return a.bits > b.bits; });
  if (is_bare) planes[0].bytes = count * section.bits / 8;

  const int widest = side.widest_run * 8;
  const bool is_code = section.bits <= 8;
  const int granule = !is_code ? 4 : parts == 4 ? 8 : 4;  // codes that a lane's run must be a multiple of
  // As few lanes a block as give whole groups of blocks: one scale then serves long runs.
  std::string problem;
  // The lanes of one warp share a block: eight of V, four of K.
  for (int sharing = is_by_value ? 1 : std::min(parts, 8); sharing <= parts; sharing *= 2) {
    const int blocks = parts / sharing, share = count / sharing;
    if (count % sharing != 0 || dim % (block * blocks) != 0 || share % granule != 0) continue;
    int codes = share;
    if (share * planes[0].bits % widest == 0 && widest % planes[0].bits == 0) codes = widest / planes[0].bits;
    while (is_by_value && codes > format.scale.group && codes % (2 * granule) == 0) codes /= 2;
    const int runs = share / codes;
    const CodeSets sets = codes_by_bytes(planes[0], count, runs, sharing, codes * planes[0].bits);
    if (std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return int(set.size()) != codes; })) continue;
    run.planes.assign(planes.size(), {});
    bool is_even = true;
    for (std::size_t p = 0; p < planes.size(); ++p)
      is_even = is_even && plan_plane(planes[p], side.is_planar ? planes[p].plane_at : planes[p].at, sets, runs,
                                      sharing, run.planes[p]);
    if (!is_even) continue;
    run.groups = dim / (block * blocks), run.runs = runs, run.codes = codes;
    run.blocks = blocks, run.parts_per_block = sharing;
    const int base = index == format.residual_section ? dim : 0;
    for (int g = 0; g < run.groups; ++g)
      for (int r = 0; r < runs; ++r)
        for (int part = 0; part < parts; ++part)
          for (const int k : sets[std::size_t(r * sharing + part % sharing)])
            run.elements.push_back(base + (g * blocks + part / sharing) * block + section.channel(k));
    run.words = 0;
    for (PlaneRun& plane : run.planes) plane.first_word = run.words, run.words += plane.words;
    if (!is_code) return run;
    std::vector<std::vector<CodePiece>> pieces;
    for (const int k : sets[0]) {
      auto& mine = pieces.emplace_back();
      for (std::size_t p = 0; p < planes.size(); ++p)
        mine.push_back({run.planes[p].first_word * 32 + planes[p].bit_of(k), planes[p].bits, planes[p].low});
    }
    plan_unpack(pieces, run, integers.slot_bits, integers.lift);
    if (parts > 8 && integers.slot_bits == 8) join_tokens(pieces, run);
    return run;
  }
  return fail(Code::unsupported, outcome(format, parts, head_dim));
}

}  // namespace kvjit
