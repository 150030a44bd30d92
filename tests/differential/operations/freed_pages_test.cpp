// The codec and operations on caches over paged caches: by table they touch the pages of the tokens that a call names,
// and no other.
// SPDX-License-Identifier: MIT
#include "tests/differential/freed_pages.hpp"

#include "generator/kernels/operations/operations.hpp"
#include "runtime/launch/rope.hpp"

namespace kvjit::test {
namespace {

constexpr int kTokens = 150, kFirst = 37, kNamed = 64, kSequences = 16;  // with two heads: enough rows for bulk kernels

// The kernels of Walsh-Hadamard transforms, of whole blocks a lane, and of any row.
const FreedCase kCases[] = {{"tbq4_0", "q4_0", "features = [\"causal\"]", 16},
                            {"q8_0", "turbo3_0", "features = [\"causal\"]", 8, Layout::rows}};

bool is_named(int page, int page_tokens) {
  return page >= kFirst / page_tokens && page <= (kFirst + kNamed - 1) / page_tokens;
}

struct Operations {
  Planned one;
  FreedPages pages;
  std::vector<float> rows[2], out;

  Operations(const std::shared_ptr<Context>& context, const Planned& planned_case)
      : one(planned_case), pages(context, one, std::vector<int>(kSequences, kTokens)) {
    for (const int side : {0, 1}) rows[side] = pages.decoded(side, kFirst, kNamed);
  }
  void free_others() {
    pages.free_pages([this](int, int page) { return is_named(page, pages.page_tokens()); });
  }
  CacheCall call(int side, int first) const {
    CacheCall call;
    call.side = side;
    call.tokens = {pages.side(side), pages.table(), nullptr, first, 1, kv::SlotType::i64};
    return call;
  }
  bool dequantizes(int side, const std::vector<float>& want, double most = kMaxKernelError) {
    out.assign(rows[side].size(), -7.f);
    return pages.program()->dequantize(side, pages.codec_args(side, kFirst, kNamed, out), nullptr, pages.table()) &&
           relative_error(out, want) <= most;
  }
  bool quantizes(int side) {
    std::vector<float> x = rows[side];
    for (float& v : x) v = -v;
    constexpr double kMost = 0.2;  // of rows that are encoded once more, by 3 bits at least
    return pages.program()->quantize(side, pages.codec_args(side, kFirst, kNamed, x), nullptr, pages.table()) &&
           dequantizes(side, x, kMost);
  }
};

TEST_CASE("freed pages: quantize and dequantize by table touch the pages of their tokens alone") {
  const auto context = open_context(DeviceKind::cpu);
  for (const FreedCase& test : kCases) {
    INFO(test.toml());
    Operations operations(context, planned(registry(), test, context->backend()->info().arch));
    operations.free_others();
    for (const int side : {0, 1}) {
      INFO("side ", side);
      CHECK(end_of([&] { return operations.dequantizes(side, operations.rows[side]); }) == 0);
      CHECK(end_of([&] { return operations.quantizes(side); }) == 0);
    }
  }
}

TEST_CASE("freed pages: a dequantize that begins at another token is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  Planned broken = planned(registry(), kCases[0], context->backend()->info().arch);
  Operations operations(context, broken);
  operations.free_others();
  CHECK(
      end_of([&] {
        std::vector<float> x(operations.rows[0].size());
        return bool(operations.pages.program()->dequantize(
            0, operations.pages.codec_args(0, kFirst - kFirst % 16 - 1, kNamed, x), nullptr, operations.pages.table()));
      }) == -SIGSEGV);
}

// Copies K to K of the same cache, so that pages of both ends are named: tokens 37 to 60 to 69 and on.
TEST_CASE("freed pages: copies and shifts by table touch the pages of their tokens alone") {
  const auto context = open_context(DeviceKind::cpu);
  for (const FreedCase& test : kCases) {
    INFO(test.toml());
    const Planned one = planned(registry(), test, context->backend()->info().arch);
    Operations operations(context, one);
    const CodecPlan side = side_plan(one.problem, 0);
    CopyCall copy;
    copy.from = operations.call(0, kFirst), copy.to = operations.call(0, kFirst + 32);
    copy.sequences = kSequences, copy.tokens = 24, copy.heads = kKvHeads;
    Rope rope;
    rope.dims = 128;
    ShiftCall shift;
    shift.at = operations.call(0, kFirst);
    shift.sequences = kSequences, shift.tokens = kNamed, shift.heads = kKvHeads;
    shift.rope = must(rope_args(rope));
    shift.rope.position = 5;
    const auto program = operations.pages.program();
    std::vector<Source> copies{emit_copy(
        must(plan_copy(side, side, true, Program::alignment_of(copy, *program, *program), registry())), registry())},
        shifts{emit_shift(side, registry())};
    if (const auto bulk = emit_shift_bulk(side, registry())) shifts.push_back(*bulk);
    operations.free_others();
    for (const Source& kernel : copies) {
      INFO(kernel.name);
      (void)context->get(kernel);
      std::vector<float> want = operations.rows[0];
      const std::size_t row = kKvHeads * std::size_t(one.problem.head_dim);
      for (std::size_t s = 0; s < kSequences; ++s)
        std::copy_n(&operations.rows[0][s * kNamed * row], 24 * row, &want[(s * kNamed + 32) * row]);
      CHECK(end_of([&] { return program->copy(copy, *program, kernel, nullptr) && operations.dequantizes(0, want); }) ==
            0);
    }
    for (const Source& kernel : shifts) {
      INFO(kernel.name);
      (void)context->get(kernel);
      CHECK(end_of([&] {
              return program->shift(shift, kernel, nullptr) && !operations.dequantizes(0, operations.rows[0]);
            }) == 0);
    }
  }
}

}  // namespace
}  // namespace kvjit::test
