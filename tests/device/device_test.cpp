// The kernels on a GPU, compared with the oracle, and with the CPU back-end on the same inputs. Without a GPU the test
// is skipped and says so.
// SPDX-License-Identifier: MIT
#include "tests/device/gpu.hpp"
#include "tests/differential/caller.hpp"
#include "tests/differential/codec/bulk.hpp"
#include "tests/differential/codec/published.hpp"
#include "tests/differential/codec/slots.hpp"
#include "tests/differential/decode/append.hpp"
#include "tests/differential/decode/features.hpp"
#include "tests/differential/harness.hpp"
#include "tests/differential/operations/copies.hpp"
#include "tests/differential/operations/ropes.hpp"
#include "tests/differential/prefill/rows.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit::test {
namespace {

constexpr double kMaxDeviceDifference = 1e-4;  // relative L2 between the GPU and the CPU back-end

// Judges kernels on the GPU and on the CPU back-end, and compares the two. With 0 blocks each device has a schedule of
// its own, and probabilities are rounded relative to other maxima, so then the two are not compared.
void compare(const std::vector<Case>& cases, const std::vector<int>& blocks, bool with_reference) {
  const auto device = gpu(), host = open_context(DeviceKind::cpu);
  const std::string arch = device->backend()->info().arch;
  std::vector<Planned> all;
  for (const Case& test : cases) all.push_back(planned(registry(), test, arch));
  const unsigned threads = std::max(2u, std::thread::hardware_concurrency());
  warm_up(device, all, threads, with_reference);
  warm_up(host, all, threads, with_reference);
  for (const Planned& one : all) {
    Judge on_device(device, one), on_host(host, one);
    for (const int tokens : on_device.ragged_lengths())
      for (const int count : blocks)
        for (int is_reference = 0; is_reference <= int(with_reference); ++is_reference) {
          const KernelHarness::Call call{tokens, {}, count, is_reference != 0};
          const auto a = on_device.check(call), b = on_host.check(call);
          const double difference = relative_error(a, b);
          CHECK_MESSAGE((count == 0 || difference <= kMaxDeviceDifference), one.test.name(), ": GPU and CPU differ by ",
                        difference, " over ", tokens, " tokens in ", count, " blocks");
        }
  }
}

TEST_CASE("25 pairs, head_dim 64, 128 and 256, GQA 1, 4 and 8, planar") {
  compare(pairs(registry(), {64, 128, 256}, {1, 4, 8}, Layout::planar), {4}, false);
}

TEST_CASE("quantize writes the bytes of published writers") { check_published(gpu()); }
TEST_CASE("quantize fills pages as published writers lay them out") { check_published_pages(gpu()); }

TEST_CASE("25 pairs in rows") { compare(pairs(registry(), {128}, {4}, Layout::rows), {1}, false); }

TEST_CASE("bulk: the codec's bytes, its decoder's values") {
  const auto device = gpu();
  const std::string arch = device->backend()->info().arch;
  const TileTypes some{{Element::f16}, {Element::f32}};
  for (const Layout layout : {Layout::planar, Layout::rows}) {
    for (const char* format : {"tbq4_0", "kv3", "tbq4_dense_qsfirst_raw", "turbo3_0"})
      check_tiles(registry(), device, arch, format, 128, layout, 1031);
    for (const char* format : {"turbo4_0", "amesianx_tbq3_1", "vllm_k4_nc", "planar3"})
      check_tiles(registry(), device, arch, format, 128, layout, 1031, some);
  }
  check_tiles(registry(), device, arch, "tbq4_0", 256, Layout::planar, 1024);
  check_tiles(registry(), device, arch, "turbo3_qk32", 128, Layout::rows, 1031);
  for (const char* format : {"tq3_0", "tq3_0v"})
    check_tiles(registry(), device, arch, format, 128, Layout::planar, 1031, some);
}

TEST_CASE("prefill: formats, layouts, ragged lengths, any number of blocks") {
  if (!arch_has("cp_async", "prefill")) return;
  const auto device = gpu();
  const std::vector<int> lengths = {700, 0, 5, 128, 257};
  for (const char* format : {"f16", "kv4", "tbq4_0", "q4_0", "q8_0", "fp8_e4m3", "kv3", "kv2", "iq4_nl", "vllm_k4_nc"})
    for (const Case& test :
         {Case{format, format, 128, 4, 70, Layout::planar, true}, Case{format, "kv4", 128, 4, 70, Layout::rows, true},
          Case{"kv4", format, 128, 3, 50, Layout::paged, false, 0, 16}}) {
      const Planned one = planned(registry(), test, device->backend()->info().arch);
      if (one.source.kernels.count(Role::prefill) == 0) continue;  // 8-bit rows, f16 beside packed rows; by mma
      Judge judge(device, one, int(lengths.size()), lengths[0]);
      for (const int blocks : {0, 1, 3}) judge.check(prefill_call(lengths, blocks));
      const auto first = must(judge.attend(prefill_call(lengths, 0))).out;
      for (int i = 0; i < 200; ++i) CHECK(must(judge.attend(prefill_call(lengths, 0))).out == first);
    }
}

TEST_CASE("prefill of heads of more than 256 dimensions, of up to 64 rows, and of heads that are padded") {
  if (!arch_has("wgmma", "prefill of wide, short and padded calls")) return;
  const auto device = gpu();
  const std::string arch = device->backend()->info().arch;
  const std::vector<int> lengths = {700, 0, 5, 128, 1500};
  const auto check = [&](const Case& test, std::initializer_list<int> blocks) {
    const Planned one = planned(registry(), test, arch);
    INFO(one.test.name());
    REQUIRE(one.source.kernels.count(Role::prefill) == 1);
    Judge judge(device, one, int(lengths.size()), lengths[4]);
    for (const int count : blocks) judge.check(prefill_call(lengths, count));
    const auto first = must(judge.attend(prefill_call(lengths, 0))).out;
    for (int i = 0; i < 200; ++i) CHECK(must(judge.attend(prefill_call(lengths, 0))).out == first);
  };
  check({"f16", "f16", 576, 16, 8, Layout::planar, true, 512}, {0, 1, 3});
  check({"f16", "f16", 512, 16, 33, Layout::rows, true, 512}, {0, 3});
  check({"f16", "f16", 112, 4, 70, Layout::planar, true}, {0, 3});
  check({"f16", "f16", 80, 4, 70, Layout::rows, true}, {0, 3});
  for (const char* format : {"f16", "q4_0", "q8_0", "kv4", "kv3", "fp8_e4m3"})
    for (const int queries : {9, 16}) check({format, format, 128, 4, queries, Layout::planar, true}, {0, 1, 3});
}

TEST_CASE("append of many rows, stored ahead of prefill") {
  if (!arch_has("wgmma", "append ahead of prefill")) return;
  appends::check_append_by_prefill(gpu());
}

TEST_CASE("prefill in two passes: formats, layouts, contexts of one chunk and of several") {
  if (!arch_has("cp_async", "prefill in two passes")) return;
  const auto device = gpu();
  const std::string arch = device->backend()->info().arch;
  const bool has_wide_heads = must(registry().require_arch(arch, {}))->has("wgmma");
  const std::vector<int> lengths = {700, 0, 5, 128, 257};
  const auto check = [&](const Case& test) {
    if (test.head_dim > 128 && !has_wide_heads) return;
    const Planned one = planned(registry(), test, arch);
    INFO(one.test.name());
    REQUIRE(!one.source.second_pass.empty());
    Judge judge(device, one, int(lengths.size()), lengths[0]);
    KernelHarness::Call call{0, lengths, 0, false};
    call.many_rows = ManyRows::two_pass;
    for (const std::size_t context_chunk_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{300} << 10}) {
      call.context_chunk_bytes = context_chunk_bytes;
      for (const int blocks : {0, 3}) {
        call.blocks = blocks;
        judge.check(call);
      }
      const auto first = must(judge.attend(call)).out;
      for (int i = 0; i < 100; ++i) CHECK(must(judge.attend(call)).out == first);
    }
  };
  for (const char* format : {"kv4", "tbq4_0", "q4_0", "q8_0", "fp8_e4m3", "kv3", "kv2", "vllm_k4_nc", "turbo4_qjl68",
                             "turbo_split_54", "tbq4_dense_qsfirst_raw"}) {
    check({format, format, 128, 4, 70, Layout::planar, true});
    check({format, "kv4", 128, 4, 70, Layout::rows, true});
    check({"f16", format, 128, 3, 50, Layout::paged, false, 0, 16});
  }
  for (const char* format : {"tbqp4_0", "tbq4_dense256_qsfirst_raw", "kv4"})
    check({format, format, 256, 4, 40, Layout::planar, true});
  check({"q8_0", "kv4", 192, 4, 40, Layout::planar, true, 128});
}

TEST_CASE("run-time query lengths: any number of queries, and ragged batches of decode and prefill") {
  const auto device = gpu();
  const std::string arch = device->backend()->info().arch;
  const std::vector<int> lengths = {700, 300, 900, 33, 1, 640}, counts = {1, 0, 300, 13, 1, 150};
  for (const char* format : {"f16", "kv4", "tbq4_0", "q8_0", "kv3", "tbq4_dense_qsfirst_raw"})
    for (Case test : {Case{format, format, 128, 4, 300, Layout::planar, true},
                      Case{"kv4", format, 128, 3, 300, Layout::paged, false, 0, 16}}) {
      test.is_varlen = true;
      const Planned one = planned(registry(), test, arch);
      Judge judge(device, one, int(lengths.size()), 900);
      for (const int queries : {1, 2, 5, 16, 100, 170, 300}) {
        KernelHarness::Call call{0, {900, 300, 512, 700, 301, 640}, 0, false};
        call.queries = queries;
        judge.check(call);
      }
      KernelHarness::Call ragged{0, lengths, 0, false};
      ragged.query_counts = counts;
      for (const int blocks : {0, 3}) {
        ragged.blocks = blocks;
        judge.check(ragged);
      }
      ragged.blocks = 0;
      const auto first = must(judge.attend(ragged)).out;
      for (int i = 0; i < 100; ++i) CHECK(must(judge.attend(ragged)).out == first);
      if (one.source.prefill_rows == 0) continue;
      // A sequence by prefill has the same bits alone.
      KernelHarness::Call alone{0, {0, 0, 900, 0, 0, 0}, 0, false};
      alone.query_counts = {0, 0, 300, 0, 0, 0};
      const std::size_t before = std::size_t(kKvHeads) * std::size_t(test.gqa) * 128, values = 300 * before;
      KernelHarness::Call in_batch = ragged;
      in_batch.query_counts = {0, 0, 300, 13, 1, 150};
      const auto batch = must(judge.attend(in_batch)).out, one_sequence = must(judge.attend(alone)).out;
      CHECK_MESSAGE(std::equal(one_sequence.begin(), one_sequence.begin() + std::ptrdiff_t(values), batch.begin()),
                    test.name());
    }
}

TEST_CASE("several queries, and the reference kernel") {
  compare({{"tbq4_0", "q8_0", 128, 4, 4, Layout::planar, true},
           {"q4_0", "tbq4_0", 128, 8, 2, Layout::rows, true},
           {"f16", "bf16", 64, 1, 2, Layout::planar, false}},
          {1, 4}, true);
}

TEST_CASE("sequences of different lengths") {
  const auto device = gpu();
  const Planned one =
      planned(registry(), {"tbq4_0", "q4_0", 128, 4, 2, Layout::planar, true}, device->backend()->info().arch);
  Judge judge(device, one, 3);
  for (const int blocks : {0, 1, 3, 7, 13}) judge.check({0, {257, 2, 100}, blocks, false});
  // Long enough that blocks have tiles of two batch-heads, with the boundary inside one.
  const Planned other = planned(registry(), {"f16", "q8_0", 128, 4, 1}, device->backend()->info().arch);
  Judge longer(device, other, 3, 4000);
  for (const int blocks : {4, 5, 7}) {
    const auto out = longer.check({0, {4000, 3990, 3000}, blocks, false});
    CHECK(longer.check({0, {4000, 3990, 3000}, blocks, false}) == out);
    longer.check({4000, {}, blocks, false});
  }
}

// Returns a kernel that triggers the next kernel (PDL) at once and writes the lengths only much later, after the next
// kernel has read them.
Source late_writer(const std::string& arch) {
  Source source;
  source.name = "late_writer";
  source.entry = "kv_late";
  source.arch = arch;
  source.threads = 32;
  source.args_bytes = 24;
  source.text = R"(
struct Args { int* to; int values[4]; };
extern "C" __global__ void kv_late(const __grid_constant__ Args args) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const long long begin = clock64();
  while (clock64() - begin < 200000) {}
  if (threadIdx.x < 4) args.to[threadIdx.x] = args.values[threadIdx.x];
}
)";
  return source;
}

TEST_CASE("lengths that the previous kernel writes at its very end") {
  const auto device = gpu();
  const std::string arch = device->backend()->info().arch;
  const KernelRecord writer = must(device->get(late_writer(arch)));
  Caller caller(device, planned(registry(), {"tbq4_0", "q4_0", 128, 4, 1, Layout::rows}, arch), {4, kKvHeads, 700});
  const std::vector<std::vector<int>> lengths = {{700, 1, 0, 64}, {3, 700, 650, 699}, {700, 700, 700, 700}};
  for (const auto& before : lengths)
    for (const auto& after : lengths)
      for (const int blocks : {0, 5}) {
        const Caller::Shape shape{4, 700, blocks, after};
        must(caller.run(shape, [&](DevicePointer at) -> Result<void> {
          KV_CHECK(device->backend()->copy_to_device(at, before.data(), 4 * sizeof(int)));
          struct {
            DevicePointer to;
            int values[4];
          } args{at, {after[0], after[1], after[2], after[3]}};
          return device->backend()->launch(*writer.kernel, Grid{1, 1, 1}, &args, nullptr);
        }));
        const double error = caller.error(shape);
        CHECK_MESSAGE(error <= kMaxKernelError, fmt::format("{} then {}, {} blocks: {}", fmt::join(before, " "),
                                                            fmt::join(after, " "), blocks, error));
        CHECK(caller.counters_are_zero());
      }
}

// Returns each format with itself, at the smaller head_dim of 128 and 256 that it fits.
std::vector<Case> every_format(Layout layout) {
  std::vector<Case> cases;
  for (const std::string& name : format_names(registry()))
    cases.push_back({name, name, fitting(registry(), name, {128, 256}).at(0), 4, 1, layout, false});
  return cases;
}

TEST_CASE("many splits of a batch-head: merged in groups, or by a launch of their own") {
  const auto device = gpu();
  constexpr int kTokens = 8192;
  struct Example {
    Case test;
    std::size_t launches;
  };
  const std::vector<Example> examples = {{{"kv4", "tbq4_0", 128, 8, 1, Layout::planar}, 1},
                                         {{"q8_0", "q4_0", 576, 16, 1, Layout::rows, false, 512}, 2},
                                         {{"kv4", "tbq4_0", 128, 16, 5, Layout::planar, true}, 2}};
  for (const Example& example : examples) {
    const Planned one = planned(registry(), example.test, device->backend()->info().arch);
    Judge judge(device, one, 1, kTokens);
    const KernelHarness::Call call{kTokens, {}, 0, false};
    const auto out = judge.check(call);
    const auto again = must(judge.attend(call));
    CHECK_MESSAGE(again.out == out, one.test.name(), ": other bits the second time");
    CHECK_MESSAGE(again.report.kernels.size() == example.launches, one.test.name());
  }
}

TEST_CASE("token-major heads") {
  if (!arch_has("bulk_copy", "token-major heads")) return;
  std::vector<Case> cases;
  for (const char* k : {"kv4", "tbq4_0", "q8_0"})
    for (const char* v : {"tbq3_0", "q4_0", "f16"})
      for (const int gqa : {1, 3, 4}) {
        cases.push_back({k, v, 128, gqa, 2, Layout::rows, true});
        cases.back().token_heads = 8;
      }
  compare(cases, {0, 1, 3}, false);
}

TEST_CASE("features over token-major heads") {
  if (!arch_has("bulk_copy", "features over token-major heads")) return;
  const std::string arch = gpu()->backend()->info().arch;
  const char* const all =
      "softcap = 5.0\nwindow = [90, 4]\nfeatures = [\"mask\", \"mask_slopes\", \"sinks\", \"lse\", "
      "\"position_offset\"]";
  const std::vector<int> lengths = {900, 0, 1, 33, 128};
  for (const FeatureCase& test : {FeatureCase{"q4_0", "q4_0", "features = [\"mask\"]", 4, 2, Layout::rows, 8},
                                  FeatureCase{"q8_0", "kv4", all, 8, 1, Layout::rows, 8},
                                  FeatureCase{"tbq3_0", "q5_1", all, 2, 3, Layout::rows, 8}}) {
    FeatureJudge judge(gpu(), planned(registry(), test, arch), int(lengths.size()), 900);
    for (const int blocks : {0, 1, 3, 17}) CHECK_MESSAGE(!judge.is_wrong(lengths, blocks), test.k, ", ", blocks);
  }
}

TEST_CASE("ranges of tokens: one sequence, several, and token-major heads") {
  const std::string arch = gpu()->backend()->info().arch;
  const bool has_heads = must(registry().require_arch(arch, {}))->has("bulk_copy");
  const char* const ranged = "window = [90, 4]\nfeatures = [\"mask\", \"sinks\", \"lse\", \"token_ranges\"]";
  std::vector<FeatureCase> cases = {{"kv4", "q4_0", ranged, 2, 2},
                                    {"f16", "q8_0", "features = [\"token_ranges\"]", 4, 1, Layout::rows}};
  if (has_heads) cases.push_back({"q8_0", "q8_0", ranged, 4, 2, Layout::rows, 8});
  for (const FeatureCase& test : cases)
    for (const std::vector<int>& lengths : {std::vector<int>{900, 0, 1, 33, 128}, std::vector<int>{900}}) {
      FeatureJudge judge(gpu(), planned(registry(), test, arch), int(lengths.size()), 900);
      for (const int blocks : {0, 1, 3, 17}) CHECK_MESSAGE(!judge.is_wrong(lengths, blocks), test.keys, ", ", blocks);
    }
}

TEST_CASE("every format with itself, planar") { compare(every_format(Layout::planar), {0, 4}, false); }

TEST_CASE("every format with itself, rows") { compare(every_format(Layout::rows), {4}, false); }

TEST_CASE("quantize and dequantize of every format, both layouts") {
  const auto device = gpu();
  for (const Layout layout : {Layout::planar, Layout::rows}) {
    std::vector<Planned> all;
    for (const Case& test : every_format(layout))
      all.push_back(planned(registry(), test, device->backend()->info().arch));
    warm_up(device, all, std::max(2u, std::thread::hardware_concurrency()), true);
    for (const Planned& one : all) {
      Judge judge(device, one);
      check_codec_kernels(judge, one.test.name());
    }
  }
}

TEST_CASE("values of any size, and a token that outweighs the rest") { check_ranges(gpu(), registry()); }

TEST_CASE("rows at any 2-byte alignment") { check_placements(gpu(), registry()); }

TEST_CASE("operations on caches: slots, copies, rotary positions") {
  slots::check_slots(gpu());
  copies::check_copies(gpu());
  ropes::check_ropes(gpu());
  ropes::check_shifted_cache(gpu());
  ropes::check_tile_shifts(gpu());
  ropes::check_tile_writes(gpu());
}

TEST_CASE("thousands of calls, one behind the other, give the same bits") {
  const auto device = gpu();
  const std::string arch = device->backend()->info().arch;
  for (const Case& test : {Case{"kv4", "kv4", 128, 8}, Case{"f16", "q8_0", 64, 1}, Case{"tbq4_0", "kv3", 128, 16},
                           Case{"kv4", "kv4", 128, 16, 4}, Case{"kv4", "f16", 128, 24, 4},
                           Case{"f16", "f16", 576, 16, 1, Layout::rows, false, 512}}) {
    const Planned one = planned(registry(), test, arch);
    Judge judge(device, one, 1, 2049);
    CHECK(judge.differing(2049, 20'000) == 0);
  }
}

TEST_CASE("golden bytes from the quantize kernel") { check_goldens(gpu(), registry()); }

}  // namespace
}  // namespace kvjit::test
