// tools/verify/inputs.cpp and unseen.cpp: what seeds draw, that numbers are from a format's whole range and finite, and
// what no query sees.
// SPDX-License-Identifier: MIT
#include "tools/verify/inputs/inputs.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "generator/formats/reference_codec.hpp"
#include "tests/support/registry.hpp"
#include "tools/verify/fuzz.hpp"
#include "tools/verify/inputs/unseen.hpp"

namespace kvjit::test {
namespace {

constexpr int kDim = 128;

InputWish wish_of(int side, Numbers numbers, double place) {
  InputWish wish;
  wish.classes = InputClasses::all();
  wish.numbers[side] = numbers, wish.place[side] = place;
  return wish;
}

double largest_of(std::span<const float> x) {
  double largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

TEST_CASE("seeds draw every class, distribution and kind of unseen memory") {
  std::set<InputClass> classes, left;
  std::set<Numbers> numbers[2];
  std::set<Unseen> unseen;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const InputWish wish = fuzz_case(seed, registry(), {}, InputClasses::all()).inputs;
    for (const InputClass one : InputClasses::all().list()) (wish.classes.has(one) ? classes : left).insert(one);
    for (const int side : {0, 1}) numbers[side].insert(wish.numbers[side]);
    unseen.insert(wish.unseen);
    CHECK(fuzz_case(seed, registry()).inputs.classes.empty());
  }
  CHECK(classes.size() == kInputClasses);
  CHECK(left.size() == 4);
  for (const auto& side : numbers) CHECK(side.size() == 7);
  CHECK(unseen.size() == 4);
}

TEST_CASE("names of classes lead to them, and a wish keeps only its classes") {
  for (const InputClass one : InputClasses::all().list())
    CHECK(classes_of({to_string(one), "ordinary"}) == InputClasses{one});
  const InputWish only = wish_of(1, Numbers::wide, 1).only({InputClass::keys});
  CHECK(only.numbers[1] == Numbers::ordinary);
  CHECK(only.classes == InputClasses{InputClass::keys});
}

TEST_CASE("wide rows reach the end of their format, and every format stores them as finite numbers") {
  const InputBounds bounds{Element::f32, Element::f32, Element::f32, false};
  const auto size_of = [&](const char* name, double place) {
    const Format format = must(registry().format_for(name, kDim, {}));
    const InputWish wish = wish_of(1, Numbers::wide, place);
    return largest_of(draw_rows(wish, 1, format, kDim, 50, 3, exponent_of(wish, 1, format, kDim, bounds), bounds));
  };
  for (const char* name : {"bf16", "f32", "vllm_int8_per_token_head"})
    CHECK_MESSAGE(size_of(name, 1) > 1e29, std::string(name));
  for (const char* name : {"bf16", "f32"}) CHECK_MESSAGE(size_of(name, 0) < 1e-25, std::string(name));
  CHECK(size_of("f16", 1) > 2e4);
  CHECK(size_of("f16", 1) <= 65504);
  for (const auto& [name, any] : registry().formats()) {
    if (any.has_segments()) continue;
    const auto format = registry().format_for(name, kDim, {});
    if (!format || !check_head_dim(*format, kDim, {})) continue;
    for (const Numbers numbers : {Numbers::wide, Numbers::tiny, Numbers::outliers, Numbers::offset, Numbers::ties})
      for (const double place : {0., 1.}) {
        const InputWish wish = wish_of(1, numbers, place);
        const int exponent = exponent_of(wish, 1, *format, kDim, bounds);
        const auto x = draw_rows(wish, 1, *format, kDim, 2, 5, exponent, bounds);
        const RowScales scales{format->has_tensor_scale() ? std::ldexp(1.f, exponent) : 1.f, {}, 2};
        for (const double v : decode_rows(*format, encode_rows(*format, x, kDim, scales), kDim, scales))
          if (!std::isfinite(v)) FAIL_CHECK(name, " ", to_string(numbers), " ", place);
      }
  }
}

TEST_CASE("queries compensate keys, rows differ, and a bad row is not judged") {
  std::vector<bool> unjudged;
  InputWish wish = wish_of(0, Numbers::wide, 1);
  wish.classes = {InputClass::keys};
  CHECK(largest_of(draw_queries(wish, kDim, 20, 1, 60, Element::f32, unjudged)) < 1e-15);
  CHECK(std::count(unjudged.begin(), unjudged.end(), true) == 0);
  wish.classes = {InputClass::uneven_rows, InputClass::bad_rows};
  wish.row_factor = 1e4, wish.bad = std::numeric_limits<float>::infinity();
  for (const Element type : {Element::f16, Element::f32}) {
    const auto q = draw_queries(wish, kDim, 20, 1, 0, type, unjudged);
    CHECK(std::count(unjudged.begin(), unjudged.end(), true) == 1);
    std::vector<double> sizes;
    for (std::size_t row = 0; row < unjudged.size(); ++row) {
      const double size = largest_of(std::span(q).subspan(row * kDim, kDim));
      CHECK(std::isfinite(size) != unjudged[row]);
      if (!unjudged[row]) sizes.push_back(size);
    }
    CHECK(*std::max_element(sizes.begin(), sizes.end()) > 500 * *std::min_element(sizes.begin(), sizes.end()));
  }
}

TEST_CASE("unseen rows decode to NaN or infinities where the format has them") {
  for (const char* name : {"f16", "bf16", "f32", "fp8_e4m3", "q8_0", "q4_0", "kv4", "mxfp4", "tbq4_0"}) {
    const Format format = must(registry().format_for(name, kDim, {}));
    for (const Unseen unseen : {Unseen::nan, Unseen::infinite})
      for (const double v : decode_row(format, unseen_row(format, kDim, unseen), kDim, false))
        if (std::isfinite(v)) FAIL_CHECK(name, " ", to_string(unseen), ": ", v);
  }
}

// A window of 2 tokens over 10, two queries: tokens 0 to 5 are hidden, and token 6 is seen by the first query alone.
TEST_CASE("tokens that no query sees are found, and those that few see") {
  const auto specs = must(
      parse_specs("[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n[attention]\nq_heads_per_kv = 2\nquery_length = 2\n"
                  "window = [2, 0]\n",
                  "spec"));
  const Problem problem = must(resolve(specs.at(0), registry(), "sm_90a"));
  const CacheShape shape{2, 1, 12};
  const FeatureInputs none;
  const UnseenTokens unseen = unseen_tokens(problem, shape, {10, 0}, {2, 2}, false, none);
  for (int t = 0; t < 12; ++t) {
    CHECK(unseen.hidden[std::size_t(t)] == (t < 6 || t >= 10));
    CHECK(unseen.outside[std::size_t(t)] == (t < 6 || t >= 10));
    CHECK(unseen.hidden[std::size_t(12 + t)]);
  }
  REQUIRE(unseen.partly.size() == 1);
  CHECK(unseen.partly[0].token == 6);
  CHECK(unseen.sees_part == std::vector<bool>{true, false, true, false, false, false, false, false});
  const RowFlags unmapped = unmapped_rows(shape, {10, 0}, unseen);
  for (int t = 0; t < 12; ++t) CHECK(unmapped[std::size_t(t)] == (t >= 10));
}

}  // namespace
}  // namespace kvjit::test
