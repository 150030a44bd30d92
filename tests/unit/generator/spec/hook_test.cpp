// generator/spec/hook.cpp: a hook's file becomes its name and its expression. hook_grammar_test.cpp has the
// expressions.
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
      must(parse_hook("// what\n  score * 2.f // twice\n\n + (token > 0 ? 1 : 0)\n", "specs/hooks/twice.cuh"));
  CHECK(hook.name == "twice");
  CHECK(hook.expression == "score * 2.0f + (token > 0 ? 1 : 0)");
  CHECK(must(registry().hook("log_distance", {}))->expression.starts_with("score"));
}

TEST_CASE("the name of a hook's file is checked") {
  for (const char* file : {"specs/hooks/A-b.cuh", "specs/hooks/ .cuh", "", "specs/hooks/a\nb.cuh"}) {
    CAPTURE(file);
    const auto hook = parse_hook("score", file);
    REQUIRE_FALSE(hook);
    CHECK(hook.error().message.find("lower-case") != std::string::npos);
  }
}

TEST_CASE("a hook of a caller's folder is refused under the path of its file") {
  FileSet files = embedded_files();
  files["specs/hooks/mine.cuh"] = "// mine\nscore + new int";
  const auto refused = Registry::load(files, {{"specs/hooks/mine.cuh", "my/hooks/mine.cuh"}});
  REQUIRE_FALSE(refused);
  CHECK(
      render(refused.error()).starts_with("my/hooks/mine.cuh:2:9: error: name 'new' is not known\nscore + new int\n"));
}

}  // namespace
}  // namespace kvjit
