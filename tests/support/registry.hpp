// Helpers that almost every test needs: must() takes the value of a Result or fails the test; registry() holds
// everything in specs/.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"

namespace kvjit::test {

template <class T>
T must(Result<T> result) {
  if (!result) FAIL(render(result.error()));
  return std::move(*result);
}
inline void must(const Result<void>& result) {
  if (!result) FAIL(render(result.error()));
}

inline const Registry& registry() {
  static const Registry loaded = must(Registry::load(embedded_files()));
  return loaded;
}

// Returns the registry with one substring of a fragment replaced. Mutation tests break a kernel with it and expect that
// the test notices.
inline Registry changed_registry(const std::string& file, const std::string& from, const std::string& to) {
  FileSet files = embedded_files();
  std::string& text = files.at("templates/" + file);
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, file, " no longer has: ", from);
  text.replace(at, from.size(), to);
  return must(Registry::load(files));
}

}  // namespace kvjit::test
