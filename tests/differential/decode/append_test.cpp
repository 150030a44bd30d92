// Append on the CPU back-end (append.hpp), by decode and by prefill, and which calls are refused.
// SPDX-License-Identifier: MIT
#include "tests/differential/decode/append.hpp"

namespace kvjit::test::appends {
namespace {

constexpr unsigned kCompileThreads = 2;

// Formats with plain codes, integers, tables, minima, outliers by a constant and by a stored mask, residuals, a tensor
// scale, padding to whole blocks, a dense rotation; one and several new tokens, which may lie in two tiles.
const Case kCases[] = {{"f16", "bf16", 128, 4, 1, Layout::planar},
                       {"q4_0", "q8_0", 128, 1, 3, Layout::rows, true},
                       {"q5_1", "f32", 64, 2, 1, Layout::rows},
                       {"kv4", "tbq4_0", 128, 4, 2, Layout::planar, true},
                       {"kv3", "kv2", 128, 4, 1, Layout::planar},
                       {"tbq3_0", "turbo_split_54", 128, 4, 1, Layout::rows},
                       {"turbo_split2_b", "amesianx_tbqp3_1", 128, 1, 1, Layout::planar},
                       {"fp8_e4m3", "tbq4_dense_qsfirst_raw", 128, 2, 8, Layout::planar, true},
                       {"kv2", "turbo2_qk32", 128, 8, 3, Layout::planar}};  // a team of warps

TEST_CASE("append: the bytes of quantize, the bits of quantize and then decode, and no other row touched") {
  const auto context = open_context(DeviceKind::cpu);
  std::vector<Planned> all;
  for (const Case& test : kCases)
    for (const bool appends : {false, true}) all.push_back(planned_for(context, test, appends));
  warm_up(context, all, kCompileThreads);
  for (std::size_t i = 0; i < all.size(); i += 2) {
    CHECK(all[i + 1].source.append);
    // Lengths: no token, fewer tokens than new ones, both sides of a tile's border, and many.
    check_append(context, all[i], all[i + 1], Element::f16, {257, 0, 32, 1, 33}, 3);
  }
  check_append(context, all[2], all[3], Element::f32, {64, 65, 66, 2, 300}, 29);
  check_append(context, all[2], all[3], Element::bf16, {64, 65, 66, 2, 300}, 1);
}

TEST_CASE("append by prefill: the bytes of quantize, the bits of quantize and then prefill, and no other row touched") {
  check_append_by_prefill(open_context(DeviceKind::cpu));
}

TEST_CASE("programs that append require new tokens, and others refuse them") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned plain = planned_for(context, kCases[0], false), appending = planned_for(context, kCases[0], true);
  KernelHarness harness = harness_of(context, appending);
  const std::vector<float> q(std::size_t(kSequences * kKvHeads * 4 * 128), 1.f);
  CHECK_FALSE(harness.attend(q, {40, {}, 0, false}));  // the call sets no new tokens
  for (const int side : {0, 1})
    harness.set_new_tokens(side, std::vector<float>(std::size_t(kSequences * kKvHeads * 128)));
  CHECK(harness.attend(q, {40, {}, 0, false}));

  float x = 0;
  const auto refusal = [&](const Planned& one, auto change) {
    const auto program = must(Program::create(context, one.source));
    AttentionCall call{};
    call.tokens = 1;
    call.q = call.out = {&x, 0, 0, 0};
    alignas(16) static kv::u8 row[4096];
    for (auto [side, info] : {std::pair{&call.k, &one.source.k}, {&call.v, &one.source.v}})
      side->codes = side->scales = row, side->codes_token_stride = info->code_row_bytes,
      side->scales_token_stride = info->scale_row_bytes;
    change(call);
    Buffer workspace = must(Buffer::make(context->backend(), program->workspace_bytes(call)));
    const auto ran = program->attention(call, workspace.pointer(), nullptr);
    REQUIRE_FALSE(ran);
    CHECK(ran.error().code == Code::bad_input);
    return ran.error().message;
  };
  CHECK(refusal(plain, [&](AttentionCall& c) { c.new_k.data = &x; }).find("which does not append") !=
        std::string::npos);
  CHECK(refusal(appending, [&](AttentionCall& c) { c.new_k.data = &x; }) == "new_v is a null pointer");
  CHECK(refusal(appending, [&](AttentionCall& c) { c.new_k.data = c.new_v.data = &x, c.new_type = kv::RowType(7); }) ==
        "new_k, new_v has type 7; f16 (1), bf16 (2) and f32 (3) are possible");
}

}  // namespace
}  // namespace kvjit::test::appends
