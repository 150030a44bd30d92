// tools/quality/coding.cpp: every coding is that of a format we ship, and K and V of two codings are mixed.
// SPDX-License-Identifier: MIT
#include "tools/quality/coding.hpp"

#include <doctest/doctest.h>

#include <set>

#include "generator/catalogue/registry.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::registry;

StoredSide side(const std::string& name) { return {name, registry().format_for(name, 128, {})}; }

TEST_CASE("a format's coding follows from its axes") {
  const std::pair<const char*, Coding> expected[] = {{"bf16", Coding::floats},
                                                     {"fp8_e4m3", Coding::floats},
                                                     {"q4_0", Coding::integers},
                                                     {"vllm_v4", Coding::integers},
                                                     {"iq4_nl", Coding::codebook},
                                                     {"nvfp4", Coding::codebook},
                                                     {"kv4", Coding::wht},
                                                     {"kv8", Coding::wht},
                                                     {"atlas_turbo8", Coding::wht},
                                                     {"planar3", Coding::few_channels},
                                                     {"tbq4_dense_qsfirst_raw", Coding::dense},
                                                     {"turbo_split2_b", Coding::outliers},
                                                     {"turbo_split_54", Coding::outliers},
                                                     {"turbo4_qjl68", Coding::residual},
                                                     {"tbqp3_dense256_qsfirst_raw", Coding::residual}};
  for (const auto& [name, coding] : expected) {
    CAPTURE(name);
    CHECK(coding_of(registry().format_for(name, 256, {}).value()) == coding);
  }
}

TEST_CASE("K and V of one coding have it, others are mixed") {
  CHECK(coding_of({side("q8_0"), side("q4_0")}) == Coding::integers);
  CHECK(coding_of({side("q8_0"), side("kv4")}) == Coding::mixed);
  CHECK(coding_of({side("q8_0"), {"none", fail(Code::unsupported, "too small")}}) == Coding::mixed);
}

TEST_CASE("every coding has a name of its own") {
  const std::vector<std::string>& names = coding_names();
  CHECK(names.size() == static_cast<std::size_t>(Coding::mixed) + 1);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
}

}  // namespace
}  // namespace kvjit
