// Promises about words: the glossary of CONTRIBUTING.md is a table that can be read, and no identifier of the product
// has a word of our own where the field has one. Comments and string literals are not searched, except for words that
// must stand nowhere.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "tests/support/project_files.hpp"

namespace kvjit::test {
namespace {

struct PrivateWord {
  std::string word;                  // a part of an identifier, or several parts joined by `_`
  std::string use;                   // what to write instead
  std::set<std::string> exceptions;  // identifiers that may have it
};

const std::vector<PrivateWord> kPrivateWords = {
    {"seam", "split boundary or device layer", {}},
    {"seams", "split boundaries", {}},
    {"turn", "angle, rotation, step, buffer set or query chunk", {}},
    {"turns", "angles, rotations, steps, buffer sets or query chunks", {}},
    {"room", "space, capacity or height", {}},
    {"rooms", "spaces or capacities", {}},
    {"agreed", "equal, or what all of them have", {}},
    {"newest", "new tokens", {}},
    {"skew", "misalignment", {}},
    {"dealt", "even-odd order", {}},
    {"spoil", "overwrite or corrupt", {}},
    {"facts", "properties, or what they are", {}},
    {"lap", "wrap", {}},
    {"laps", "wraps", {}},
    // inner_q is a value of `kvjit quality --method`.
    {"inner", "rotated domain, rotated_dim, or the faster dimension", {"inner_product", "inner_q"}},
    {"trial", "candidate or measurement", {}},
    {"trials", "candidates or measurements", {}},
    {"tops", "high bits or row_max", {}},
    {"put_away", "save", {}},
    {"finishes", "fused merge", {}},
    {"nobody", "none or nothing", {}},
    {"piece", "field, range, chunk or byte copy", {"CodePiece", "CodePieces", "code_piece"}},
    {"pieces", "fields, ranges, chunks or byte copies", {"CodePieces", "code_pieces", "pieces_by_code"}},
};

// Participles that are no name of a thing: as the whole of an identifier (`known_` included) they hide what it is.
const std::set<std::string> kNotNames = {"known", "made", "given", "asked", "agreed", "kept"};

struct Identifier {
  std::string name;
  int line;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Returns the identifiers of C++ or CUDA text. Comments, numbers, character and string literals are left out.
std::vector<Identifier> identifiers_of(const std::string& text) {
  std::vector<Identifier> found;
  int line = 1;
  const auto skip_to = [&](std::size_t& at, std::size_t end) {
    for (end = std::min(end, text.size()); at < end; ++at) line += text[at] == '\n';
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (text.compare(at, 2, "//") == 0) {
      skip_to(at, text.find('\n', at));
    } else if (text.compare(at, 2, "/*") == 0) {
      const std::size_t end = text.find("*/", at + 2);
      skip_to(at, end == std::string::npos ? end : end + 2);
    } else if (text.compare(at, 2, "R\"") == 0) {
      const std::size_t open = text.find('(', at);
      const std::string close = ")" + text.substr(at + 2, open - at - 2) + "\"";
      const std::size_t end = text.find(close, open);
      skip_to(at, end == std::string::npos ? end : end + close.size());
    } else if (c == '"' || c == '\'') {
      std::size_t end = at + 1;
      while (end < text.size() && text[end] != c && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      skip_to(at, end + 1);
    } else if (is_word(c)) {
      std::size_t end = at;
      const bool is_number = std::isdigit(static_cast<unsigned char>(c));
      while (end < text.size() && (is_word(text[end]) || (is_number && text[end] == '\''))) ++end;
      if (!is_number) found.push_back({text.substr(at, end - at), line});
      at = end;
    } else {
      skip_to(at, at + 1);
    }
  }
  return found;
}

// Splits an identifier at `_` and at the humps of camel case: kMostKVRows has k, most, kv and rows.
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  const auto is_upper = [&](std::size_t i) {
    return i < name.size() && std::isupper(static_cast<unsigned char>(name[i]));
  };
  const auto is_lower = [&](std::size_t i) {
    return i < name.size() && std::islower(static_cast<unsigned char>(name[i]));
  };
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_hump = i > 0 && is_upper(i) && (!is_upper(i - 1) || is_lower(i + 1));
    if ((name[i] == '_' || is_hump) && !parts.back().empty()) parts.emplace_back();
    if (name[i] != '_') parts.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

bool has_word(const std::string& name, const std::string& word) {
  const std::vector<std::string> parts = parts_of(name), wanted = parts_of(word);
  return std::search(parts.begin(), parts.end(), wanted.begin(), wanted.end()) != parts.end();
}

// Returns why an identifier must not have this name; empty: it may.
std::string objection(const std::string& name) {
  const std::string plain = name.substr(0, name.find_last_not_of('_') + 1);
  if (kNotNames.count(plain) != 0) return fmt::format("'{}' names no thing: write the noun", name);
  for (const PrivateWord& word : kPrivateWords)
    if (word.exceptions.count(name) == 0 && has_word(name, word.word))
      return fmt::format("'{}' has the private word '{}': write {}", name, word.word, word.use);
  return "";
}

std::vector<std::string> product_files() { return project_files({"generator", "runtime", "templates", "tools"}); }

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The cells of a row of a Markdown table, which begins and ends with `|`.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = 1, end; (end = line.find('|', at)) != std::string::npos; at = end + 1)
    cells.push_back(trimmed(line.substr(at, end - at)));
  return cells;
}

// Returns what is wrong with the glossary of a document, a line for each.
std::vector<std::string> glossary_faults(const std::string& document, const std::string& file) {
  std::vector<std::string> faults;
  std::set<std::string> words;
  const std::vector<std::string> lines = lines_of(document);
  const auto heading = std::find(lines.begin(), lines.end(), "## Glossary");
  if (heading == lines.end()) return {file + ": has no section Glossary"};
  int rows = 0;
  for (auto line = heading + 1; line != lines.end() && line->rfind("## ", 0) != 0; ++line) {
    if (line->rfind("|", 0) != 0) continue;
    const auto fault = [&](const std::string& text) {
      faults.push_back(fmt::format("{}:{}: {}", file, line - lines.begin() + 1, text));
    };
    const std::vector<std::string> cells = cells_of(*line);
    if (++rows == 1 && cells != std::vector<std::string>{"word", "meaning", "used by"})
      fault("the headings must be: word, meaning, used by");
    if (rows == 2 && line->find_first_not_of("|- ") != std::string::npos) fault("must be the rule under the headings");
    if (rows <= 2) continue;
    if (cells.size() != 3) fault(fmt::format("{} cells instead of 3", cells.size()));
    for (const std::string& cell : cells)
      if (cell.empty()) fault("an empty cell");
    if (!cells.empty() && !words.insert(cells[0]).second) fault(fmt::format("'{}' stands twice", cells[0]));
  }
  if (rows - 2 < 25 || rows - 2 > 40) faults.push_back(fmt::format("{}: the glossary has {} rows", file, rows - 2));
  return faults;
}

TEST_CASE("the glossary has 25 to 40 words, each once, with a meaning and a user") {
  for (const std::string& fault : glossary_faults(text_of(project_root() / "CONTRIBUTING.md"), "CONTRIBUTING.md"))
    FAIL_CHECK(fault);

  std::string table = "## Glossary\n\n| word | meaning | used by |\n|---|---|---|\n";
  for (int i = 0; i < 30; ++i) table += fmt::format("| word {} | a meaning | kvjit |\n", i);
  CHECK(glossary_faults(table, "f").empty());
  CHECK(glossary_faults(table + "| word 3 | a meaning | kvjit |\n", "f") ==
        std::vector<std::string>{"f:35: 'word 3' stands twice"});
  CHECK(glossary_faults(table + "| a | | kvjit |\n", "f") == std::vector<std::string>{"f:35: an empty cell"});
  CHECK(glossary_faults(table + "| a | kvjit |\n", "f") == std::vector<std::string>{"f:35: 2 cells instead of 3"});
  CHECK(glossary_faults(table.substr(0, 200), "f").size() > 0);
  CHECK(glossary_faults("# Title\n", "f") == std::vector<std::string>{"f: has no section Glossary"});
}

TEST_CASE("identifiers are found and split as a reader does") {
  const auto names = [](const std::string& text) {
    std::vector<std::string> all;
    for (const Identifier& one : identifiers_of(text)) all.push_back(fmt::format("{}:{}", one.name, one.line));
    return all;
  };
  CHECK(names("int a = 1'000; // b\n/* c\n */ d(\"e \\\" f\", 'g', R\"(h\n\" i)\", 0x1Fu);") ==
        std::vector<std::string>{"int:1", "a:1", "d:3"});
  CHECK(parts_of("kRoomALabel") == std::vector<std::string>{"k", "room", "a", "label"});
  CHECK(parts_of("kMostKVRows") == std::vector<std::string>{"k", "most", "kv", "rows"});
  CHECK(parts_of("KVJIT_ROOM") == std::vector<std::string>{"kvjit", "room"});
  CHECK(parts_of("page_room_") == std::vector<std::string>{"page", "room"});
  for (const char* name : {"turn", "has_turn", "kTurnsAt", "put_away_row", "PutAway", "known", "known_", "made_",
                           "inner", "KVJIT_NEWEST", "CodePieceMap"})
    CHECK_MESSAGE(objection(name) != "", name);
  for (const char* name :
       {"return_value", "is_known", "inner_product", "CodePieces", "overlap", "put", "away", "mushroom"})
    CHECK_MESSAGE(objection(name) == "", name);
}

TEST_CASE("no identifier of the product has a private word") {
  int searched = 0;
  for (const std::string& file : product_files()) {
    const bool is_code = file.ends_with(".cpp") || file.ends_with(".hpp") || file.ends_with(".h") ||
                         file.ends_with(".cuh") || file.ends_with(".c");
    if (!is_code) continue;
    ++searched;
    for (const Identifier& one : identifiers_of(text_of(project_root() / file)))
      if (const std::string reason = objection(one.name); !reason.empty())
        FAIL_CHECK(fmt::format("{}:{}: {}", file, one.line, reason));
  }
  CHECK(searched > 250);
}

// To decode is to attend, in the language of engines; the codec quantizes and dequantizes. bulk_decode spreads codes to
// numbers within dequantize.
TEST_CASE("no file of the codec family is named decode") {
  int searched = 0;
  for (const std::string& file : project_files({"generator/kernels/codec", "templates/kernels/codec"})) {
    const std::string stem = std::filesystem::path(file).stem().string();
    ++searched;
    if (stem == "bulk_decode") continue;
    for (const std::string& part : parts_of(stem))
      if (part == "decode" || part == "decoding") FAIL_CHECK(file, ": decode is attention; write dequantize");
  }
  CHECK(searched > 20);
}

TEST_CASE("words that were given up stand nowhere") {
  // The files that hold text of older commits on purpose.
  const std::set<std::string> history = {"tests/golden/house.table", "tests/golden/vocabulary.table"};
  const std::pair<std::string, std::string> given_up[] = {
      {"quantis", "quantize, dequantize"}, {"merge_parts", "merge_contexts"}, {"mergeparts", "MergeContexts"}};
  int searched = 0;
  for (const std::string& file : all_project_files()) {
    const bool is_binary = file.ends_with(".npy") || file.ends_with(".safetensors");
    if (is_binary || history.count(file) != 0 || file == "tests/promises/vocabulary_test.cpp") continue;
    ++searched;
    int number = 0;
    for (std::string line : lines_of(text_of(project_root() / file))) {
      ++number;
      std::transform(line.begin(), line.end(), line.begin(), [](unsigned char c) { return std::tolower(c); });
      for (const auto& [word, use] : given_up)
        if (line.find(word) != std::string::npos)
          FAIL_CHECK(fmt::format("{}:{}: '{}' was given up: write {}", file, number, word, use));
    }
  }
  CHECK(searched > 500);
}

}  // namespace
}  // namespace kvjit::test
