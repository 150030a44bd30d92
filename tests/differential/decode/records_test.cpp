// Records of segments: decode with V as a view of K's channels, the codec kernels, and a view that leaves the bytes of
// other segments as they are.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tests/differential/caller.hpp"
#include "tests/differential/harness.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/registry.hpp"
#include "tools/verify/inputs/verify_inputs.hpp"

namespace kvjit::test {
namespace {

constexpr int kCompileThreads = 2;

using Heads = std::pair<int, int>;

// Returns the heads of a record as K and as V. Latent attention has the whole record as K, and as V the channels
// without those of RoPE, where the record serves them. Records that end with the head have it as both.
std::vector<Heads> heads_of(const std::string& name) {
  const Format& f = *must(registry().format(name, {}));
  if (f.ends_with_head) return {{128, 128}, {192, 192}, {256, 256}};
  return {{f.heads.back(), f.heads.front() == 512 ? 512 : f.heads.back()}};
}

TEST_CASE("every record as K and V, planar and in rows") {
  const auto context = open_context(DeviceKind::cpu);
  const std::vector<std::string> names = record_names(registry());
  CHECK(names.size() >= 5);
  for (const std::string& name : names)
    for (const auto& [k, v] : heads_of(name))
      for (const Layout layout : {Layout::rows, Layout::planar}) {
        Case test{name, name, k, 8, 2, layout, true};
        test.head_dim_v = v == k ? 0 : v;
        const Planned one = planned(registry(), test, context->backend()->info().arch);
        warm_up(context, {one}, kCompileThreads, true);
        Judge judge(context, one);
        for (const int tokens : judge.ragged_lengths())
          for (const bool is_reference : {false, true}) judge.check({tokens, {}, 0, is_reference});
        check_codec_kernels(judge, test.name());
      }
}

// V has three segments: one has scales of groups, one has a scale of its own, and one has no scale.
TEST_CASE("V of segments with scales of all kinds") {
  FileSet files = embedded_files();
  files["specs/formats/mixed.toml"] = R"(title = "t"
fields = [{ field = "codes" }, { field = "codes", segment = 1 }, { field = "codes", segment = 2 }, { field = "scale" },
          { field = "scale", segment = 1 }]
accept = { max_relative_mse = 0.01 }
[[segments]]
channels = [0, 64]
codes = { kind = "table", bits = 4 }
codebook = { rule = "e2m1", ties = "even" }
scale = { rule = "amax", divisor = 6, group = 16, storage = "e4m3", by_stored = true }
[[segments]]
channels = [64, 128]
codes = { kind = "uniform", bits = 8, offset = 128, twos_complement = true, rounding = "half_away" }
scale = { rule = "amax", divisor = 127, storage = "f32" }
[[segments]]
channels = [128, 192]
block = 1
codes = { kind = "plain", element = "bf16" }
)";
  const Registry more = must(Registry::load(files));
  const auto context = open_context(DeviceKind::cpu);
  for (const Layout layout : {Layout::rows, Layout::planar}) {
    Judge judge(context, planned(more, {"mixed", "mixed", 192, 4, 1, layout, false}, context->backend()->info().arch));
    judge.check({257, {}, 0, false});
  }
}

// Rows of 656 and of 112 bytes, also at strides that move rows by half a sector (rare/record_rows.cuh).
TEST_CASE("records at any 2-byte alignment") {
  const auto context = open_context(DeviceKind::cpu);
  for (const auto& [name, head_dim] : {std::pair{"vllm_fp8_ds_mla_656", 512}, {"vllm_octave_k", 256}})
    for (const Placement& placement : {Placement{0, 0}, {0, 2}, {6, 10}, {16, 16}, {0, 48}})
      check_placement(context, registry(), {name, name, head_dim, 4, 1, Layout::rows, false}, placement);
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
                                                   {"vllm_fp8_ds_mla_656", 576, 512, 16, 1},
                                                   {"vllm_fp8_ds_mla_656", 576, 512, 16, 2},
                                                   {"vllm_fp8_ds_mla_528", 512, 512, 16, 1},
                                                   {"vllm_fp8_ds_mla_584", 512, 512, 16, 1},
                                                   {"vllm_nvfp4_ds_mla_352", 576, 512, 8, 1},
                                                   {"bf16", 576, 512, 16, 1},
                                                   {"q8_0", 512, 512, 16, 1},
                                                   {"q8_0", 192, 128, 4, 1},
                                                   {"q4_0", 128, 128, 16, 4}})
    for (const int page_tokens : {0, 16, 32}) {
      const auto context = open_context(DeviceKind::cpu);
      Case test{format, format, k, gqa, queries, page_tokens > 0 ? Layout::paged : Layout::rows, queries > 1};
      test.head_dim_v = v, test.page_tokens = page_tokens, test.page_layout = Layout::rows, test.is_in_keys = true;
      const Planned one = planned(registry(), test, context->backend()->info().arch);
      const std::string text = one.source.kernels.at(Role::decode).text.str();
      CHECK(text.find("kIsInKeys = true") != std::string::npos);
      // Bulk copies serve a team, which 16 query rows take, and packed rows of which a page has whole tiles.
      const bool is_team = gqa * queries == 16 && v == 512 && std::string(format) != "bf16",
                 is_aligned = std::string(format) != "vllm_fp8_ds_mla_584";
      CHECK((text.find("open_ring<kv::BulkRing>") != std::string::npos) ==
            (is_team && is_aligned && page_tokens != 16));
      Judge judge(context, one, 2);
      judge.check({257, {}, 0, false});
      judge.check({0, {257, 15}, 3, false});
    }
}

TEST_CASE("bulk copies of V in K's rows for a number of queries that the call says") {
  const auto context = open_context(DeviceKind::cpu);
  Case test{"vllm_fp8_ds_mla_656", "vllm_fp8_ds_mla_656", 576, 8, 2, Layout::rows, false};
  test.head_dim_v = 512, test.is_in_keys = true, test.is_varlen = true;
  const Planned one = planned(registry(), test, context->backend()->info().arch);
  const std::string text = one.source.buckets.back().kernels.at(Role::decode).text.str();  // 16 query rows
  CHECK(text.find("open_ring<kv::BulkRing>") != std::string::npos);
  Judge judge(context, one, 2);
  KernelHarness::Call call{0, {257, 15}, 3, false};
  for (const int queries : {1, 2}) {
    call.queries = queries;
    judge.check(call);
  }
}

// K's scales are V's, too, and K's row has more of them than V reads.
TEST_CASE("V in K's rows, in planes of codes and of scales") {
  struct Shape {
    const char* format;
    int k, v, gqa;
  };
  for (const auto& [format, k, v, gqa] : {Shape{"vllm_fp8_ds_mla_656", 576, 512, 16},
                                          {"vllm_fp8_ds_mla_584", 512, 512, 16},
                                          {"vllm_fp8_ds_mla_528", 512, 512, 8},
                                          {"q8_0", 128, 128, 4}})
    for (const int page_tokens : {0, 16, 64}) {
      const auto context = open_context(DeviceKind::cpu);
      Case test{format, format, k, gqa, 1, page_tokens > 0 ? Layout::paged : Layout::planar, false};
      test.head_dim_v = v, test.page_tokens = page_tokens, test.is_in_keys = true;
      const Planned one = planned(registry(), test, context->backend()->info().arch);
      CHECK(one.source.kernels.at(Role::decode).text.str().find("kIsInKeys = true") != std::string::npos);
      Judge judge(context, one, 2);
      judge.check({257, {}, 0, false});
      judge.check({0, {257, 15}, 3, false});
    }
}

TEST_CASE("every record is planned for the arch with the least shared memory, and is right there") {
  const auto context = open_context(DeviceKind::cpu);
  for (const std::string& name : record_names(registry()))
    for (const int gqa : {1, 16, 128})
      for (const auto& [k, v] : heads_of(name)) {
        Case test{name, name, k, gqa, 1, Layout::rows, false};
        test.head_dim_v = v == k ? 0 : v;
        const Planned one = planned(registry(), test, "sm_75");
        CHECK(one.source.kernels.count(Role::decode) == 1);
        if (gqa == 1) Judge(context, one).check({40, {}, 0, false});
      }
}

TEST_CASE("verified inputs of a latent cache: V is judged as a part of K's rows") {
  const auto context = open_context(DeviceKind::cpu);
  for (const std::string name : {"vllm_fp8_ds_mla_584", "vllm_nvfp4_ds_mla_352"}) {
    Case test{name, name, heads_of(name)[0].first, 4, 1, Layout::rows, false};
    test.head_dim_v = 512, test.is_in_keys = true;
    const Planned one = planned(registry(), test, "sm_80");
    const auto program = must(Program::create(context, one.source));
    CHECK(must(verify_inputs(context, program, one.problem, classes_of({"hidden", "values"}))).empty());
  }
}

// Heads of the cache are 656 bytes apart, so rows of the second one begin in the middle of a sector
// (rare/record_rows.cuh).
TEST_CASE("a broken kernel of records is noticed") {
  struct Mutation {
    const char *file, *from, *to;
  };
  const std::string name = "vllm_fp8_ds_mla_656", folder = "kernels/decode/rare/";
  const auto context = open_context(DeviceKind::cpu);
  const std::string arch = context->backend()->info().arch;
  for (const int gqa : {4, 16})
    for (const auto& [file, from, to] :
         {Mutation{"record_rows.cuh", "return sector_offset<Side>(first_row, token_stride, row) +", "return"},
          {"record_rows.cuh", "(to + kWhole * 16,", "(to,"},
          {"record_rows.cuh", "row < valid ?", "row < valid - 1 ?"}}) {
      Case test{name, name, 576, gqa, 1, Layout::rows, false};
      test.head_dim_v = 512;
      Planned one = planned(registry(), test, arch);
      CHECK(one.source.kernels.at(Role::decode).text.str().find("kKeepsSectors = true") != std::string::npos);
      one.source = planned(changed_registry(folder + file, from, to), test, arch).source;
      Judge judge(context, one);
      CHECK_MESSAGE(judge.is_wrong({257, {}, 0, false}), std::string(from), " -> ", std::string(to));
    }
}

// The back-end fills the target of a bulk copy with NaN until its barrier is waited for, and ends a launch in which a
// phase of a barrier never ends.
TEST_CASE("a broken kernel of bulk copies is noticed") {
  struct Mutation {
    const char *file, *from, *to;
  };
  const std::string name = "vllm_fp8_ds_mla_656", folder = "kernels/decode/rare/";
  const auto context = open_context(DeviceKind::cpu);
  const std::string arch = context->backend()->info().arch;
  for (const auto& [file, from, to] :
       {Mutation{"bulk_rows.cuh", "  wait_phase(barrier, parity);\n", ""},
        {"bulk_rows.cuh", "store_shared_u32(barrier + 8, parity ^ 1u)", "store_shared_u32(barrier + 8, parity)"},
        {"bulk_rows.cuh", "++row, from += token_stride)", "++row)"},
        {"bulk_rows.cuh", "to + slot_at<Side>(row), from", "to + row * Side::kPitch, from"},
        {"bulk_rows.cuh", "if (lane() == 0) arrive(barrier_of_stage<Ring>(to));", ""},
        {"bulk_products.cuh", "request.set(CopyRequest::kIdle);", ""}}) {
    Case test{name, name, 576, 16, 1, Layout::rows, false};
    test.head_dim_v = 512, test.is_in_keys = true;
    Planned one = planned(registry(), test, arch);
    one.source = planned(changed_registry(folder + file, from, to), test, arch).source;
    Judge judge(context, one);
    CHECK_MESSAGE(judge.is_wrong({1100, {}, 0, false}), std::string(from), " -> ", std::string(to));
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
