// generator/spec/hook.cpp: the text of a hook file becomes one expression; other texts are refused.
// SPDX-License-Identifier: MIT
#include "generator/spec/hook.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::must;
using test::registry;

TEST_CASE("a hook is its expression without comments, on one line") {
  const Hook hook =
      must(parse_hook("// what\n  score * 2.f // twice\n\n + float(token ? 1 : 0)\n", "specs/hooks/twice.cuh"));
  CHECK(hook.name == "twice");
  CHECK(hook.expression == "score * 2.f + float(token ? 1 : 0)");
  CHECK(must(registry().hook("log_distance", {}))->expression.starts_with("score"));
}

TEST_CASE("what is no expression is refused, with its place") {
  const auto refused = [](const std::string& text, const std::string& file = "specs/hooks/h.cuh") {
    const auto hook = parse_hook(text, file);
    REQUIRE_FALSE(hook);
    return fmt::format("{}:{} {}", hook.error().where.line, hook.error().where.column, hook.error().message);
  };
  CHECK(refused("score\n + 1; return 2") == "2:5 a hook is one expression; this character is of none");
  CHECK(refused("#include <x>").starts_with("1:1"));
  CHECK(refused("score /* \\ */").starts_with("1:10"));
  CHECK(refused("score)") == "1:6 ')' closes nothing");
  CHECK(refused("(score]").starts_with("1:7"));
  CHECK(refused("f(score").find("'(' is never closed") != std::string::npos);
  CHECK(refused("// nothing\n").find("there is none") != std::string::npos);
  CHECK(refused(std::string(5000, ' ')).find("at most 4096") != std::string::npos);
  CHECK(refused("score", "specs/hooks/A-b.cuh").find("lower-case") != std::string::npos);
}

}  // namespace
}  // namespace kvjit
