// generator/kernels/decode/token_heads.cpp and place_token_heads: blocks that take all KV heads of a token.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/kernels/decode/plan.hpp"
#include "generator/program.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::must, test::registry;

struct Asked {
  std::string k = "tbq4_0", v = "tbq4_0", attention = "q_heads_per_kv = 4", arch = "sm_90a";
  int token_heads = 8, head_dim = 128;
};

Problem problem_of(const Asked& asked) {
  const std::string toml = fmt::format(
      "[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nhead_dim = {}\n{}\n[cache]\nlayout = \"rows\"\n{}\n",
      asked.k, asked.v, asked.head_dim, asked.attention,
      asked.token_heads ? fmt::format("token_heads = {}", asked.token_heads) : "");
  return must(resolve(must(parse_specs(toml, "test.toml")).at(0), registry(), asked.arch));
}

}  // namespace

TEST_CASE("heads of a token: what cannot be served is refused by name") {
  const auto refused = [](const Asked& asked, const std::string& message) {
    const auto plan = plan_decode(problem_of(asked));
    REQUIRE_FALSE(plan);
    CHECK(plan.error().code == Code::unsupported);
    CHECK_MESSAGE(plan.error().message.find(message) != std::string::npos, plan.error().message);
    CHECK(plan.error().notes.back().find("leave cache.token_heads out") != std::string::npos);
  };
  refused({.arch = "sm_80"}, "cache.token_heads = 8: sm_80 has no bulk copies");
  refused({.attention = "q_heads_per_kv = 4\nquery_length = 3"}, "12 query rows of a head");
  refused({.attention = "append = true"}, "attention.append is not served with it");
  refused({.token_heads = 4}, "heads of 66 bytes (tbq4_wht_dfirst_corr) are 264 bytes a token, no multiple of 16");
  refused({.k = "f16", .v = "f16", .head_dim = 80}, "heads of f16 that do not fill the lanes of a warp");
  refused({.k = "f16", .v = "f16", .token_heads = 16, .head_dim = 256},
          "16 heads of a token leave no block shape in 8 warps and 232448 bytes of shared memory on sm_90a: each head "
          "takes a warp");
  refused({.k = "f32", .v = "f32", .token_heads = 16}, "on sm_90a: the smallest takes ");
}

TEST_CASE("heads of a token: a warp for each head of each stream, rows of all heads, and no two lanes in one bank") {
  const struct {
    std::string k, v;
    int token_heads, tile;
  } kRows[] = {{"kv4", "kv4", 8, 32}, {"tbq4_0", "tbq3_0", 8, 32}, {"tbq3_0", "q4_0", 16, 32}};
  for (const auto& row : kRows) {
    const DecodePlan plan = must(plan_decode(problem_of({.k = row.k, .v = row.v, .token_heads = row.token_heads})));
    INFO(row.k, ", ", row.v);
    CHECK(plan.heads == row.token_heads);
    CHECK(plan.warps == 16);
    CHECK(plan.streams() == 16 / row.token_heads);
    CHECK(plan.tile == row.tile);
    CHECK(plan.subtiles * 16 == plan.tile);
    CHECK(plan.rows == 4);
    CHECK_FALSE(plan.fuses_merge);
    CHECK(plan.k.stage_bytes == plan.v.stage_bytes);
    CHECK(plan.barriers_at + plan.streams() * plan.stages * 16 <= plan.epilogue_at);  // no overlap with the sums
    CHECK(plan.ring_at + plan.streams() * plan.stages * plan.k.stage_bytes <= plan.shared_bytes);
    CHECK(plan.shared_bytes <= plan.arch.shared_bytes_per_block);
    for (const SidePlan* side : {&plan.k, &plan.v}) {
      CHECK(side->eighth_bytes * 8 == row.tile * row.token_heads * side->row_bytes);
      CHECK(side->copy_gap % 16 == 0);
      const LaneReads& reads = side->sections[0].reads;
      CHECK(reads.bank_cost == std::max(1, reads.planes[0].unit / 4));  // one wavefront for 128 bytes
      CHECK(side->pitch * 8 == row.token_heads * side->row_bytes);
    }
  }
}

TEST_CASE("heads of a token: features have rows of all heads") {
  const DecodePlan plain = must(plan_decode(problem_of({}))),
                   masked = must(plan_decode(problem_of({.attention = "q_heads_per_kv = 4\nfeatures = [\"mask\"]"})));
  CHECK(masked.features.mask);
  CHECK(masked.barriers_at - masked.feature_rows_at >= masked.heads * 8 * feature_row_bytes(false));
  CHECK(plain.barriers_at == plain.feature_rows_at);
}

TEST_CASE("heads of a token: the program says how many a call has, and merges rows of all") {
  const ProgramSource together = must(make_program(problem_of({}), registry()));
  CHECK(together.token_heads == 8);
  CHECK(together.rows == 32);
  CHECK(together.kernels.count(Role::merge) == 1);
  CHECK(together.id.find(".rows.heads8.") != std::string::npos);
  const ProgramSource apart = must(make_program(problem_of({.token_heads = 0}), registry()));
  CHECK(apart.token_heads == 0);
  CHECK(apart.rows == 4);
  CHECK(apart.kernels.at(Role::decode).text.str().find("TokenRing") == std::string::npos);
}

}  // namespace kvjit
