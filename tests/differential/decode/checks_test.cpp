// Checked programs (`checks = true`) on the CPU back-end. Each kind of value that is out of range must stop its call
// before the call has written anything, and the report must name the array, the place and the value. Calls whose values
// are in range must run as in other programs.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>

#include "generator/kernels/operations/operations.hpp"
#include "runtime/launch/kv_layout.hpp"
#include "runtime/launch/rope.hpp"
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

constexpr int kSequences = 2, kTokens = 40, kPage = 16, kPool = 8, kStride = 4;

Problem checked_problem(const std::string& arch, bool is_paged, bool checks) {
  const std::string toml = fmt::format(
      "k = {{ format = 'q8_0' }}\nv = {{ format = 'tbq4_0' }}\nattention = {{ head_dim = 128 }}\ncache = {{ layout = "
      "'{}' }}\ntarget = {{ checks = {} }}\n",
      is_paged ? "paged" : "planar", checks);
  return must(resolve(must(parse_specs(toml, "checked")).at(0), registry(), arch));
}

// A cache of two sequences with one KV head. Its memory is host memory, which the CPU back-end uses directly.
struct Cache {
  std::shared_ptr<Context> context = open_context(DeviceKind::cpu);
  Problem problem;
  std::shared_ptr<Program> program;
  std::vector<std::uint8_t> memory[2], workspace;
  std::vector<int> table[2], lengths = {kTokens, 17};
  std::vector<kv::i64> slots;
  std::vector<float> x = std::vector<float>(kSequences * kTokens * 128, 1.f), out;
  std::vector<std::uint16_t> q = std::vector<std::uint16_t>(kSequences * 128, 0x3c00);
  kv::CheckRecord record{};
  AttentionCall call;
  kv::CodecArgs codec{};

  explicit Cache(bool is_paged = true, bool checks = true)
      : problem(checked_problem(context->backend()->info().arch, is_paged, checks)),
        program(must(Program::create(context, must(make_program(problem, registry()))))) {
    const ProgramSource& source = program->source();
    for (const int side : {0, 1}) {
      const SideGeometry geometry =
          is_paged ? side_geometry(source, side == 0 ? source.k : source.v, 1, 1, kPool * kPage)
                   : side_geometry(source, side == 0 ? source.k : source.v, kSequences, 1, kTokens);
      memory[side].assign(geometry.total_bytes + 16, 0);
      (side == 0 ? call.k : call.v) =
          at(geometry, (reinterpret_cast<DevicePointer>(memory[side].data()) + 15) / 16 * 16);
      table[side] = {0, 3, 6, 99, 1, 7, -5, 1 << 30};  // two pages of sequence 1 are in use
    }
    // In a paged cache slots number the pool's tokens, otherwise those of the sequence.
    for (kv::i64 i = 0; i < kSequences * kTokens; ++i)
      slots.push_back(i % 5 == 0 ? -1 - i : is_paged ? i : i % kTokens);
    call.sequences = kSequences, call.kv_heads = 1, call.tokens = kTokens, call.lengths = lengths.data();
    call.q = {q.data(), 128, 128, 128};
    if (is_paged) call.k_table = {table[0].data(), kStride}, call.v_table = {table[1].data(), kStride};
    if (checks) call.check = {&record, kPool, kPool, kTokens};
    codec.x = {x.data(), kTokens * 128, 128, 128};
    codec.side = call.k;
    codec.sequences = kSequences, codec.tokens = kTokens, codec.heads = 1;
    codec.x_type = kv::RowType::f32, codec.tensor_scale = 1;
  }
  Result<void> attend(bool is_reference = false) {
    out.assign(kSequences * 128, -7.f);
    call.out = {out.data(), 128, 128, 128};
    workspace.assign(program->workspace_bytes(call) + 16, 0);
    const DevicePointer at = (reinterpret_cast<DevicePointer>(workspace.data()) + 15) / 16 * 16;
    KV_CHECK(is_reference ? program->reference(call, at, nullptr) : program->attention(call, at, nullptr));
    return check_passed(record);
  }
  Result<void> quantize(bool by_slots) {
    codec.slots = by_slots ? slots.data() : nullptr;
    KV_CHECK(program->quantize(0, codec, nullptr, call.k_table, call.check));
    return check_passed(record);
  }
  bool is_out_untouched() const {
    return std::all_of(out.begin(), out.end(), [](float v) { return v == -7.f; });
  }
};

std::string refusal(const Result<void>& result) { return result ? "passed" : result.error().message; }

TEST_CASE("checked calls: in range they run; an entry that is not used may be anything") {
  for (const bool is_paged : {true, false}) {
    Cache checked(is_paged), plain(is_paged, false);
    CHECK(refusal(checked.quantize(true)) == "passed");
    CHECK(refusal(checked.attend()) == "passed");
    CHECK_FALSE(checked.is_out_untouched());
    CHECK(refusal(plain.quantize(true)) == "passed");
    CHECK(refusal(plain.attend()) == "passed");
    CHECK(plain.out == checked.out);
    CHECK(plain.memory[0] == checked.memory[0]);
  }
}

TEST_CASE("checked calls: what is out of range is named, and nothing else happens until the record is cleared") {
  const auto bad = [](auto change, bool is_reference) {
    Cache cache;
    change(cache);
    const std::string said = refusal(cache.attend(is_reference));
    CHECK(cache.is_out_untouched());
    return said;
  };
  for (const bool is_reference : {false, true}) {
    CHECK(bad([](Cache& c) { c.table[0][2] = 8; }, is_reference) ==
          "k_pages[2] is 8; 0 to 7 are possible (1 out of range)");
    CHECK(bad([](Cache& c) { c.table[1][5] = -1; }, is_reference) ==
          "v_pages[5] is -1; 0 to 7 are possible (1 out of range)");
    CHECK(bad([](Cache& c) { c.lengths[1] = 41; }, is_reference).starts_with("lengths[1] is 41; 0 to 40 are possible"));
    CHECK(bad([](Cache& c) { c.lengths[0] = -1; }, is_reference) ==
          "lengths[0] is -1; 0 to 40 are possible (1 out of range)");
  }
  Cache cache;
  cache.lengths[0] = -1;
  CHECK_FALSE(cache.attend());
  cache.lengths[0] = kTokens;
  CHECK_FALSE(cache.attend());  // the record still holds the failure
  CHECK(cache.is_out_untouched());
  cache.record = {};
  CHECK(refusal(cache.attend()) == "passed");
  CHECK_FALSE(cache.is_out_untouched());
}

TEST_CASE("checked calls: slots and tables of the write path") {
  Cache cache;
  const auto before = cache.memory[0];
  cache.slots[33] = kPool * kPage;
  CHECK(refusal(cache.quantize(true)) == "slots[33] is 128; 0 to 127 are possible (1 out of range)");
  cache.record = {};
  CHECK(refusal(cache.quantize(false)) == "pages[6] is -5; 0 to 7 are possible (1 out of range)");
  CHECK(cache.memory[0] == before);
  cache.record = {};
  cache.table[0][6] = 2;
  CHECK(refusal(cache.quantize(false)) == "passed");
  CHECK(cache.memory[0] != before);

  Cache planar(false);
  planar.slots[7] = kTokens;
  CHECK(refusal(planar.quantize(true)) == "slots[7] is 40; 0 to 39 are possible (1 out of range)");
}

// Copies K's first 30 tokens to tokens from 50 on of the pool, and shifts them in place.
TEST_CASE("checked calls: slots and tables of copies and shifts, at either end") {
  Cache cache;
  for (std::size_t i = 0; i < cache.x.size(); ++i) cache.x[i] = float(i % 97);
  REQUIRE(refusal(cache.quantize(true)) == "passed");
  std::vector<int> from(30), to(30);
  for (int i = 0; i < 30; ++i) from[std::size_t(i)] = i, to[std::size_t(i)] = 50 + i;
  CopyCall copy;
  copy.from.tokens = {cache.call.k, {}, from.data(), 0, 1, kv::SlotType::i32};
  copy.to.tokens = {cache.call.k, {}, to.data(), 0, 1, kv::SlotType::i32};
  copy.from.pool_pages = copy.to.pool_pages = kPool;
  copy.tokens = 30;
  copy.record = &cache.record;
  const CodecPlan side = side_plan(cache.problem, 0);
  const Source copies = emit_copy(must(plan_copy(side, side, true, 2, registry())), registry());
  const auto ran = [&](const Result<void>& result) {
    const std::string said = refusal(result ? check_passed(cache.record) : result);
    cache.record = {};
    return said;
  };
  const auto before = cache.memory[0];
  to[4] = kPool * kPage;
  CHECK(ran(cache.program->copy(copy, *cache.program, copies, nullptr)) ==
        "slots[4] is 128; 0 to 127 are possible (1 out of range)");
  to[4] = 54, from[29] = 1 << 30;
  CHECK(ran(cache.program->copy(copy, *cache.program, copies, nullptr)) ==
        "slots[29] is 1073741824; 0 to 127 are possible (1 out of range)");
  CHECK(cache.memory[0] == before);
  from[29] = -1;
  CHECK(ran(cache.program->copy(copy, *cache.program, copies, nullptr)) == "passed");
  CHECK(cache.memory[0] != before);

  ShiftCall shift;
  shift.at.tokens = {cache.call.k, cache.call.k_table, nullptr, 0, 1, kv::SlotType::i64};
  shift.at.pool_pages = kPool;
  shift.tokens = kTokens, shift.sequences = kSequences;
  shift.record = &cache.record;
  Rope rope;
  rope.dims = 128;
  shift.rope = must(rope_args(rope));
  shift.rope.position = 5;
  const Source shifts = emit_shift(side, registry());
  const auto copied = cache.memory[0];
  CHECK(ran(cache.program->shift(shift, shifts, nullptr)) == "pages[6] is -5; 0 to 7 are possible (1 out of range)");
  CHECK(cache.memory[0] == copied);
  cache.table[0][6] = 2;
  CHECK(ran(cache.program->shift(shift, shifts, nullptr)) == "passed");
  CHECK(cache.memory[0] != copied);
}

TEST_CASE("checked programs need a record and the number of pages") {
  Cache cache;
  cache.call.check.record = nullptr;
  CHECK(refusal(cache.attend()) == "the check record is a null pointer");
  cache.call.check = {&cache.record, 0, kPool, 0};
  CHECK(refusal(cache.attend()) == "0 pages in the pool; a checked program needs their number");
}

}  // namespace
}  // namespace kvjit::test
