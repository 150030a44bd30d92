// Rotary positions on the CPU back-end. Rows are rotated in place (shift) and on their way into the cache
// (quantize_rope), and must equal the formula in double precision followed by the reference codec. A shifted cache is
// compared with one that was written at the new positions.
// SPDX-License-Identifier: MIT
#include "tests/differential/operations/ropes.hpp"

namespace kvjit::test::ropes {
namespace {

TEST_CASE("rope: rows are shifted in place, and rotated on their way into the cache, as the formula says") {
  check_ropes(open_context(DeviceKind::cpu));
}

TEST_CASE("rope: a shifted cache stands for one that was written at the new positions") {
  check_shifted_cache(open_context(DeviceKind::cpu));
}

TEST_CASE("rope in bulk: rows are shifted as the formula says") { check_tile_shifts(open_context(DeviceKind::cpu)); }

TEST_CASE("rope in bulk: rows turn on their way into the cache as the formula says") {
  check_tile_writes(open_context(DeviceKind::cpu));
}

struct Mutation {
  const char *file, *from, *to;
  int test;
};
constexpr Mutation kMutations[] = {
    {"rotations/rope.cuh", "(is_second ? partner : -partner)", "partner", 0},
    {"rotations/rope.cuh", "if (rope.factors) frequency", "if (false) frequency", 0},
    {"rotations/rope.cuh", "(position < 0 ? step[0] : 0u)", "0u", 0},
    {"rotations/rope.cuh", "multiply_high(step[0], place) +", "", 0},
    {"rotations/rope.cuh", "row[rope.first + other]", "row[other]", 3},
    {"rotations/rope.cuh", ": i ^ 1;", ": i;", 1},
    {"kernels/operations/shift.cuh", "rope(x, args.rope, by", "rope(x, args.rope, -by", 1},
    {"kernels/operations/shift.cuh", "|| by == 0", "", 2},
    {"kernels/operations/quantize_rope.cuh", "args.rope.positions[index]", "args.rope.positions[at.token]", 1},
};

void check_noticed(const Mutation& mutation, const Differences& found) {
  CHECK_MESSAGE(found.bytes > found.all / 1000, "not noticed: ", std::string(mutation.from), " -> ",
                std::string(mutation.to));
}

TEST_CASE("rope: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const bool is_write = std::string(mutation.file).find("quantize") != std::string::npos;
    const Differences found =
        is_write ? quantize(context, broken, kCases[mutation.test]) : shift(context, broken, kCases[mutation.test]);
    check_noticed(mutation, found);
  }
}

constexpr Mutation kTileMutations[] = {
    {"kernels/operations/rope_tile.cuh", "is_second ? partner : -partner", "partner", 1},
    {"kernels/operations/rope_tile.cuh", "group * 128 +", "", 2},
    {"kernels/operations/rope_tile.cuh", "a * cosine - b * sine", "a * cosine + b * sine", 0},
    {"kernels/operations/shift_bulk.cuh", "args.rope.positions[at.index]", "args.rope.positions[at.token]", 0},
    {"kernels/operations/tile_values.cuh", "^ (signs >> e & 1) << 31", "", 0},
    {"kernels/operations/quantize_rope_bulk.cuh", "operation_row(args, at).index", "at.token", 0},
    {"kernels/operations/quantize_rope_bulk.cuh", "= slot_of(args, at)", "= at.token", 0},
    {"kernels/operations/quantize_rope_bulk.cuh", "in_x[half] += kBulkGroup", "in_x[half] += 0", 2},
};

TEST_CASE("rope in bulk: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kTileMutations) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const bool is_write = std::string(mutation.file).find("quantize") != std::string::npos;
    const RopeCase& test = kTileCases[mutation.test];
    const Differences found = is_write ? quantize(context, broken, test, true) : shift(context, broken, test, true);
    check_noticed(mutation, found);
  }
}

TEST_CASE("rope in bulk: spans that the kernel cannot turn are refused") {
  const auto context = open_context(DeviceKind::cpu);
  Store store = Store::make(context, registry(), kTileCases[0]);
  ShiftCall call;
  call.at.tokens.side = store.harness.cache(0);
  call.at.tokens.tensor_scale = 1;
  call.sequences = 2, call.tokens = kTokens, call.heads = kKvHeads;
  call.rope = store.rope;
  call.rope.pairs = kv::RopePairs::halves;
  const auto refused =
      store.program->shift(call, emit_shift_bulk(side_plan(store.problem, 0), registry()).value(), nullptr);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("halves of 64 or 128") != std::string::npos);
}

}  // namespace
}  // namespace kvjit::test::ropes
