// Writes aligned text: see report.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace kvjit {
namespace {

bool is_number(const std::string& cell) {
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  return !cell.empty() && *end == '\0';
}

}  // namespace

std::string table_text(const std::vector<std::string>& headings, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> lines;
  if (!headings.empty()) lines.push_back(headings);
  lines.insert(lines.end(), rows.begin(), rows.end());
  std::vector<std::size_t> widths;
  std::vector<bool> right;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (std::size_t i = 0; i < widths.size(); ++i)
    right.push_back(!rows.empty() && std::all_of(rows.begin(), rows.end(), [i](const auto& row) {
      return i >= row.size() || row[i].empty() || row[i] == "-" || is_number(row[i]);
    }));
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (std::size_t i = 0; i < line.size(); ++i)
      out += right[i] ? fmt::format("{:>{}}  ", line[i], widths[i]) : fmt::format("{:<{}}  ", line[i], widths[i]);
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

std::string info_text(const std::vector<std::pair<std::string, std::string>>& info) {
  std::size_t width = 0;
  for (const auto& [label, value] : info) width = std::max(width, label.size());
  std::string text;
  for (const auto& [label, value] : info) text += fmt::format("{:<{}}  {}\n", label, width, value);
  return text;
}

std::string short_number(double value) { return fmt::format("{:.3g}", value); }

std::string byte_count(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string with_replaced(const std::string& text, const std::map<char, std::string>& replacements) {
  std::string out;
  for (const char c : text) {
    const auto found = replacements.find(c);
    if (found == replacements.end())
      out += c;
    else
      out += found->second;
  }
  return out;
}

}  // namespace kvjit
