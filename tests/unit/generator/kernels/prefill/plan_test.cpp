// plan_prefill: what it serves and what it refuses, with the reason; the order of dimensions; registers and memory.
// SPDX-License-Identifier: MIT
#include "generator/kernels/prefill/plan.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/program.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

Problem problem_of(const std::string& k, const std::string& v, const std::string& attention = "",
                   const std::string& cache = "", const char* arch = "sm_90a") {
  const std::string toml =
      fmt::format("[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nq_heads_per_kv = 4\n{}\n[cache]\n{}\n", k,
                  v, attention.empty() ? "query_length = 100" : attention, cache);
  return must(resolve(must(parse_specs(toml, "spec")).at(0), registry(), arch));
}

std::string refusal(const Problem& problem) {
  const auto plan = plan_prefill(problem);
  return plan ? "served" : plan.error().message;
}

TEST_CASE("problems that prefill does not serve have a reason") {
  const auto says = [](const Problem& problem, const char* what) {
    const std::string text = refusal(problem);
    CHECK_MESSAGE(text.find(what) != std::string::npos, text);
  };
  CHECK(refusal(problem_of("kv4", "kv4")) == "served");
  says(problem_of("kv4", "kv4", "", "", "sm_80"), "no wgmma");
  CHECK(refusal(problem_of("kv4", "kv4", "query_length = 100\nappend = true")) == "served");
  CHECK(refusal(problem_of("kv4", "kv4", "query_length = 9")) == "served");
  says(problem_of("kv4", "kv4", "query_length = 8"), "32 query rows");
  CHECK(refusal(problem_of("f16", "f16", "query_length = 40\nhead_dim_k = 576\nhead_dim_v = 512")) == "served");
  says(problem_of("f16", "f16", "query_length = 40\nhead_dim = 576"), "576 dimensions of K and 576 of V");
  says(problem_of("f16", "f16", "query_length = 40\nhead_dim = 72"), "multiples of 16 from 64");
  says(problem_of("kv4", "kv4", "query_length = 100\nsparse_v = 1e-3"), "skips no values");
  says(problem_of("q4_0", "q4_0", "query_length = 100\nhead_dim = 96"), "rows of 96 values");
  says(problem_of("kv4", "f16", "query_length = 100\nhead_dim_k = 128\nhead_dim_v = 192"), "v (f16) has rows of 192");
  says(problem_of("amesianx_tbqp4_1", "kv4"), "2 section(s)");
  says(problem_of("f32", "kv4"), "4 values at once");
}

TEST_CASE("calls take prefill from 512 rows on, with fewer where it was measured; the decision says which") {
  const auto choice = [](const char* attention, const char* says, const char* cache = "") {
    const Problem problem = problem_of("kv4", "kv4", attention, cache);
    const PrefillPlan plan = must(plan_prefill(problem));
    CHECK(must(make_program(problem, registry())).prefill_choice == plan.choice);
    CHECK_MESSAGE(plan.decisions.back().why.find(says) != std::string::npos, plan.decisions.back().why);
    return plan.choice;
  };
  const auto few_rows = [](const char* k, const char* v) {
    return must(plan_prefill(problem_of(k, v, "query_length = 16"))).choice;
  };
  CHECK(few_rows("q4_0", "q8_0") == PrefillChoice::if_full);
  CHECK(few_rows("kv3", "kv2") == PrefillChoice::if_full);
  CHECK(few_rows("kv4", "q4_0") == PrefillChoice::never);
  CHECK(few_rows("f16", "f16") == PrefillChoice::never);
  CHECK(choice("query_length = 128", "calls on a GPU take it") == PrefillChoice::always);
  CHECK(choice("query_length = 128\nfeatures = [\"packed_mask\"]", "take it") == PrefillChoice::always);
  CHECK(choice("query_length = 128\nfeatures = [\"mask\"]", "element of a mask") == PrefillChoice::never);
  for (const char* few : {"query_length = 127", "query_length = 17\nfeatures = [\"causal\", \"lse\"]"})
    CHECK(choice(few, "three quarters of a GPU") == PrefillChoice::if_full);
  for (const char* few : {"query_length = 127\nfeatures = [\"alibi\"]", "query_length = 127\nwindow = [63, 0]",
                          "query_length = 33\nhead_dim = 256"})
    CHECK(choice(few, "decode below 512 rows") == PrefillChoice::never);
  const char* const kWide = "query_length = 64\nhead_dim_k = 576\nhead_dim_v = 512";
  CHECK(must(plan_prefill(problem_of("f16", "f16", kWide))).choice == PrefillChoice::always);
  CHECK(choice("query_length = 127", "decode below 512 rows", "layout = \"rows\"") == PrefillChoice::never);
}

TEST_CASE("up to 128 rows are one block a consumer, and twice as many warps produce") {
  const auto plan = [](const char* attention) { return must(plan_prefill(problem_of("kv4", "q8_0", attention))); };
  for (const auto& [attention, blocks, warps] : {std::tuple{"query_length = 32", 1, 8},
                                                 {"query_length = 33", 2, 4},
                                                 {"query_length = 32\nhead_dim = 256", 1, 4},
                                                 {"query_length = 64\nhead_dim = 256", 1, 4}}) {
    const PrefillPlan one = plan(attention);
    CHECK(one.blocks == blocks);
    CHECK(one.producer_warps == warps);
    CHECK(32 * warps * one.producer_registers + 256 * one.consumer_registers == (warps == 8 ? 65536 : 64512));
  }
}

TEST_CASE("a program says which of both kernels it has, and why") {
  const auto decision = [](const Problem& problem) {
    const ProgramSource program = must(make_program(problem, registry()));
    CHECK((program.prefill_rows > 0) == (program.kernels.count(Role::prefill) == 1));
    for (const Decision& each : program.decisions)
      if (each.what == "prefill") return each.choice + "; " + each.why;
    return std::string("nothing");
  };
  CHECK(decision(problem_of("kv4", "kv4")).find("256 rows a block") == 0);
  CHECK(decision(problem_of("f32", "kv4")).find("none: query chunks of decode; k (f32)") == 0);
  CHECK(decision(problem_of("turbo4_qjl68", "kv4")).find("in two passes; calls of 128 queries and more") == 0);
  CHECK(decision(problem_of("kv4", "kv4", "query_length = 8")) == "nothing");
}

TEST_CASE("two passes: from how many queries on, by what they save; the reason where there are none") {
  const auto least = [](const Problem& problem) {
    const ProgramSource program = must(make_program(problem, registry()));
    CHECK(program.second_pass.size() == (program.k.fits_rows || program.v.fits_rows ? 2 : 1));
    for (const ProgramSource& pass : program.second_pass) CHECK(pass.kernels.size() == 1);
    CHECK(program.kernels.count(Role::dequantize_chunk_k) == 1);
    return program.least_two_pass_queries;
  };
  const std::string many = "query_length = 4096";  // problem_of has 4 heads a KV head
  CHECK(least(problem_of("kv4", "kv4", many)) == 512);
  CHECK(least(problem_of("q8_0", "kv4", many)) == 512);
  CHECK(least(problem_of("fp8_e4m3", "fp8_e4m3", many)) == 0);  // one pass is as fast
  CHECK(least(problem_of("q8_0", "q4_0", many)) == 1024);       // up to 4096 rows, because rows may have powers of two
  CHECK(least(problem_of("q8_0", "q4_0", many, "layout = \"rows\"")) == 512);
  CHECK(least(problem_of("q8_0", "q4_0", many + "\nhead_dim = 256")) == 512);
  CHECK(least(problem_of("turbo4_qjl68", "kv4", many)) == 128);  // one pass does not serve it
  CHECK(least(problem_of("kv4", "kv4", many + "\nfeatures = [\"mask\"]")) == 0);
  for (const auto& [k, v] : {std::pair{"f16", "f16"}, {"f32", "kv4"}})
    CHECK(must(make_program(problem_of(k, v, many), registry())).second_pass.empty());
  const ProgramSource varlen = must(make_program(problem_of("kv4", "kv4", "query_length = \"any\""), registry()));
  CHECK(varlen.second_pass.empty());
  CHECK(second_pass_of(varlen) == &varlen.buckets.back().second_pass.front());
  const ProgramSource only =
      must(make_program(problem_of("turbo4_qjl68", "kv4", "query_length = \"any\""), registry()));
  CHECK(second_pass_of(only) != nullptr);  // decode serves any number, too, for ragged batches
  CHECK(only.buckets[only.buckets.size() - 2].query_length == only.query_length);
}

TEST_CASE("archs without wgmma: f16 in one pass by mma.sync, all formats in two; what does not fit is said") {
  const auto on = [](const char* k, const char* v, const std::string& attention, const char* arch) {
    return must(make_program(problem_of(k, v, "query_length = 1024" + attention, "", arch), registry()));
  };
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100a", "sm_120a"}) {
    CHECK(on("f16", "f16", "", arch).prefill_choice == PrefillChoice::always);
    const ProgramSource two = on("kv4", "turbo4_qjl68", "", arch);
    CHECK(two.prefill_rows == 0);
    CHECK(two.least_two_pass_queries == 512);
    CHECK(two.second_pass.at(0).kernels.at(Role::prefill).threads == 256);
  }
  const auto why = [&](const ProgramSource& program) {
    CHECK(program.second_pass.empty());
    for (const Decision& each : program.decisions)
      if (each.what == "prefill" && each.choice.find("none") == 0) return each.why;
    return std::string("nothing");
  };
  CHECK(why(on("f16", "f16", "", "sm_75")).find("no wgmma, and no mma") != std::string::npos);
  CHECK(why(on("f16", "f16", "\nhead_dim = 256", "sm_80")).find("128 dimensions of V at most") != std::string::npos);
  CHECK(why(on("f16", "f16", "\nhead_dim = 192\nhead_dim_v = 128", "sm_86")).find("bytes of shared memory") !=
        std::string::npos);
}

TEST_CASE("kernels of both passes wait for the previous one themselves, so launches overlap where the arch lets them") {
  for (const auto& [arch, may_overlap] : {std::pair{"sm_90a", true}, {"sm_86", false}}) {
    const ProgramSource program =
        must(make_program(problem_of("kv4", "q8_0", "query_length = 1024", "", arch), registry()));
    for (const Source* kernel :
         {&program.kernels.at(Role::dequantize_chunk_k), &program.kernels.at(Role::dequantize_chunk_v),
          &program.second_pass.at(0).kernels.at(Role::prefill)}) {
      CHECK(kernel->may_overlap == may_overlap);
      CHECK(kernel->text.str().find("kv::pdl_wait();\n  kv::pdl_trigger();") != std::string::npos);
      const bool is_first_pass = kernel->name.starts_with("dequantize");
      CHECK((kernel->text.str().find("if (args.waits_at_end != 0) kv::pdl_wait();") != std::string::npos) ==
            is_first_pass);
    }
    CHECK(program.kernels.at(Role::dequantize_k).text.str().find("kv::pdl_wait();") == std::string::npos);
  }
}

TEST_CASE("the second pass is a program over f16, the same for every format; dense rotations stay") {
  const auto second = [](const char* k, const char* v, const char* attention) {
    return must(make_program(problem_of(k, v, attention), registry())).second_pass.at(0);
  };
  const ProgramSource one = second("kv4", "q8_0", "query_length = 512");
  CHECK(one.kernels.at(Role::prefill).text.str() ==
        second("tbq3_0", "q4_1", "query_length = 512").kernels.at(Role::prefill).text.str());
  CHECK(one.id.find("f16-f16") == 0);
  // Rows of q8_0 and bf16 may leave fp16; those of kv4 and fp8 do not.
  for (const auto& [format, fits_rows] : {std::pair{"q8_0", true},
                                          {"bf16", true},
                                          {"mxfp4", true},
                                          {"vllm_int8_per_token_head", true},
                                          {"kv4", false},
                                          {"fp8_e4m3", false}}) {
    const ProgramSource program = must(make_program(problem_of(format, "kv4", "query_length = 512"), registry()));
    CHECK(program.k.fits_rows == fits_rows);
    CHECK(!program.v.fits_rows);
    CHECK(program.second_pass.size() == (fits_rows ? 2 : 1));
    const std::string first = program.second_pass[0].kernels.at(Role::prefill).text.str();
    CHECK((first.find("kTakesPowers = false") != std::string::npos) == fits_rows);
    CHECK(first.find("kExponentsAt") == std::string::npos);
    if (fits_rows) {
      const std::string other = program.second_pass[1].kernels.at(Role::prefill).text.str();
      CHECK(other.find("kTakesPowers = true") != std::string::npos);
      CHECK(other.find("kHasKeyExponents = true, kHasValueExponents = false") != std::string::npos);
    }
  }
  const ProgramSource dense =
      second("tbq4_dense256_qsfirst_raw", "kv4", "query_length = 512\nhead_dim = 256\nq_type = \"f16\"");
  CHECK(dense.q_type == Element::f32);
  CHECK(dense.out_type == one.out_type);
}

TEST_CASE("every served format: each dimension has a place of its own, and a block fits its registers and memory") {
  int served = 0;
  for (const std::string& name : format_names(registry())) {
    if (registry().format_for(name, 128, {}).has_value() == false) continue;
    const std::string toml =
        fmt::format("[k]\nformat = \"{0}\"\n[v]\nformat = \"{0}\"\n[attention]\nquery_length = 300\n", name);
    const auto problem = resolve(must(parse_specs(toml, name)).at(0), registry(), "sm_90a");
    if (!problem) continue;
    const auto plan = plan_prefill(*problem);
    if (!plan) {
      CHECK_MESSAGE(plan.error().code == Code::unsupported, name);
      continue;
    }
    ++served;
    CAPTURE(name);
    for (std::vector<int> columns : {plan->key_columns, plan->value_columns}) {
      std::sort(columns.begin(), columns.end());
      for (int i = 0; i < 128; ++i) CHECK(columns[std::size_t(i)] == i);
    }
    CHECK(plan->shared_bytes <= plan->arch.shared_bytes_per_block);
    CHECK(32 * plan->producer_warps * plan->producer_registers + 256 * plan->consumer_registers ==
          65536 / plan->threads() / 8 * 8 * plan->threads());
    CHECK(plan->keys_at % 1024 == 0);
    CHECK(plan->values_at % 1024 == 0);
  }
  CHECK(served >= 50);
}

TEST_CASE("a warp of the producer brings as many rows at once as fit beside the operands, twice if they fit twice") {
  const auto check = [](const Problem& problem, int tokens, int ring) {
    const PrefillPlan plan = must(plan_prefill(problem));
    CAPTURE(problem.id);
    CHECK(plan.stage_tokens == tokens);
    CHECK(plan.ring == ring);
    CHECK(plan.shared_bytes <= plan.arch.shared_bytes_per_block);
  };
  check(problem_of("kv4", "kv4"), 32, 2);
  check(problem_of("q8_0", "q8_0"), 32, 1);
  check(problem_of("q8_0", "q8_0", "", "layout = \"rows\""), 16, 1);
  check(problem_of("bf16", "bf16"), 16, 1);
  check(problem_of("bf16", "bf16", "", "layout = \"rows\""), 8, 1);
}

TEST_CASE("heads of more than 128 dimensions: half of the rows, one stage of operands") {
  const auto check = [](int dim_k, int dim_v, int rows, int stages) {
    const PrefillPlan plan = must(plan_prefill(
        problem_of("q8_0", "q4_0", fmt::format("query_length = 100\nhead_dim_k = {}\nhead_dim_v = {}", dim_k, dim_v))));
    CAPTURE(plan.head_dim);
    CHECK(plan.rows() == rows);
    CHECK(plan.stages == stages);
    CHECK(plan.query_bytes >= plan.blocks * 64 * dim_k * 2);
    CHECK(plan.query_bytes >= 32 * dim_v * 4);
    CHECK(plan.shared_bytes <= plan.arch.shared_bytes_per_block);
  };
  check(64, 64, 256, 2);
  check(64, 128, 256, 2);
  check(128, 128, 256, 2);
  check(192, 128, 128, 1);
  check(256, 256, 128, 1);
  check(64, 256, 128, 1);
}

TEST_CASE("tables are looked up by the cheapest permutes that serve them") {
  const auto kind = [](const char* name) {
    return must(plan_prefill(problem_of(name, name))).k.sections[0].permutes.kind;
  };
  CHECK(kind("kv2") == PermuteKind::eight);
  CHECK(kind("kv3") == PermuteKind::eight);
  CHECK(kind("kv4") == PermuteKind::pairs);
  CHECK(kind("tbq4_0") == PermuteKind::pairs);
  CHECK(kind("iq4_nl") == PermuteKind::sixteen);
  CHECK(kind("kv5") == PermuteKind::none);   // 32 entries: a table in shared memory
  CHECK(kind("q4_0") == PermuteKind::none);  // computed
}

TEST_CASE("a scale of a whole row multiplies scores; scales of blocks multiply keys") {
  const auto scales_scores = [](const char* name) { return must(plan_prefill(problem_of(name, "kv4"))).scales_scores; };
  CHECK(scales_scores("kv4"));
  CHECK(scales_scores("vllm_k4_nc"));
  CHECK_FALSE(scales_scores("q8_0"));
  CHECK_FALSE(scales_scores("fp8_e4m3"));
  CHECK_FALSE(scales_scores("iq4_nl"));
}

}  // namespace
}  // namespace kvjit::test
