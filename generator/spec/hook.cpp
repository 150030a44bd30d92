// parse_hook: checks the text of a hook's file, and joins its lines to one expression.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace kvjit {
namespace {

constexpr std::size_t kMostText = 4096;                                         // characters
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";  // of a name, as in names of kernels
constexpr std::string_view kOthers = " \t\r\n()[]+-*/%<>=!&|^~?:,._";  // of an expression, beside letters and digits

bool is_expression_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kOthers.find(c) != std::string_view::npos;
}

// Appends one line to an expression. open: the brackets that are not closed yet.
Result<void> add_line(std::string_view line, const Where& where, std::string& open, std::string& expression) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const Where here{where.file, where.line, static_cast<int>(i) + 1};
    if (!is_expression_character(c))
      return fail(Code::bad_input, "a hook is one expression; this character is of none", here,
                  {"letters, digits, brackets () [], operators, // comments", "to choose: condition ? a : b"});
    if (c == '(' || c == '[') open += c;
    if (c != ')' && c != ']') continue;
    if (open.empty() || open.back() != (c == ')' ? '(' : '['))
      return fail(Code::bad_input, fmt::format("'{}' closes nothing", c), here);
    open.pop_back();
  }
  const std::size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  if (!expression.empty()) expression += ' ';
  expression += line.substr(first, last - first + 1);
  return {};
}

}  // namespace

Result<Hook> parse_hook(std::string_view text, const std::string& file) {
  Hook hook;
  hook.name = std::filesystem::path(file).stem().string();
  if (hook.name.empty() || hook.name.find_first_not_of(kLetters) != std::string::npos)
    return fail(Code::bad_input, "the name of a hook has lower-case letters, digits and _ only", {file});
  if (text.size() > kMostText)
    return fail(Code::bad_input, fmt::format("{} characters; a hook has at most {}", text.size(), kMostText), {file});
  std::string open;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    KV_CHECK(add_line(line.substr(0, line.find("//")), {file, number, 1}, open, hook.expression));
  }
  if (!open.empty()) return fail(Code::bad_input, fmt::format("'{}' is never closed", open.back()), {file});
  if (hook.expression.empty())
    return fail(Code::bad_input, "a hook is one expression; there is none", {file},
                {"score + 0.1f * (token - position), for one"});
  return hook;
}

}  // namespace kvjit
