// Every arch of specs/archs is named where users look for it, and the compile matrix compiles kernels for it.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "generator/catalogue/registry.hpp"
#include "tests/support/project_files.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("README, the spec page and the compile matrix name every arch") {
  const Registry registry = Registry::load(embedded_files()).value();
  const std::string readme = text_of(project_root() / "README.md");
  const std::string page = text_of(project_root() / "specs/docs/spec.md");
  const std::string matrix = text_of(project_root() / "tests/compile/matrix_test.cpp");
  for (const auto& [name, arch] : registry.archs()) {
    CAPTURE(name);
    CHECK(readme.find("`" + name + "`") != std::string::npos);
    CHECK(page.find("`" + name + "`") != std::string::npos);
    CHECK(matrix.find("\"" + name + "\"") != std::string::npos);
  }
}

}  // namespace
}  // namespace kvjit::test
