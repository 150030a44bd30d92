// V beyond fp16's range on the CPU back-end: what a format can store, decode attends to. Rows of a cache are large and
// small by turns, so the power of two that is taken out changes inside a sequence.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;
const std::vector<int> kLengths = {257, 33};

// The largest factor of N(0, 1) for which a cache has finite values.
struct WideCase {
  Case test;
  float largest;
};

void check_cases(const std::vector<WideCase>& cases, const char* arch) {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const WideCase& one : cases) all.push_back(planned(registry(), one.test, arch));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const float factor : {1e-8f, 1.f, cases[i].largest}) {
      INFO("V times ", factor, " for ", arch);
      Judge judge(context, all[i], int(kLengths.size()));
      judge.reshape(factor, 1, 1);
      for (const int blocks : {1, 5}) judge.check({0, kLengths, blocks, false});
    }
}

TEST_CASE("V beyond the range of fp16") {
  check_cases({{{"f16", "bf16"}, 1e24f},
               {{"f16", "f32", 64}, 1e24f},
               {{"f16", "vllm_int8_per_token_head"}, 1e24f},
               {{"f16", "vllm_int4_per_token_head", 128, 4, 1, Layout::rows}, 1e24f},
               {{"f16", "mxfp4"}, 1e24f},
               {{"f16", "vllm_ultraquant_v"}, 1e20f},
               {{"f16", "atlas_turbo8"}, 1e24f}},
              "sm_90a");
}
TEST_CASE("V beyond the range of fp16, teams of warps") {
  check_cases({{{"kv4", "bf16", 128, 8, 3}, 1e24f},
               {{"kv4", "vllm_int8_per_token_head", 128, 8, 3}, 1e24f},
               {{"kv4", "mxfp4", 128, 8, 3}, 1e24f}},
              "sm_90a");
  check_cases({{{"kv4", "f32", 64, 8, 3}, 1e24f}}, "sm_80");
}

}  // namespace
}  // namespace kvjit::test
