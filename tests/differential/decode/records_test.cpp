// Records of segments: decode with V as a view of K's channels, the codec kernels, and a view that leaves the bytes of
// other segments as they are.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/differential/harness.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

constexpr int kCompileThreads = 2;

// Returns the heads of a record as K and as V. Latent attention has the whole record as K, and as V the channels
// without those of RoPE, where the record serves them.
std::pair<int, int> heads_of(const std::string& name) {
  const Format& f = *must(registry().format(name, {}));
  return {f.heads.back(), f.heads.front() == 512 ? 512 : f.heads.back()};
}

TEST_CASE("every record as K and V, planar and in rows") {
  const auto context = open_context(DeviceKind::cpu);
  const std::vector<std::string> names = record_names(registry());
  CHECK(names.size() >= 5);
  for (const std::string& name : names)
    for (const Layout layout : {Layout::rows, Layout::planar}) {
      const auto [k, v] = heads_of(name);
      Case test{name, name, k, 8, 2, layout, true};
      test.head_dim_v = v == k ? 0 : v;
      const Planned one = planned(registry(), test, context->backend()->info().arch);
      warm_up(context, {one}, kCompileThreads, true);
      Judge judge(context, one);
      for (const int tokens : judge.ragged_lengths()) judge.check({tokens, {}, 0, true});
      check_codec_kernels(judge, test.name());
    }
}

TEST_CASE("a record with another format, and as views on both sides") {
  const auto context = open_context(DeviceKind::cpu);
  for (const auto& [k, v] : {std::pair{"vllm_fp8_ds_mla_656", "kv4"}, {"q8_0", "vllm_nvfp4_ds_mla_352"}}) {
    const Planned one = planned(registry(), {k, v, 512, 4, 1, Layout::planar, false}, context->backend()->info().arch);
    Judge judge(context, one);
    judge.check({257, {}, 0, false});
  }
}

// One warp takes 16 query rows of a head, a team of warps 32, which are wgmma on sm_90a. Rows of 584 bytes are copied
// by chunks, at addresses that are 8 modulo 16, and pages of 16 tokens in units of 8 bytes.
TEST_CASE("V in K's rows, in rows and pages: each tile is copied once") {
  struct Shape {
    const char* format;
    int k, v, gqa, queries;
  };
  for (const auto& [format, k, v, gqa, queries] : {Shape{"vllm_fp8_ds_mla_656", 576, 512, 4, 2},
                                                   {"vllm_fp8_ds_mla_656", 576, 512, 16, 2},
                                                   {"vllm_fp8_ds_mla_584", 512, 512, 16, 1},
                                                   {"vllm_nvfp4_ds_mla_352", 576, 512, 8, 1},
                                                   {"bf16", 576, 512, 16, 1},
                                                   {"q8_0", 192, 128, 4, 1},
                                                   {"q4_0", 128, 128, 16, 4}})
    for (const int page_tokens : {0, 16}) {
      const auto context = open_context(DeviceKind::cpu);
      Case test{format, format, k, gqa, queries, page_tokens > 0 ? Layout::paged : Layout::rows, queries > 1};
      test.head_dim_v = v, test.page_tokens = page_tokens, test.page_layout = Layout::rows, test.is_in_keys = true;
      const Planned one = planned(registry(), test, context->backend()->info().arch);
      CHECK(one.source.kernels.at(Role::decode).text.str().find("kIsInKeys = true") != std::string::npos);
      Judge judge(context, one, 2);
      judge.check({257, {}, 0, false});
      judge.check({0, {257, 15}, 3, false});
    }
}

TEST_CASE("every record is planned for the arch with the least shared memory") {
  for (const std::string& name : record_names(registry()))
    for (const int gqa : {1, 16, 128}) {
      const auto [k, v] = heads_of(name);
      Case test{name, name, k, gqa, 1, Layout::rows, false};
      test.head_dim_v = v == k ? 0 : v;
      CHECK(planned(registry(), test, "sm_75").source.kernels.count(Role::decode) == 1);
    }
}

TEST_CASE("a view writes its own segments alone") {
  constexpr int kTokens = 5, kView = 512;
  constexpr std::uint8_t kOther = 0xA5;
  const auto context = open_context(DeviceKind::cpu);
  const std::string name = "vllm_fp8_ds_mla_656";
  Case test{name, name, kView, 1, 1, Layout::rows, false};
  const Planned one = planned(registry(), test, context->backend()->info().arch);
  KernelHarness harness =
      must(KernelHarness::make(context, must(Program::create(context, one.source)), one.problem, {1, 1, kTokens}));
  const Format& f = one.problem.v;
  REQUIRE(f.read_bytes() == 528);
  REQUIRE(f.block_bytes == 656);
  const std::size_t row_bytes = 656;
  must(harness.set_rows(1, std::vector<std::uint8_t>(kTokens * row_bytes, kOther)));
  Rng rng(5);
  const std::vector<float> x = rng.normals(std::size_t(kTokens) * kView);
  must(harness.quantize(1, x));
  const auto rows = must(harness.rows(1));
  const auto want = encode_rows(f, x, kView);
  REQUIRE(rows.size() == want.size());
  int wrong = 0, touched = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i % row_bytes < 528)
      wrong += rows[i] != want[i];
    else
      touched += rows[i] != kOther;
  CHECK(wrong == 0);
  CHECK(touched == 0);
}

}  // namespace
}  // namespace kvjit::test
