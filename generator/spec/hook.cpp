// parse_hook: checks the name and the size of a hook's file, and has its text parsed and printed.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "generator/spec/hook_grammar.hpp"

namespace kvjit {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";  // of a name, as in names of kernels

}  // namespace

bool Hook::reads(std::string_view word) const {
  for (std::size_t at = expression.find(word); at != std::string::npos; at = expression.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const auto is_letter = [&](std::size_t i) {
      return i < expression.size() && kLetters.find(expression[i]) != std::string_view::npos;
    };
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(end)) return true;
  }
  return false;
}

Result<Hook> parse_hook(std::string_view text, const std::string& file) {
  const std::string name = std::filesystem::path(file).stem().string();
  if (name.empty() || name.find_first_not_of(kLetters) != std::string::npos)
    return fail(Code::bad_input, "the name of a hook has lower-case letters, digits and _ only", {file});
  if (text.size() > kMostHookText) {
    Where where = HookText{text.substr(0, kMostHookText), file}.where(kMostHookText);
    where.excerpt.clear();
    return fail(Code::bad_input, fmt::format("{} characters; a hook has at most {}", text.size(), kMostHookText),
                where);
  }
  KV_TRY(expression, hook_expression({text, file}));
  return Hook{name, expression};
}

}  // namespace kvjit
