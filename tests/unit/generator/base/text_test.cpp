// generator/base/text.hpp: an immutable text whose copies share their bytes.
// SPDX-License-Identifier: MIT
#include "generator/base/text.hpp"

#include <doctest/doctest.h>

#include "generator/source.hpp"

using namespace kvjit;

TEST_CASE("copies of a text are one; an equal text is equal, and no copy") {
  const Text text = std::string("kernel"), copy = text, equal = std::string("kernel"), other = "kernel2", none;
  CHECK(copy.is_copy_of(text));
  CHECK(copy == text);
  CHECK(&copy.str() == &text.str());
  CHECK_FALSE(equal.is_copy_of(text));
  CHECK(equal == text);
  CHECK_FALSE(other == text);
  CHECK_FALSE(none == text);
  CHECK(none == Text(std::string()));
  CHECK(none.size() == 0);
}

TEST_CASE("a source's copies share its text") {
  Source source;
  source.text = "kernel";
  const Source copy = source;
  CHECK(copy.text.is_copy_of(source.text));
  source.text = source.text.str() + " changed";
  CHECK(copy.text.str() == "kernel");
}
