// Rendering of an Error, and the search behind "did you mean".
// SPDX-License-Identifier: MIT
#include "generator/base/result.hpp"

#include <algorithm>
#include <numeric>

#include "generator/base/display.hpp"

namespace kvjit {
namespace {

// The optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours cost 1 each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> older, old, row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    older = std::move(old);
    old = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({old[j] + 1, row[j - 1] + 1, old[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], older[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// Bytes of the longest name that is compared with others: the comparison takes the product of both lengths.
constexpr std::size_t kLongestName = 256;

}  // namespace

std::string render(const Error& error) {
  // A message may name several things, each of which it shows in full if that takes a few lines of the terminal.
  constexpr std::size_t kLongest = 8 * kShownColumns;
  const Where& where = error.where;
  std::string out;
  if (!where.file.empty()) {
    out += displayed(where.file, kLongest);
    if (where.line > 0) out += ":" + std::to_string(where.line) + ":" + std::to_string(where.column);
    out += ": ";
  }
  out += "error: " + displayed_lines(error.message, kLongest) + "\n";
  if (!where.excerpt.empty()) out += excerpt_with_caret(where.excerpt, where.column);
  for (const std::string& note : error.notes) out += "  note: " + displayed_lines(note, kLongest) + "\n";
  return out;
}

std::string closest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  if (name.size() > kLongestName) return best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t distance = edit_distance(name, candidate);
    // At most a third of the longer name may differ, and the names must have something in common.
    if (distance > (longer + 2) / 3 || distance >= longer) continue;
    if (best.empty() || distance < best_distance) best = candidate, best_distance = distance;
  }
  if (!best.empty() || name.size() < 2) return best;
  // A name without its prefix, "90a" of "sm_90a", if only one candidate has it.
  const std::string last_part = "_" + std::string(name);
  for (const std::string& candidate : candidates) {
    if (!candidate.ends_with(last_part)) continue;
    if (!best.empty()) return "";
    best = candidate;
  }
  return best;
}

}  // namespace kvjit
