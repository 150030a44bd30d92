// Quantize to slots and dequantize from slots, on the CPU back-end: 64-bit and 32-bit slot numbers, one row a warp and
// in bulk, tensors of any strides. The expected rows come from calls without slots.
// SPDX-License-Identifier: MIT
#include "tests/differential/codec/slots.hpp"

namespace kvjit::test::slots {
namespace {

TEST_CASE("slots: quantize scatters and dequantize gathers rows, by numbers of 32 and of 64 bits") {
  check_slots(open_context(DeviceKind::cpu));
}

struct Mutation {
  const char *file, *from, *to;
  int side, sequences;
};
constexpr Mutation kMutations[] = {
    {"formats/stored_slots.cuh", "sequence * args.tokens + token", "token", 0, 2},
    {"formats/stored_slots.cuh", "(args.numbers)[sequence * args.tokens + token]", "(args.numbers)[0]", 1, 16},
    {"formats/stored_slots.cuh", "if (slot < 0) return {F::scratch_row(), F::scratch_row()};",
     "if (slot < 0) return stored_row<typename F::Rows>(side, sequence, head, 0);", 0, 16},
};

TEST_CASE("slots: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  for (const Mutation& mutation : kMutations) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const Answer got = answer(context, broken, kCases[0], mutation.side, mutation.sequences);
    CHECK_MESSAGE(!(got.scatters && got.gathers), "not noticed: ", std::string(mutation.from), " -> ",
                  std::string(mutation.to));
  }
}

TEST_CASE("slots of an unknown type or at odd addresses are refused") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one =
      planned(registry(), {"q8_0", "q8_0", kDim, 1, 1, Layout::planar}, context->backend()->info().arch);
  const auto program = must(Program::create(context, must(make_reference_program(one.problem, registry()))));
  const KernelHarness harness = must(KernelHarness::make(context, program, one.problem, {1, 1, 4}));
  std::vector<float> x(4 * kDim);
  alignas(8) const int slots[5] = {};
  kv::CodecArgs args{};
  args.x = {x.data(), 0, kDim, kDim};
  args.x_type = kv::RowType::f32;
  args.side = harness.cache(0);
  args.sequences = args.heads = 1, args.tokens = 4, args.tensor_scale = 1;
  const Source kernel = must(make_by_slots(one.problem, Role::quantize_k, kv::SlotType::i32, registry()));
  const auto refusal = [&](const void* slots, kv::SlotType type) {
    const auto ran = program->by_slots(0, true, args, {slots, type}, kernel, nullptr);
    REQUIRE_FALSE(ran);
    return ran.error().message;
  };
  CHECK(refusal(slots, kv::SlotType(2)) == "slots have type 2; int64 (0) and int32 (1) are possible");
  CHECK(refusal(slots + 1, kv::SlotType::i64) == "slots is 4 bytes past a multiple of 8; it must be aligned to it");
}

}  // namespace
}  // namespace kvjit::test::slots
