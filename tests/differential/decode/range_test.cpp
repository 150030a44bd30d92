// K and V beyond fp16's range on the CPU back-end: what a format can store, decode attends to. Rows of a cache are
// large and small by turns, so the power of two that is taken out changes inside a sequence. Steps of the powers of K
// are broken one by one and must be noticed.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

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

// Rows are above 0, where a minimum and the first value of a rotated row reach furthest. In every second stretch of
// tokens one of 37 has up to `largest` in one of its groups of 32, and all else is far below. The stretches between are
// of halves. A warp takes tiles of each stretch.
constexpr int kStretch = 400;
const std::vector<int> kStretches = {3 * kStretch, 33};
std::vector<float> raised(const Judge& judge, int side, float largest) {
  constexpr std::size_t kEach = 37, kGroup = 32;
  std::vector<float> all = judge.cache(side).x;
  const auto dim = std::size_t(judge.problem().head_dim);
  for (std::size_t row = 0; row < all.size() / dim; ++row) {
    const auto x = std::span(all).subspan(row * dim, dim);
    float most = 0;
    for (float& v : x) most = std::max(most, v = std::abs(v));
    for (std::size_t i = 0; i < dim; ++i) {
      const bool is_raised = row % kEach == 0 && i / kGroup == row / kEach % (dim / kGroup);
      x[i] *= (row / kStretch % 2 == 0 ? largest / 16 : is_raised ? largest : 30.f) / most;
    }
  }
  return all;
}

// The largest value whose stored scales are finite.
std::vector<WideCase> half_cases() {
  return {{{"f16", "q4_1"}, 4e5f},
          {{"kv4", "ninfer_v4_g32", 128, 4, 1, Layout::rows}, 2.5e5f},
          {{"f16", "vllm_v4"}, 4e5f},
          {{"q8_0", "q5_1", 64, 4, 1, Layout::rows}, 8e5f},
          {{"kv4", "q4_1", 128, 8, 3}, 4e5f},
          {{"kv4", "vllm_v4", 128, 8, 3, Layout::rows}, 4e5f}};
}

TEST_CASE("V of fp16 scales that reach beyond the range of fp16") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* arch : {"sm_75", "sm_90a"}) {
    std::vector<Planned> all;
    for (const WideCase& one : half_cases()) all.push_back(planned(registry(), one.test, arch));
    warm_up(context, all, kCompileThreads);
    for (std::size_t i = 0; i < all.size(); ++i) {
      INFO(std::string(arch));
      Judge judge(context, all[i], int(kStretches.size()), kStretches[0]);
      judge.set_cache(1, raised(judge, 1, half_cases()[i].largest));
      for (const int blocks : {1, 5}) judge.check({0, kStretches, blocks, false});
    }
  }
}
TEST_CASE("V of fp16 scales that reach beyond the range of fp16: broken steps are noticed") {
  const auto context = open_context(DeviceKind::cpu);
  const char* const scales = "kernels/decode/rare/half_scales.cuh";
  struct Mutation {
    const char *file, *text, *broken;
    std::size_t test = 0;  // of half_cases()
  };
  for (const Mutation& mutation :
       {Mutation{scales, "if (log2 > 0) limit = kTopBits;", ""},
        {"kernels/decode/rare/scales_of_tile.cuh", "+ lane() * kBytes", "+ lane() / 4 * kBytes"},
        {scales, "steps_above(both & 0x7fffu, V::kMostScales & 0xffffu)", "0u"},
        {scales, "steps_above(both & 0x7fffu, V::kMostScales & 0xffffu)", "0u", 4},
        {scales, "*= rescale_factor", "*= 1.f", 2},
        {scales, "for_each_scale<Plan, S, true>", "for_each_scale<Plan, S, false>", 1},
        {scales, "S::store_scale_and_minimum(at, i, mul_f16x2(S::scale_and_minimum(at, i), power));", ";", 5},
        {"kernels/decode/rare/wide_team_values.cuh", "sums.value_scales.divide(staged, 0, misalignment);", "", 4}}) {
    const WideCase one = half_cases()[mutation.test];
    const Registry broken = changed_registry(mutation.file, mutation.text, mutation.broken);
    Judge judge(context, planned(broken, one.test, "sm_90a"), int(kStretches.size()), kStretches[0]);
    judge.set_cache(1, raised(judge, 1, one.largest));
    CHECK_MESSAGE(judge.is_wrong({0, kStretches, 1, false}), std::string(mutation.text));
  }
}

// K is multiplied by `factor`, every third token by a thousandth of it, and Q is divided by it.
void widen_keys(Judge& judge, float factor) {
  std::vector<float> k = judge.cache(0).x, q = judge.queries();
  const auto dim = std::size_t(judge.problem().head_dim);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] *= i / dim % 3 == 2 ? factor * 1e-3f : factor;
  for (float& x : q) x /= factor;
  judge.set_cache(0, std::move(k));
  judge.set_queries(std::move(q));
}

std::vector<Case> key_cases() {
  std::vector<Case> cases = {{"bf16", "f16"},
                             {"bf16", "q8_0", 64, 8, 3, Layout::rows, true},
                             {"f32", "f16", 64},
                             {"bf16", "f16", 128, 8, 2, Layout::planar, true}};
  for (Case& one : cases) one.q_type = Element::f32;  // the range of Q must not end before that of K
  cases.back().q_type = Element::bf16;
  return cases;
}

TEST_CASE("K beyond the range of fp16") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* arch : {"sm_75", "sm_80", "sm_90a"}) {  // without products of bfloats, with them, and by wgmma
    std::vector<Planned> all;
    for (const Case& test : key_cases()) all.push_back(planned(registry(), test, arch));
    warm_up(context, all, kCompileThreads);
    for (const Planned& one : all)
      for (const float factor : {1e-9f, 1.f, 1e15f}) {
        INFO("K times ", factor, " for ", arch);
        Judge judge(context, one, int(kLengths.size()));
        widen_keys(judge, factor);
        for (const int blocks : {1, 5}) judge.check({0, kLengths, blocks, false});
      }
  }
}
void raise_keys(Judge& judge) {
  constexpr float kLargest = 2.5e5f;
  judge.set_cache(0, raised(judge, 0, kLargest));
  std::vector<float> q = judge.queries();
  for (float& x : q) x /= kLargest;
  judge.set_queries(std::move(q));
}
std::vector<Case> half_key_cases() {
  std::vector<Case> all = {
      {"ninfer_v4_g32", "f16"}, {"ninfer_v4_g32", "f16", 64, 4, 1, Layout::rows}, {"ninfer_v4_g32", "q8_0", 128, 8, 3}};
  for (Case& each : all) each.q_type = Element::f32;
  return all;
}
TEST_CASE("K of fp16 scales that reach beyond the range of fp16") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* arch : {"sm_75", "sm_90a"})
    for (const Case& test : half_key_cases()) {
      INFO(std::string(arch));
      Judge judge(context, planned(registry(), test, arch), int(kStretches.size()), kStretches[0]);
      raise_keys(judge);
      for (const int blocks : {1, 5}) judge.check({0, kStretches, blocks, false});
    }
}
TEST_CASE("K of fp16 scales that reach beyond the range of fp16: broken steps are noticed") {
  const auto context = open_context(DeviceKind::cpu);
  const char* const keys = "kernels/decode/rare/half_key_scales.cuh";
  struct Mutation {
    const char *file, *text, *broken;
    std::size_t test = 0;  // of half_key_cases()
  };
  for (const Mutation& mutation : {Mutation{keys, "steps = larger(steps, shfl_xor(steps, mask));", ";"},
                                   {keys, "float_of((127 + steps) << 23)", "1.f", 1},
                                   {keys, "half_power(-int(steps))", "half_power(0)", 2},
                                   {"kernels/decode/scores.cuh", "keys.restore(x);", "", 1}}) {
    const Registry broken = changed_registry(mutation.file, mutation.text, mutation.broken);
    Judge judge(context, planned(broken, half_key_cases()[mutation.test], "sm_90a"), int(kStretches.size()),
                kStretches[0]);
    raise_keys(judge);
    CHECK_MESSAGE(judge.is_wrong({0, kStretches, 1, false}), std::string(mutation.text));
  }
}
TEST_CASE("K beyond the range of fp16: broken powers of two are noticed") {
  const auto context = open_context(DeviceKind::cpu);
  struct Mutation {
    const char *file, *text, *broken;
    std::size_t test = 0;  // of key_cases()
  };
  const char *const scores = "kernels/decode/scores.cuh", *const keys = "kernels/decode/rare/wide_keys.cuh",
                    *const powers = "kernels/decode/rare/token_powers.cuh";
  for (const Mutation& mutation :
       {Mutation{scores, "powers.divide(0, low), powers.divide(1, high);", ""},
        {scores, "powers.up(0), powers.up(1)", "1.f, 1.f"},
        {keys, "(row / 8 + i) * 8 * K::kPitch", "row / 8 * 8 * K::kPitch"},
        {powers, "both = larger_u16x2(both, shfl_xor(both, mask));", ";"},
        {powers, "both >> 16 << 23", "both << 23"},
        {keys, "if constexpr (!kIsF32) largest[i] = larger(largest[i], w[j] << 16 & 0x7fffffffu);", ""},
        {keys, "word = bits_of(float_of(word) * down);", ";", 2}}) {
    const Registry broken = changed_registry(mutation.file, mutation.text, mutation.broken);
    Judge judge(context, planned(broken, key_cases()[mutation.test], "sm_75"), int(kLengths.size()));
    widen_keys(judge, 1e15f);
    CHECK_MESSAGE(judge.is_wrong({0, kLengths, 5, false}), std::string(mutation.text));
  }
}

}  // namespace
}  // namespace kvjit::test
