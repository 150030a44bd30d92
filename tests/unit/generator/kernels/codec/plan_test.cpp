// generator/kernels/codec/plan.cpp: the precision of the bulk kernels' products, for each type of result.
// SPDX-License-Identifier: MIT
#include "generator/kernels/codec/plan.hpp"

#include <doctest/doctest.h>

#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::must, test::registry;

const Arch& arch() { return *must(registry().require_arch("sm_90a", {})); }

TEST_CASE("halves of codes and of the matrix, by the type of the result") {
  struct Expected {
    const char* format;
    int parts[3][2];  // by type f16, bf16, f32: {fp16 terms of a code, bits of the matrix's rounding remainder}
  };
  constexpr Expected kAll[] = {
      {"tbq4_dense_qsfirst_raw", {{1, 8}, {1, 0}, {2, 16}}},
      {"tbq4_0", {{1, 0}, {1, 0}, {2, 0}}},
      {"vllm_k4_nc", {{1, 0}, {1, 0}, {2, 0}}},
      {"kv4", {{1, 0}, {1, 0}, {1, 0}}},
  };
  for (const auto& [format, parts] : kAll) {
    CAPTURE(format);
    const Format f = must(registry().format_for(format, 128, {}));
    Decision decision;
    const auto plan = plan_bulk(f, 128, true, arch(), decision);
    REQUIRE(plan);
    for (const Element type : {Element::f16, Element::bf16, Element::f32}) {
      const auto kernel = plan_bulk_kernel(*plan, f, {false, type}, arch());
      REQUIRE(kernel);
      CHECK(kernel->code_terms == parts[int(type)][0]);
      CHECK(kernel->rest_bits == parts[int(type)][1]);
      CHECK(kernel->by_matrix == plan->is_dense);
      // Quantize treats rows of every type as exact.
      CHECK(plan_bulk_kernel(*plan, f, {true, type}, arch())->rest_bits == (plan->is_dense ? 16 : 0));
    }
  }
}

TEST_CASE("trellises are written a row a warp, also in blocks that one lane could hold") {
  for (const char* format : {"kvt2", "kvt3"})
    for (const int head_dim : {32, 96, 128}) {
      Decision decision;
      CHECK_FALSE(plan_bulk(must(registry().format_for(format, head_dim, {})), head_dim, true, arch(), decision));
    }
  Decision decision;
  CHECK(plan_bulk(must(registry().format_for("kv3", 96, {})), 96, true, arch(), decision));
}

TEST_CASE("one half is enough where its rest is at most an eighth of half a step of the type") {
  CHECK(fp16_terms(0x1p-14, Element::f16) == 1);
  CHECK(fp16_terms(0x1.01p-14, Element::f16) == 2);
  CHECK(fp16_terms(0x1p-11, Element::bf16) == 1);
  CHECK(fp16_terms(0x1p-27, Element::f32) == 1);
  CHECK(fp16_terms(0x1.01p-27, Element::f32) == 2);
}

}  // namespace
}  // namespace kvjit
