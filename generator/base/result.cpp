// Rendering of an Error, and the search behind "did you mean".
// SPDX-License-Identifier: MIT
#include "generator/base/result.hpp"

#include <algorithm>
#include <numeric>

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

// The line with the caret: blanks up to the column, which counts characters as the TOML parser does. Tabs stay tabs, so
// that the caret stands below its character.
std::string caret_line(const std::string& excerpt, int column) {
  std::string line;
  int at = 1;
  for (std::size_t i = 0; i < excerpt.size() && at < column; ++i) {
    if ((excerpt[i] & 0xC0) == 0x80) continue;  // a further byte of a UTF-8 character
    line += excerpt[i] == '\t' ? '\t' : ' ';
    ++at;
  }
  return line + "^";
}

}  // namespace

std::string render(const Error& error) {
  const Where& where = error.where;
  std::string out;
  if (!where.file.empty()) {
    out += where.file;
    if (where.line > 0) out += ":" + std::to_string(where.line) + ":" + std::to_string(where.column);
    out += ": ";
  }
  out += "error: " + error.message + "\n";
  if (!where.excerpt.empty()) out += where.excerpt + "\n" + caret_line(where.excerpt, where.column) + "\n";
  for (const std::string& note : error.notes) out += "  note: " + note + "\n";
  return out;
}

std::string closest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(name.size(), candidate.size());
    const std::size_t distance = edit_distance(name, candidate);
    // At most a third of the longer name may differ, and the names must have something in common.
    if (distance > (longer + 2) / 3 || distance >= longer) continue;
    if (best.empty() || distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace kvjit
