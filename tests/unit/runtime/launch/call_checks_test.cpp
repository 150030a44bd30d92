// runtime/launch/call_checks.cpp: a call must pass the arrays that the program's features read, and no others.
// SPDX-License-Identifier: MIT
#include "runtime/launch/call_checks.hpp"

#include <doctest/doctest.h>

#include <functional>

namespace kvjit {
namespace {

template <class T>
T* pointer(std::size_t address) {
  return reinterpret_cast<T*>(address);
}

struct Given {
  ProgramSource source;
  AttentionCall call;
  Given() {
    source.id = "test";
    FeatureSet& set = source.features;
    set.mask = set.mask_slopes = set.packed_mask = set.position_offset = set.sinks = set.lse = true;
    set.token_ranges = true;
    kv::FeatureArgs& args = call.features;
    args.mask = pointer<kv::u16>(64), args.packed_mask = pointer<kv::u32>(64), args.slopes = pointer<float>(64);
    args.sinks = pointer<float>(64), args.lse = pointer<float>(64), args.position_offsets = pointer<int>(64);
    args.token_ranges = pointer<int>(64);
  }
};

std::string refusal(const std::function<void(Given&)>& corrupt) {
  Given given;
  corrupt(given);
  const auto checked = check_features(given.source, given.call);
  if (checked) return "";
  CHECK(checked.error().code == Code::bad_input);
  return checked.error().message;
}

}  // namespace

TEST_CASE("features: everything that is read is there") {
  CHECK(refusal([](Given&) {}).empty());
  CHECK(refusal([](Given& g) { g.call.features.position_offsets = nullptr; }).empty());
  CHECK(refusal([](Given& g) { g.call.features.mask = nullptr; }) == "mask is a null pointer");
  CHECK(refusal([](Given& g) { g.call.features.packed_mask = nullptr; }) == "packed_mask is a null pointer");
  CHECK(refusal([](Given& g) { g.call.features.token_ranges = nullptr; }) == "token_ranges is a null pointer");
  CHECK(refusal([](Given& g) { g.call.features.slopes = nullptr; }) == "slopes is a null pointer");
  CHECK(refusal([](Given& g) { g.call.features.sinks = nullptr; }) == "sinks is a null pointer");
  CHECK(refusal([](Given& g) { g.call.features.lse = nullptr; }) == "lse is a null pointer");
  CHECK(refusal([](Given& g) { g.call.features.sinks = nullptr, g.call.leaves_sinks = true; }).empty());
  CHECK(refusal([](Given& g) { g.call.features.mask = pointer<kv::u16>(65); }) ==
        "mask is 1 bytes past a multiple of 2; it must be aligned to it");
  CHECK(refusal([](Given& g) { g.call.features.lse = pointer<float>(66); }) ==
        "lse is 2 bytes past a multiple of 4; it must be aligned to it");
}

TEST_CASE("features: what is not read is refused by name") {
  CHECK(refusal([](Given& g) { g.source.features.mask = false; }) ==
        "mask is given to program test, which does not read it: attention.features = [\"mask\"]");
  CHECK(refusal([](Given& g) { g.source.features.token_ranges = false; }) ==
        "token_ranges is given to program test, which does not read it: attention.features = [\"token_ranges\"]");
  CHECK(refusal([](Given& g) { g.source.features.mask_slopes = false; }) ==
        "slopes is given to program test, which does not read it: attention.features = [\"alibi\" or "
        "\"mask_slopes\"]");
  CHECK(refusal([](Given& g) { g.source.features.lse = false; }) ==
        "lse is given to program test, which does not read it: attention.features = [\"lse\"]");
  CHECK(refusal([](Given& g) {
          g.source.features.position_offset = false, g.call.features.position_offsets = nullptr;
          g.call.features.position_offset = 3;
        }) ==
        "position_offset 3 is given to program test, which does not read it: attention.features = "
        "[\"position_offset\"]");
  CHECK(refusal([](Given& g) {
          g.source.features.sinks = false, g.call.features.sinks = nullptr, g.call.leaves_sinks = true;
        }) == "leaves_sinks is set for program test, which has none");
}

TEST_CASE("features: numbers out of range") {
  CHECK(refusal([](Given& g) { g.call.features.position_offset = (1 << 29) + 1; }) ==
        "position_offset 536870913; -2^29 to 2^29 are possible");
  CHECK(refusal([](Given& g) { g.call.features.position_offset = -(1 << 29); }).empty());
  CHECK(refusal([](Given& g) { g.call.features.packed_tokens = -1; }) ==
        "packed_tokens -1; 0 (all tokens) or more is possible");
}

}  // namespace kvjit
