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
