// runtime/launch/prefill.cpp: which calls prefill takes, its blocks, and the kernels of a call.
// SPDX-License-Identifier: MIT
#include "runtime/launch/prefill.hpp"

#include "args/splits.cuh"
#include "tests/unit/runtime/launch/program_fixture.hpp"

namespace kvjit::test {
namespace {

// 1,000 query rows of a KV head: four work tiles.
ProgramSource many_rows(bool k_rotated = false, bool v_rotated = false) {
  ProgramSource source = make_source(k_rotated, v_rotated);
  source.query_length = 250;
  source.prefill_rows = 256, source.prefill_choice = PrefillChoice::always;
  Source& prefill = source.kernels[Role::prefill] = source.kernels.at(Role::decode);
  prefill.name = prefill.entry = "prefill";
  prefill.threads = 384;
  return source;
}

AttentionCall call_of(int sequences, int kv_heads) {
  AttentionCall call;
  call.sequences = sequences, call.kv_heads = kv_heads, call.tokens = 1 << 20;
  return call;
}

bool takes(const AttentionCall& call, const DeviceInfo& device = {true, "fake", "sm_90a", 132, 0, 0}) {
  const auto taken = takes_prefill(many_rows(), device, call);
  REQUIRE(taken);
  return *taken;
}

TEST_CASE("on a GPU a call takes prefill if the program says so, whatever the batch") {
  CHECK(takes(call_of(1, 1)));
  CHECK(takes(call_of(17, 1)));
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  CHECK_FALSE(takes(call_of(1, 64), {false, "cpu", "sm_90a", 1, 0, 0}));  // the CPU back-end has no speed to choose for
  ProgramSource source = many_rows();
  source.prefill_choice = PrefillChoice::never;
  CHECK_FALSE(*takes_prefill(source, device, call_of(1, 64)));
}

TEST_CASE("calls of many queries take two passes on a GPU, unless the batch is ragged") {
  const DeviceInfo gpu{true, "fake", "sm_90a", 132, 0, 0}, cpu{false, "cpu", "sm_90a", 1, 0, 0};
  ProgramSource source = many_rows();
  AttentionCall call = call_of(1, 8);
  CHECK_FALSE(*takes_two_passes(source, gpu, call));
  call.many_rows = ManyRows::two_pass;
  const auto none = takes_two_passes(source, gpu, call);
  REQUIRE_FALSE(none);
  CHECK(none.error().message.find("has no prefill in two passes") != std::string::npos);
  call.many_rows = ManyRows::chosen;
  source.second_pass.push_back(many_rows());
  CHECK_FALSE(*takes_two_passes(source, gpu, call));  // no number of queries is enough
  source.least_two_pass_queries = 250;
  CHECK(*takes_two_passes(source, gpu, call));
  CHECK_FALSE(*takes_two_passes(source, cpu, call));
  source.least_two_pass_queries = 251;
  CHECK_FALSE(*takes_two_passes(source, gpu, call));
  source.least_two_pass_queries = 1;
  for (const ManyRows other : {ManyRows::prefill, ManyRows::decode}) {
    call.many_rows = other;
    CHECK_FALSE(*takes_two_passes(source, gpu, call));
  }
  call.many_rows = ManyRows::two_pass;
  CHECK(*takes_two_passes(source, cpu, call));
  call.query_starts = pointer<int>(kBase);
  CHECK(takes_two_passes(source, gpu, call).error().message.find("ragged batch") != std::string::npos);
  call.many_rows = ManyRows::chosen;
  CHECK_FALSE(*takes_two_passes(source, gpu, call));
}

TEST_CASE("chunks of 128 MiB of halves, or of as many bytes as the call says, and groups of equal size") {
  const DeviceInfo gpu{true, "fake", "sm_90a", 132, 0, 0};
  ProgramSource source = many_rows();
  source.second_pass.push_back(many_rows());
  AttentionCall call = call_of(1, 8);  // a million tokens of 8 x 2 x 128 halves
  CHECK(lay_out_context_chunks(source, gpu, call).tokens == 32768);
  CHECK(lay_out_context_chunks(source, gpu, call).bytes < std::size_t{200} << 20);
  call.context_chunk_bytes = 1;
  CHECK(lay_out_context_chunks(source, gpu, call).tokens == 128);
  call.context_chunk_bytes = 0, call.tokens = 8192, call.sequences = 5;
  CHECK(lay_out_context_chunks(source, gpu, call).tokens == 8192);
  CHECK(lay_out_context_chunks(source, gpu, call).group == 3);  // 3 and 2, where 4 would fit
}

TEST_CASE("with few query rows a call takes prefill if it has blocks for three quarters of the device") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  ProgramSource source = many_rows();
  source.query_length = 32, source.prefill_rows = 128, source.prefill_choice = PrefillChoice::if_full;
  const auto takes_it = [&](int sequences, int tokens) {
    AttentionCall call = call_of(sequences, 8);
    call.tokens = tokens;
    return *takes_prefill(source, device, call);
  };
  CHECK(takes_it(1, 65536));       // 8 work tiles of 15 splits
  CHECK_FALSE(takes_it(1, 8192));  // of two splits
  CHECK_FALSE(takes_it(6, 8192));  // 96 blocks
  CHECK(takes_it(7, 8192));        // 112
  CHECK_FALSE(takes_it(12, 1000));
  CHECK(takes_it(13, 1000));
  AttentionCall call = call_of(1, 8);
  call.tokens = 65536, call.lengths = pointer<int>(kBase);  // splits of a length that only the device knows
  CHECK_FALSE(*takes_prefill(source, device, call));
  call.sequences = 13;
  CHECK(*takes_prefill(source, device, call));
  call = call_of(1, 8);
  call.tokens = 8192, call.blocks = 20;  // 16 blocks of 20
  CHECK(*takes_prefill(source, device, call));
}

TEST_CASE("up to 64 query rows that consumers share take a counter for each work tile, and splits are long") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  ProgramSource source = many_rows();
  source.query_length = 16, source.prefill_rows = 64, source.prefill_splits.alternates = true,
  source.prefill_splits.least_tiles = 128;
  source.prefill_choice = PrefillChoice::if_full;
  AttentionCall call = call_of(16, 8);
  call.tokens = 65536;
  CHECK(prefill_splits(source, device, call) == 4);
  CHECK(prefill_slots(source, device, call) == 4 * 16 * 8);
  CHECK(*takes_prefill(source, device, call));
  call.tokens = 1000;
  CHECK(prefill_slots(source, device, call) == 16 * 8);  // both parts are merged even without splits
  call = call_of(2000, 8);
  CHECK_FALSE(*takes_prefill(source, device, call));
  call.many_rows = ManyRows::prefill;
  const auto refused = takes_prefill(source, device, call);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("16000 work tiles") != std::string::npos);
}

TEST_CASE("splits: where the work tiles of one sequence leave multiprocessors idle, whatever the batch") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  const auto splits = [&](int sequences, int kv_heads) {
    return prefill_splits(many_rows(), device, call_of(sequences, kv_heads));
  };
  CHECK(splits(1, 16) == 2);  // 64 work tiles
  CHECK(splits(9, 16) == 2);
  CHECK(splits(1, 24) == 4);  // 96: three rounds of a fourth, in place of one
  CHECK(splits(1, 33) == 1);  // 132
  CHECK(splits(1, 66) == 1);
  CHECK(splits(1, 1) == 15);
  CHECK(splits(129, 16) == 1);  // 8,256 work tiles, more than there are counters
  AttentionCall call = call_of(1, 1);
  for (const auto& [tokens, count] : {std::pair{1000, 1}, {7000, 2}, {8192, 2}, {32768, 8}, {1 << 20, 15}}) {
    call.tokens = tokens;  // a split has 4,096 tokens or more
    CHECK(prefill_splits(many_rows(), device, call) == count);
  }
}

TEST_CASE("a call that is split has partial results of its work tiles in the workspace, another has none") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  CHECK(prefill_slots(many_rows(), device, call_of(3, 16)) == 3 * 64 * 2);
  CHECK(prefill_slots(many_rows(), device, call_of(3, 33)) == 0);
  CHECK(prefill_slots(make_source(false, false), device, call_of(3, 16)) == 0);
}

TEST_CASE("ragged batches: the slots of sequences that are split most, by the rows of the batch") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  ProgramSource source = many_rows();
  source.varlen = true, source.least_prefill_queries = 128;
  AttentionCall call = call_of(8, 8);
  call.queries = 2048, call.query_rows = 2048, call.query_starts = pointer<const int>(kBase);
  // A sequence of 128 queries has 2 x 8 work tiles of 256 rows, which are split most.
  const int splits = prefill_splits(source, device, call);
  CHECK(splits == int(kv::work_tile_splits(16, 132)));
  CHECK(splits > 4);
  CHECK(prefill_slots(source, device, call) == std::min(40 * 8 * splits, 8 * 3 * 132));
  kv::VarlenArgs varlen{};
  list_splits(source, device, call, varlen);
  CHECK(varlen.split_count == 32);  // 33 x 8 work tiles fill two rounds of 132
  CHECK(varlen.splits[1] == splits);
  CHECK(varlen.splits[31] == 1);
  call.query_rows = 1 << 20;  // more work tiles than there are counters
  CHECK(prefill_slots(source, device, call) == 0);
  list_splits(source, device, call, varlen);
  CHECK(varlen.split_count == 0);
}

TEST_CASE("a call may ask for either kernel") {
  AttentionCall call = call_of(1, 64);
  call.many_rows = ManyRows::decode;
  CHECK_FALSE(takes(call));
  call = call_of(1, 1);
  call.many_rows = ManyRows::prefill;
  CHECK(takes(call));
  const auto refused = takes_prefill(make_source(false, false), {true, "fake", "sm_90a", 132, 0, 0}, call);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::unsupported);
}

TEST_CASE("blocks of prefill: one for each multiprocessor, at most one a work tile, at most what the call allows") {
  const DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  const auto blocks = [&](AttentionCall call, int most = 0) {
    call.blocks = most;
    return prefill_schedule(many_rows(), device, call).blocks;
  };
  CHECK(blocks(call_of(1, 64)) == 132);
  CHECK(blocks(call_of(1, 30)) == 120);
  CHECK(blocks(call_of(1, 1)) == 60);  // four work tiles of 15 splits
  CHECK(blocks(call_of(1, 64), 7) == 7);
}

TEST_CASE("a program whose calls take prefill loads no decode before a call asks for it") {
  ProgramFixture fixture(many_rows());
  CHECK(fixture.program->record(Role::prefill) != nullptr);
  CHECK(fixture.program->record(Role::decode) == nullptr);
  ProgramSource few = many_rows();
  few.prefill_choice = PrefillChoice::never;
  ProgramFixture other(few);
  CHECK(other.program->record(Role::prefill) == nullptr);
  CHECK(other.program->record(Role::decode) != nullptr);
  few.prefill_choice = PrefillChoice::if_full;
  ProgramFixture both(few);
  CHECK(both.program->record(Role::prefill) != nullptr);
  CHECK(both.program->record(Role::decode) != nullptr);
}

TEST_CASE("a call by prefill launches no decode and no merge; rotations outside of it stay") {
  ProgramFixture fixture(many_rows(true, true));
  fixture.call.many_rows = ManyRows::prefill;
  fixture.call.q = {pointer<void>(20 * kBase), 250 * 1024, 1024, 128};
  fixture.call.out = {pointer<void>(30 * kBase), 250 * 1024, 1024, 128};
  const LaunchReport report = fixture.attend();
  CHECK(report.kernels == std::vector<std::string>{"rotate_q", "prefill", "rotate_out"});
  CHECK(report.blocks == 24);  // as many work tiles
  REQUIRE(fixture.launches.size() == 3);
  CHECK(fixture.launches[1].grid.x == 24);
  const auto args = fixture.launches[1].as<kv::AttentionArgs>();
  CHECK(args.scheduler.kv_heads == 2);  // of the cache: prefill has no query chunks
  CHECK(args.scheduler.blocks == 24);
  CHECK(args.scheduler.splits_per_head == 1);
  CHECK(args.split_counters != nullptr);
  CHECK(args.partial != nullptr);
  CHECK(args.partial_state != nullptr);
}

}  // namespace
}  // namespace kvjit::test
