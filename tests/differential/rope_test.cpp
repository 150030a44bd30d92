// Rotary positions on the CPU back-end: rows turned in place and on their way into the cache, against the formula in double and the reference
// codec; and a shifted cache against one that was written at the new positions.
// SPDX-License-Identifier: MIT
#include "tests/differential/ropes.hpp"

namespace kvjit::test::ropes {
namespace {

TEST_CASE("rope: rows are shifted in place, and turned on their way into the cache, as the formula says") {
  check_ropes(open_context(DeviceKind::cpu));
}

TEST_CASE("rope: a shifted cache stands for one that was written at the new positions") {
  check_shifted_cache(open_context(DeviceKind::cpu));
}

struct Mutation {
  const char *file, *from, *to;
  int test;
};
constexpr Mutation kMutations[] = {
    {"rotations/rope.cuh", "(is_second ? partner : -partner)", "partner", 0},
    {"rotations/rope.cuh", "if (rope.factors) turns", "if (false) turns", 0},
    {"rotations/rope.cuh", "(position < 0 ? step[0] : 0u)", "0u", 0},
    {"rotations/rope.cuh", "multiply_high(step[0], place) +", "", 0},
    {"rotations/rope.cuh", "row[rope.first + other]", "row[other]", 3},
    {"rotations/rope.cuh", ": i ^ 1;", ": i;", 1},
    {"kernels/shift.cuh", "rope(x, args.rope, by", "rope(x, args.rope, -by", 1},
    {"kernels/shift.cuh", "|| by == 0", "", 2},
    {"kernels/quantise_rope.cuh", "args.rope.positions[index]", "args.rope.positions[at.token]", 1},
};

TEST_CASE("rope: what is broken is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const bool is_write = std::string(mutation.file).find("quantise") != std::string::npos;
    const Differences found =
        is_write ? quantise(context, broken, kCases[mutation.test]) : shift(context, broken, kCases[mutation.test]);
    CHECK_MESSAGE(found.bytes > found.all / 1000, "not noticed: ", std::string(mutation.from), " -> ",
                  std::string(mutation.to));
  }
}

}  // namespace
}  // namespace kvjit::test::ropes
