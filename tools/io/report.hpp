// Writes tables and lines of aligned text for the terminal, formats numbers, and replaces letters.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kvjit {

// A table whose columns are as wide as their widest cell. Cells that read as numbers are aligned to the right, all
// others to the left. `headings` may be empty.
std::string table_text(const std::vector<std::string>& headings, const std::vector<std::vector<std::string>>& rows);

// Lines of "label   text", one for each fact.
std::string info_text(const std::vector<std::pair<std::string, std::string>>& info);

// Three significant digits: "0.000187", "1.87e-07", "412".
std::string short_number(double value);
std::string byte_count(double bytes);  // "512 B", "1.5 MiB"

// The text with each letter of the table written as the table says. Languages with marks need that: HTML, roff.
std::string with_replaced(const std::string& text, const std::map<char, std::string>& replacements);

}  // namespace kvjit
