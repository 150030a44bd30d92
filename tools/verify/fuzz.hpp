// Random specs and calls of them: any pair of formats, head sizes, features, layout, lengths. A seed names one for
// good.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

struct FuzzCase {
  std::uint64_t seed = 0;
  std::string toml;  // the spec
  // What the library may say of it when it refuses it, as it must; empty: it must take it. tools/verify/fuzz.cpp has
  // the list.
  std::vector<std::string> refusals;
  // What it may say as well, where how much a plan needs decides.
  std::vector<std::string> limits;
  CacheShape shape;
  Trial::Call call;
  int variant = 0;  // of random_features
  bool leaves_sinks = false;
  bool writes_on_device = false;  // the cache comes from the quantize kernels, not from the reference codec
  float tensor_scale[2] = {1, 1};
  Element new_type = Element::f16;  // of tokens to append

  std::vector<int> lengths() const;                // of each sequence
  bool expects(const std::string& refusal) const;  // of refusals or limits
  // The spec, and the call as comments, ready to paste.
  std::string text() const;
};

// archs: of which the spec names one; empty: it names none.
FuzzCase fuzz_case(std::uint64_t seed, const Registry& registry, const std::vector<std::string>& archs = {});

}  // namespace kvjit
