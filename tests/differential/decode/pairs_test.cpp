// 25 combinations of K and V formats through the kernels on the CPU back-end, against attention in double precision
// over the decoded cache.
// SPDX-License-Identifier: MIT
#include <cstdlib>

#include "tests/differential/caller.hpp"
#include "tests/differential/harness.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit::test {
namespace {

constexpr unsigned kCompileThreads = 2;

std::vector<Planned> plan_all(const std::shared_ptr<Context>& context, const std::vector<Case>& cases) {
  std::vector<Planned> all;
  for (const Case& test : cases) all.push_back(planned(registry(), test, context->backend()->info().arch));
  warm_up(context, all, kCompileThreads);
  return all;
}

void check_ragged(const std::vector<Case>& cases) {
  const auto context = open_context(DeviceKind::cpu);
  for (const Planned& one : plan_all(context, cases)) {
    Judge judge(context, one);
    for (const int tokens : judge.ragged_lengths()) judge.check({tokens, {}, 0, false});
  }
}

// Every second pair has each head_dim and each GQA group once (KVJIT_FULL=1: each pair all nine).
TEST_CASE("25 pairs, head_dim 64, 128 and 256, GQA 1, 4 and 8, planar") {
  const auto cases = pairs(registry(), {64, 128, 256}, {1, 4, 8}, Layout::planar);
  CHECK(cases.size() == 25 * 2 * 3 + 16 * 3);
  std::vector<Case> in_turn;  // of three neighbours, which differ in GQA, one; of the next three another
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (std::getenv("KVJIT_FULL") != nullptr || i % 3 == i / 3 % 3) in_turn.push_back(cases[i]);
  check_ragged(every_nth(in_turn, 3));
}

TEST_CASE("25 pairs in rows") {
  auto cases = pairs(registry(), {128}, {4}, Layout::rows);
  for (const Case& more :
       {Case{"q8_0", "tbq4_0", 256, 8, 1, Layout::rows}, Case{"tbq4_0", "q4_0", 256, 1, 1, Layout::rows},
        Case{"q4_0", "f16", 64, 1, 1, Layout::rows}, Case{"bf16", "q8_0", 64, 8, 1, Layout::rows}})
    cases.push_back(more);
  check_ragged(every_nth(cases, 3));
}

TEST_CASE("several queries, causal and not, any number of blocks") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Case> cases;
  for (const int queries : {2, 4})
    for (const bool is_causal : {true, false})
      for (const auto& [k, v] : {std::pair{"tbq4_0", "q8_0"}, {"q4_0", "tbq4_0"}, {"f16", "q4_0"}})
        cases.push_back({k, v, 128, 4, queries, Layout::planar, is_causal});
  cases.push_back({"tbq4_0", "tbq4_0", 128, 3, 5, Layout::rows, true});  // 15 rows: the last column block is not full
  for (const Planned& one : plan_all(context, cases)) {
    Judge judge(context, one);
    for (const int tokens : judge.ragged_lengths())
      for (const int blocks : {1, 3}) judge.check({tokens, {}, blocks, false});
    for (const int tokens : {5, 257}) judge.check({tokens, {}, 0, true});
  }
}

TEST_CASE("sequences of different lengths, one shorter than a split") {
  const auto context = open_context(DeviceKind::cpu);
  const std::vector<Case> cases = {{"tbq4_0", "tbq4_0", 128, 4, 1, Layout::planar, false},
                                   {"q8_0", "q4_0", 128, 8, 2, Layout::rows, true},
                                   {"bf16", "f16", 64, 1, 1, Layout::planar, false}};
  for (const Planned& one : plan_all(context, cases)) {
    Judge judge(context, one, 3);
    for (const int blocks : {1, 3})
      for (const bool is_reference : {false, true}) judge.check({0, {257, 2, 100}, blocks, is_reference});
  }
}

TEST_CASE("the order of lanes and warps does not matter") {
  const std::vector<Case> cases = {{"tbq4_0", "tbq4_0"}, {"q4_0", "q8_0"}, {"f16", "bf16"}};
  for (const unsigned seed : {1u, 7u, 12345u}) {
    const auto context = open_context(DeviceKind::cpu, seed);
    for (const Planned& one : plan_all(context, cases)) {
      Judge judge(context, one);
      judge.check({257, {}, 3, false});
      judge.check({33, {}, 1, false});
    }
  }
}

TEST_CASE("quantize, dequantize and reference of every format, both layouts") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* format : kFormats)
    for (const Layout layout : {Layout::planar, Layout::rows})
      for (const int head_dim : {128, 256}) {
        const Planned one =
            planned(registry(), {format, format, head_dim, 4, 1, layout, false}, context->backend()->info().arch);
        warm_up(context, {one}, kCompileThreads, true);
        Judge judge(context, one);
        for (const int tokens : judge.ragged_lengths()) judge.check({tokens, {}, 0, true});
        check_codec_kernels(judge, one.test.name());
      }
}

// Long enough that every warp goes around its ring of stages several times and rescales meanwhile.
constexpr int kLong = 3333;

TEST_CASE("long caches") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Case& test :
       {Case{"tbq4_0", "q8_0", 128, 4, 2, Layout::planar, true}, Case{"q4_0", "tbq4_0", 256, 8, 1, Layout::rows, false},
        Case{"f16", "f16", 64, 1, 1, Layout::planar, false}}) {
    Judge judge(context, planned(registry(), test, context->backend()->info().arch), 1, kLong);
    for (const int blocks : {1, 3}) judge.check({kLong, {}, blocks, false});
  }
}

// Mutation test: one word of a kernel is changed at a time, and the checks above must notice it.
struct Mutation {
  const char* k;
  const char* v;
  const char* file;  // under templates/ or specs/; null: the emitted text of the decode kernel
  const char* from;
  const char* to;
};
constexpr Mutation kMutations[] = {
    {"tbq4_0", "q8_0", "templates/features/causal.cuh", "token <= length - kQueries + query",
     "token < length - kQueries + query"},
    // The back-end lets copies land as late as they may: without the wait the stage holds poison.
    {"tbq4_0", "q8_0", "templates/kernels/decode/decode.cuh", "copy_wait<kStages - 2>();", ""},
    {"tbq4_0", "q8_0", "templates/kernels/decode/scores.cuh", "sum[0][i / 4][i % 4] * factor[i % 4]",
     "sum[0][i / 4][i % 4]"},
    {"tbq4_0", "q8_0", "templates/kernels/decode/softmax.cuh", "softmax.sum[n][j] *= rescale_factor;", ""},
    {"tbq4_0", "q8_0", "templates/kernels/decode/values.cuh", "mul_f16x2(b[n][1], high)", "b[n][1]"},
    {"kv4", "q8_0", "templates/kernels/decode/scores.cuh", "scale[j / 2] * of_column[j % 2]", "scale[j / 2]"},
    {"kv4", "q8_0", "templates/kernels/decode/scores.cuh", "return -softmax.reference_max",
     "return softmax.reference_max"},
    {"tbq4_0", "tbq4_0", "templates/kernels/decode/unpack_f16.cuh", "y0[m] >> kBits, y1[m]", "y1[m] >> kBits, y0[m]"},
    {"tbq4_0", "q8_0", "templates/kernels/decode/unpack_f16.cuh", "(0x6400u + F::kOffset) * 0x10001u",
     "(0x6401u + F::kOffset) * 0x10001u"},
    {"tbq4_0", "q8_0", "templates/kernels/decode/split_merge.cuh", "weight * other.denominator", "other.denominator"},
    {"tbq4_0", "q8_0", "templates/kernels/decode/split_merge.cuh", "i64(p) * (Plan::kRows * 2)",
     "i64(p) * Plan::kRows"},
    {"tbq4_0", "q8_0", "templates/rotations/wht.cuh", "? -1.f : 1.f", "? 1.f : -1.f"},
    // The minimum is not added; residual signs lack their factor; the bits of a code come from exchanged planes.
    {"q4_1", "q8_0", "templates/kernels/decode/scores.cuh", "before += minimum[i % 4 / 2]",
     "before += minimum[0] * 0.f"},
    {"q8_0", "q4_1", "templates/kernels/decode/unpack_f16.cuh", "fma_f16x2(h[i], scale, minimum)",
     "fma_f16x2(h[i], scale, 0)"},
    {"turbo4_qjl68", "q8_0", nullptr, " * 0.8033443f", ""},
    {"q8_0", "turbo4_qjl68", nullptr, " * 0.8033443f", ""},
    {"turbo3_qk128", "q8_0", "specs/formats/turbo3_qk128.toml",
     "low = 0\nbits = 2\n\n[[fields]]\nfield = \"codes\"\nlow = 2",
     "low = 1\nbits = 2\n\n[[fields]]\nfield = \"codes\"\nlow = 0"},
    // Nibbles are read as a bit stream; codes of two tokens are not separated; words are not shifted to the first bit
    // of a lane.
    {"kv3", "q8_0", "specs/formats/kv3.toml", "nibbles_from = 128", "nibbles_from = 256"},
    {"q8_0", "kv2", "templates/kernels/decode/unpack_f16.cuh", ": 0x33333333u", ": 0x0f0f0f0fu"},
    {"q8_0", "tbq3_0", "templates/kernels/decode/unpack_f16.cuh", "? 0x07070707u", "? 0x0f0f0f0fu"},
    {"q8_0", "kv4", "templates/kernels/decode/unpack_f16.cuh", "? 0x0f0f0f0fu", "? 0x07070707u"},
    {"buun_turbo3_tcq", "q8_0", "templates/kernels/decode/rare/unpack.cuh", "i * S::kStep - kShift",
     "i * S::kStep + 1 - kShift"},
    {"q8_0", "buun_turbo3_tcq", "templates/kernels/decode/rare/unpack.cuh", "h[i] = permute(first, second, 0x5410)",
     "h[i] = permute(second, first, 0x5410)"},
    {"q8_0", "kvt2", "templates/kernels/decode/rare/unpack.cuh", "permute(first, second, 0x7632)",
     "permute(second, first, 0x7632)"},
    {"kvt2", "q8_0", "templates/kernels/decode/rare/unpack.cuh", "half_value(states >> S::kStep)",
     "half_value(states >> S::kStep & kMask / 2)"},
    {"kvt3", "q8_0", "templates/kernels/decode/rare/planes.cuh", "is_last ? 0 : row_lane + 1", "row_lane"},
    {"q8_0", "vllm_octave_3", "templates/kernels/decode/rare/planes.cuh", "% 2 * Plane::kSharedBits", "% 2 * 0"},
    {"vllm_octave_k", "q8_0", "templates/rotations/head_signs.cuh", "Signs::head_signs(e)", "Signs::head_signs(e % 2)"},
    {"vllm_int4_per_token_head", "q8_0", "templates/kernels/decode/rare/zero_keys.cuh", "- S::scale(at, 0)",
     "- 0.9f * S::scale(at, 0)"},
    {"ninfer_rk2_e8", "q8_0", "templates/kernels/decode/rare/vectors.cuh", "code & 0x800u ? step : 0u", "0u"},
    {"q8_0", "ninfer_rk2_e8", "templates/kernels/decode/rare/vectors.cuh", "permute(first[j], second[j], 0x7632)",
     "permute(first[j], second[j], 0x5410)"},
    {"vllm_k8_sm80", "q8_0", "templates/kernels/decode/rare/unpack.cuh", "0x3f803f80u", "0x3f003f00u"},
    {"q8_0", "kv3", "templates/kernels/decode/stage_tile.cuh", ">>= shared_by * Plane::kWrapBits", ">>= 0"},
    {"q8_0", "tbq3_0", "templates/kernels/decode/stage_tile.cuh", ": row_lane * Plane::kLaneBits % (8 * kStep);",
     ": 0;"},
};

void mutate(std::string& text, const Mutation& mutation) {
  const std::size_t at = text.find(mutation.from);
  REQUIRE_MESSAGE(at != std::string::npos, std::string(mutation.file ? mutation.file : mutation.k),
                  " no longer has: ", std::string(mutation.from));
  text.replace(at, std::string(mutation.from).size(), mutation.to);
}

// Returns a program with a mutated kernel, over the correct cache and with the correct answer.
Planned mutated(const Mutation& mutation, const std::string& arch) {
  const Case test{mutation.k, mutation.v, 128, 4, 2, Layout::planar, true};
  Planned right = planned(registry(), test, arch);
  if (!mutation.file) {
    Text& kernel = right.source.kernels.at(Role::decode).text;
    std::string text = kernel.str();
    mutate(text, mutation);
    kernel = text;
    return right;
  }
  FileSet files = embedded_files();
  mutate(files.at(mutation.file), mutation);
  return {test, right.problem, planned(must(Registry::load(files)), test, arch).source};
}

TEST_CASE("a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : every_nth(std::vector(std::begin(kMutations), std::end(kMutations)), 2)) {
    Judge judge(context, mutated(mutation, context->backend()->info().arch), 1, kLong);
    const bool is_noticed = judge.is_wrong({257, {}, 3, false}) || judge.is_wrong({kLong, {}, 3, false});
    CHECK_MESSAGE(is_noticed, std::string(mutation.k), " and ", std::string(mutation.v),
                  ": not noticed: ", std::string(mutation.from), " -> ", std::string(mutation.to));
  }
}

TEST_CASE("values of any size, and a token that outweighs the rest") {
  check_ranges(open_context(DeviceKind::cpu), registry());
}

TEST_CASE("rows at any 2-byte alignment") { check_placements(open_context(DeviceKind::cpu), registry()); }

TEST_CASE("golden bytes from the quantize kernel") { check_goldens(open_context(DeviceKind::cpu), registry()); }

}  // namespace
}  // namespace kvjit::test
