// generator/spec/features.cpp: names, ids, the number of tokens that a call with a window sees, ggml's ALiBi slopes,
// and the cost of each feature.
// SPDX-License-Identifier: MIT
#include "generator/spec/features.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace kvjit {
namespace {

FeatureSet every() {
  FeatureSet set;
  set.softcap = 30, set.window_left = 100, set.window_right = 2;
  for (const std::string& name : feature_names()) set_feature(set, name);
  return set;
}

}  // namespace

TEST_CASE("a set without anything is none, and each name makes it one") {
  CHECK_FALSE(FeatureSet{}.any());
  CHECK(FeatureSet{}.id().empty());
  for (const std::string& name : feature_names()) {
    FeatureSet set;
    set_feature(set, name);
    CHECK(set.any() == (name != "causal"));  // causal has a fragment of its own
    if (set.any()) CHECK(set.names() == std::vector<std::string>{name});
    if (set.any()) CHECK(set.id() == name + ".");
  }
  FeatureSet window;
  window.window_left = 0;
  CHECK(window.any());
  CHECK(window.id() == "window_0_all.");
}

TEST_CASE("ids are fit for file names") {
  FeatureSet set = every();
  set.softcap = 1e20;
  CHECK(set.id() ==
        "softcap1e20.window_100_2.alibi.mask.mask_slopes.packed_mask.position_offset.token_ranges.sinks.lse.");
}

TEST_CASE("tokens that the queries of a call see together") {
  FeatureSet set;
  CHECK(set.most_seen(true, 4) == -1);
  set.window_left = 100;
  CHECK(set.most_seen(true, 4) == 104);   // 100 before the first of four queries
  CHECK(set.most_seen(false, 4) == 104);  // no token stands behind the last query
  set.position_offset = true;
  CHECK(set.most_seen(true, 4) == 104);
  CHECK(set.most_seen(false, 4) == -1);  // queries may stand ahead of all tokens
  set.window_right = 7;
  CHECK(set.most_seen(false, 4) == 111);
  CHECK(set.most_seen(true, 4) == 104);
}

TEST_CASE("types are listed in the order in which scores change") {
  CHECK(feature_list(every(), false, 2) ==
        "Features<SeenRange<2, 100, 2, true, true>, Softcap<SoftcapNumbers>, Alibi, Mask<true>, PackedMask, Sinks, "
        "Lse<2>>");
  CHECK(feature_list(every(), true, 2).starts_with("Features<SeenRange<2, 100, 0, true, true>"));
}

TEST_CASE("every fragment says what it costs") {
  const auto uses = feature_uses(every(), 1);
  CHECK(uses.size() == 6);
  for (const FeatureUse& use : uses) {
    CAPTURE(use.fragment);
    CHECK(use.cost.starts_with("costs "));
    CHECK(use.cost.find("a score") != std::string::npos);
  }
  CHECK(std::string(kRangeCost).starts_with("costs nothing a score"));
}

TEST_CASE("slopes as ggml has them") {
  const auto close = [](const std::vector<float>& got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-6));
  };
  close(alibi_slopes(8, 8).value(), {0.5, 0.25, 0.125, 1 / 16., 1 / 32., 1 / 64., 1 / 128., 1 / 256.});
  // Six heads: four powers of 2^(-8 / 4), then odd powers of 2^(-4 / 4).
  close(alibi_slopes(8, 6).value(), {1 / 4., 1 / 16., 1 / 64., 1 / 256., 1 / 2., 1 / 8.});
  close(alibi_slopes(0, 3).value(), {1, 1, 1});
  CHECK(alibi_slopes(8, 0).error().message == "slopes of 0 heads; 1 to 65536 are possible");
  CHECK(alibi_slopes(-1, 4).error().message == "max_bias -1; 0 to 126 are possible");
  CHECK_FALSE(alibi_slopes(std::nanf(""), 4));
}

}  // namespace kvjit
