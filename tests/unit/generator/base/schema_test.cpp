// generator/base/schema.cpp: TOML with letters beyond ASCII, for which the TOML library has undefined behaviour.
// SPDX-License-Identifier: MIT
#include "generator/base/schema.hpp"

#include <doctest/doctest.h>

namespace kvjit {
namespace {

TEST_CASE("letters beyond ASCII stand in strings, behind a line that goes on, and in comments; not in bare keys") {
  // U+00A7, U+03C0 and U+2192 are three of the letters for which toml++ 3.3 reaches its undefined "unreachable".
  for (const std::string letter : {"\xc2\xa7", "\xcf\x80", "\xe2\x86\x92"}) {
    CAPTURE(letter);
    const auto root =
        schema::parse("s = \"\"\"\\\n  " + letter + " x\"\"\"\n\"" + letter + "\" = 1 # " + letter, "f.toml");
    REQUIRE(root);
    REQUIRE(root->items.size() == 2);
    CHECK(root->items[0].text == letter + " x");
    CHECK(root->items[1].key == letter);
    for (const std::string& text : {letter + " \"", letter + " = 1", "a" + letter + " = 1", "a = 1 " + letter}) {
      const auto refused = schema::parse(text, "f.toml");
      REQUIRE_FALSE(refused);
      CHECK(refused.error().where.line == 1);
      CHECK_FALSE(refused.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace kvjit
