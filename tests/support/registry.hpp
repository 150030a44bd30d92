// What almost every test begins with: the value of a Result or a failed test, and the registry of everything in specs/.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <utility>

#include "generator/registry.hpp"
#include "generator/result.hpp"

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

}  // namespace kvjit::test
