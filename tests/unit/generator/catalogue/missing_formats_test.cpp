// generator/catalogue/missing_formats.hpp: no type in it is served, and the page of formats names each one.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/missing_formats.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/project_files.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;

TEST_CASE("types that are not served are in the page of formats, and have no format") {
  const std::string page = test::text_of(test::project_root() / "specs/docs/formats.md");
  const std::string list = page.substr(page.find("## What is not served"), page.find("## Adding a format"));
  for (const MissingFormat& missing : kMissingFormats) {
    CAPTURE(missing.name);
    const std::string name = missing.name, word = name.substr(0, name.find(' '));
    CHECK(list.find("`" + word + "`") != std::string::npos);
    CHECK_FALSE(test::registry().format(name, {}));
    CHECK(*missing.axis);
    CHECK(*missing.source);
  }
}
