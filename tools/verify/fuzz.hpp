// fuzz_case draws a random spec and a random call of it: any K/V formats, head sizes, features, layout, lengths and
// places of rows. The same seed names the same spec and call on every machine. Rules (fuzz_rules.hpp) state which specs
// the library must refuse, so that a wrong refusal counts as a failure. fuzz_run.hpp executes the case.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/inputs/inputs.hpp"

namespace kvjit {

struct FuzzCase {
  std::uint64_t seed = 0;
  std::string toml;  // the spec
  // Substrings of messages: the library must refuse the spec with a message that has one of them. Empty: the library
  // must accept the spec. refusals() of fuzz_rules.cpp has the list.
  std::vector<std::string> refusals;
  // Substrings of messages by which the library may refuse the spec, because that depends on the memory of the plan.
  std::vector<std::string> limits;
  CacheShape shape;
  KernelHarness::Call call;
  int variant = 0;                  // argument `variant` of random_features
  bool leaves_sinks = false;        // the call passes no sinks, though the spec has them
  bool writes_on_device = false;    // the cache comes from the quantize kernels, not from the reference codec
  float tensor_scale[2] = {1, 1};   // tensor scales of K and V
  Element new_type = Element::f16;  // type of the rows to append
  InputWish inputs;                 // numbers, and what stands in memory that no query sees

  std::vector<int> lengths() const;  // tokens of each sequence
  // Queries of each sequence; of programs with a fixed number, query_length.
  std::vector<int> query_counts(int query_length) const;
  bool expects(const std::string& refusal) const;  // whether the message has a substring of refusals or limits
  // The spec as TOML, with the call in comments, to be pasted into a file.
  std::string text() const;
};

// Draws the case of a seed. The spec names one arch of `archs`, or none if the list is empty. classes: what the case
// may have of the inputs that its seed draws; none: N(0, 1) and 0xFF, as in every spec's test.
FuzzCase fuzz_case(std::uint64_t seed, const Registry& registry, const std::vector<std::string>& archs = {},
                   InputClasses classes = {});

}  // namespace kvjit
