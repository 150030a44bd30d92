// runtime/launch/program.cpp over a back-end that records launches: cache geometry, workspace, blocks, grids,
// arguments, refusals.
// SPDX-License-Identifier: MIT
#include "runtime/launch/program.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/unit/runtime/launch/program_fixture.hpp"

using namespace kvjit;
using namespace kvjit::test;

TEST_CASE("planar geometry: capacity in 64s, planes apart by a multiple of 256, every head on 16 bytes") {
  const ProgramSource source = make_source(false, false);
  const SideGeometry k = side_geometry(source, source.k, 3, 2, 100), v = side_geometry(source, source.v, 3, 2, 100);
  CHECK(k.strides.codes_token_stride == 64);
  CHECK(k.strides.codes_head_stride == 64 * 128);
  CHECK(k.strides.codes_sequence_stride == 64 * 128 * 2);
  CHECK(k.strides.scales_token_stride == 8);
  CHECK(k.strides.scales_head_stride == 8 * 128);
  CHECK(k.strides.scales_sequence_stride == 8 * 128 * 2);
  CHECK(k.codes_bytes == 64 * 128 * 2 * 3);
  CHECK(k.total_bytes == 72 * 128 * 2 * 3);
  CHECK(v.strides.scales_head_stride % 16 == 0);
  CHECK(side_geometry(source, {"odd", false, 6, 6, 0, 0}, 1, 1, 65).codes_bytes == 768);  // 6 * 128, a multiple already
  CHECK(side_geometry(source, {"odd", false, 6, 6, 2, 0}, 1, 1, 64).codes_bytes == 512);  // 384 rounded up
  const kv::CacheSide side = at(k, 4096);
  CHECK(address(side.codes) == 4096);
  CHECK(address(side.scales) == 4096 + k.codes_bytes);
  CHECK(at(side_geometry(source, {"plain", false, 256, 256, 0, 16}, 1, 1, 64), 4096).scales == nullptr);
}

TEST_CASE("rows geometry is [sequence][token][head][row]") {
  const ProgramSource source = make_source(false, false, false);
  const SideGeometry v = side_geometry(source, source.v, 3, 2, 100);
  CHECK(v.strides.codes_head_stride == 50);
  CHECK(v.strides.codes_token_stride == 100);
  CHECK(v.strides.codes_sequence_stride == 10000);
  CHECK(v.total_bytes == 30000);
  CHECK(at(v, 4096).scales == nullptr);
}

TEST_CASE("geometry of pages: planes by head, whole blocks by token, pages on 16 bytes") {
  ProgramSource source = make_source(false, false);
  source.page_tokens = 16;
  const SideGeometry v = side_geometry(source, source.v, 3, 2, 100);  // 7 pages each
  CHECK(v.strides.codes_sequence_stride == 2 * 16 * (48 + 2));
  CHECK(v.strides.scales_sequence_stride == v.strides.codes_sequence_stride);
  CHECK(v.strides.codes_head_stride == 16 * 48);
  CHECK(v.strides.codes_token_stride == 48);
  CHECK(v.strides.scales_head_stride == 16 * 2);
  CHECK(v.codes_bytes == 2 * 16 * 48);
  CHECK(v.total_bytes == 3 * 7 * 1600);
  CHECK(at(v, 4096).scales - at(v, 4096).codes == 2 * 16 * 48);
  source.layout = source.page_layout = Layout::rows;
  const SideGeometry rows = side_geometry(source, source.v, 3, 2, 100);
  CHECK(rows.strides.codes_head_stride == 50);
  CHECK(rows.strides.codes_token_stride == 100);
  CHECK(rows.strides.codes_sequence_stride == 1600);
  CHECK(at(rows, 4096).scales == nullptr);
  CHECK(side_geometry(source, source.v, 1, 1, std::numeric_limits<long long>::max()).total_bytes ==
        std::numeric_limits<std::size_t>::max());
}

TEST_CASE("pages: tables reach the kernel; what it could not see is refused") {
  ProgramSource source = make_source(false, false);
  source.page_tokens = 16;
  source.kernels[Role::decode].args_bytes = sizeof(kv::PagedAttentionArgs);
  source.kernels[Role::quantize_k].args_bytes = sizeof(kv::PagedCodecArgs);
  ProgramFixture f(source);
  f.call.k = at(side_geometry(source, source.k, 3, 2, 1000), 3 * kBase);
  f.call.v = at(side_geometry(source, source.v, 3, 2, 1000), 9 * kBase);
  f.call.k_table = {pointer<const int>(20 * kBase), 63};
  f.call.v_table = {pointer<const int>(21 * kBase), 70};
  f.attend();
  const auto args = f.launches[0].as<kv::PagedAttentionArgs>();
  CHECK(address(args.k_table.pages) == 20 * kBase);
  CHECK(args.v_table.row_stride == 70);
  f.refuses([](auto& c) { c.k_table.pages = nullptr; }, "k: the page table is a null pointer");
  f.refuses([](auto& c) { c.v_table.row_stride = -1; }, "v: page table rows -1 entries apart");
  f.refuses([](auto& c) { c.k.codes_sequence_stride += 8; }, "k.codes: page stride");
  f.refuses([](auto& c) { c.k.codes_token_stride = 72; }, "k.codes: token stride 72 is not a multiple of 16");
  f.refuses([](auto& c) { c.k.codes += 8; }, "k.codes is 8 bytes past a multiple of 16");
  f.refuses([](auto& c) { c.k.scales_token_stride = 12; }, "k.scales: token stride 12 is not a multiple of 8");
  f.refuses([](auto& c) { c.v.scales += 2; },
            "v.scales is 2 bytes past a multiple of 16");  // dense scales are copied 16 bytes at a time

  kv::CodecArgs codec{};
  codec.x = {pointer<void>(kBase), 0, 128, 128};
  codec.side = f.call.k;
  codec.sequences = codec.heads = 1, codec.tokens = 4, codec.x_type = kv::RowType::f32, codec.tensor_scale = 1;
  CHECK(f.program->quantize(0, codec, nullptr).error().message == "k: the page table is a null pointer");
  codec.slots = pointer<const kv::i64>(30 * kBase);
  REQUIRE(f.program->quantize(0, codec, nullptr, f.call.k_table));
  CHECK(f.launches.back().as<kv::PagedCodecArgs>().table.pages == nullptr);  // slots lead to the pages

  ProgramFixture plain(make_source(false, false));
  plain.call.k_table = f.call.k_table;
  CHECK(plain.program->attention(plain.call, 64 * kBase, nullptr).error().message.find("whose cache has no pages") !=
        std::string::npos);
}

TEST_CASE("V in K's rows: another place than K's is refused") {
  ProgramSource source = make_source(false, false, false);
  source.values_in_keys = true;
  ProgramFixture f(source);
  f.call.k = f.call.v = at(side_geometry(source, source.k, 3, 2, 1000), 3 * kBase);
  CHECK(f.attend().cache_bytes == 3LL * 2 * f.call.tokens * source.k.row_bytes);
  const char* const reason = "v: another address, stride or page table than k's";
  f.refuses([](auto& c) { c.v.codes += 16; }, reason);
  f.refuses([](auto& c) { c.v.codes_sequence_stride += 16; }, reason);
  f.refuses([](auto& c) { c.v.codes_head_stride += 16; }, reason);
  f.refuses([](auto& c) { c.v.codes_token_stride += 16; }, reason);

  ProgramSource planar = make_source(false, false);
  planar.values_in_keys = true;
  ProgramFixture g(planar);
  g.call.k = g.call.v = at(side_geometry(planar, planar.k, 3, 2, 1000), 3 * kBase);
  g.attend();
  g.refuses([](auto& c) { c.v.scales += 16; }, reason);
  g.refuses([](auto& c) { c.v.scales_head_stride += 16; }, reason);
}

TEST_CASE("token-major heads: one batch-head a sequence, and heads that do not lie side by side are refused") {
  ProgramSource source = make_source(false, false, false);
  source.token_heads = 8;
  source.rows = 64;
  ProgramFixture f(source);
  f.call.kv_heads = 8;
  f.call.q = {pointer<void>(kBase), 8192, 4096, 128}, f.call.out = {pointer<void>(2 * kBase), 8192, 4096, 128};
  f.call.k = at(side_geometry(source, source.k, 3, 8, 1000), 3 * kBase);
  f.call.v = at(side_geometry(source, source.v, 3, 8, 1000), 9 * kBase);
  f.attend();
  CHECK(f.launches[0].as<kv::AttentionArgs>().scheduler.kv_heads == 1);
  CHECK(f.launches[1].grid.y == 1);
  f.refuses([](auto& c) { c.kv_heads = 16; }, "16 KV heads; test is for tokens of 8 (cache.token_heads)");
  f.refuses([](auto& c) { c.kv_heads = 4; }, "4 KV heads; test is for tokens of 8");
  f.refuses([](auto& c) { c.k.codes_head_stride = 74; }, "k.codes: heads 74 and tokens 576 bytes apart");
  f.refuses([](auto& c) { c.v.codes_token_stride = 416; }, "they lie side by side: 50 and 400 bytes of value_format");
  f.refuses([](auto& c) { c.v.codes_sequence_stride += 8; }, "v.codes: sequence stride 400008 is not a multiple of 16");
  f.refuses([](auto& c) { c.k.codes += 2; }, "k.codes is 2 bytes past a multiple of 16");
}

TEST_CASE("sizes that overflow saturate") {
  constexpr long long kHuge = std::numeric_limits<long long>::max();
  for (const bool planar : {false, true}) {
    const ProgramSource source = make_source(true, true, planar);
    for (const auto& geometry :
         {side_geometry(source, source.k, kHuge, 2, 100), side_geometry(source, source.k, 1, 1, kHuge),
          side_geometry(source, source.k, -1, 1, 1), side_geometry(source, source.k, 1 << 30, 1 << 30, 1 << 30)})
      CHECK(geometry.total_bytes == std::numeric_limits<std::size_t>::max());
  }
}

TEST_CASE("create gets the kernels of attention and no other") {
  const ProgramFixture f(make_source(true, true));
  CHECK(f.context->got == std::vector<std::string>{"rotate_q", "decode", "merge", "rotate_out"});
  CHECK(f.program->record(Role::merge) != nullptr);
  CHECK(f.program->record(Role::reference) == nullptr);
}

TEST_CASE("fused: one launch, straight from q to out; the readable kernel keeps its rotations") {
  ProgramSource source = make_source(true, true);
  source.rotates_queries = source.fuses_merge = source.rotates_output = true;
  ProgramFixture f(source);
  CHECK(f.context->got == std::vector<std::string>{"decode"});
  CHECK(f.attend().kernels == std::vector<std::string>{"decode"});
  const auto attend = f.launches[0].as<kv::AttentionArgs>();
  CHECK(attend.q.data == f.call.q.data);
  CHECK(attend.out.data == f.call.out.data);
  CHECK(address(attend.split_counters) == 64 * kBase);
  CHECK(f.program->reference(f.call, 64 * kBase, nullptr)->kernels ==
        std::vector<std::string>{"rotate_q", "reference", "rotate_out"});
  source.rotates_output = false;
  ProgramFixture half(source);
  CHECK(half.attend().kernels == std::vector<std::string>{"decode", "rotate_out"});
  CHECK(half.launches[0].as<kv::AttentionArgs>().out.data == half.launches[1].as<kv::RotateArgs>().in.data);
}

TEST_CASE("both sides rotated, not fused: four kernels, parts of the workspace in order") {
  ProgramFixture f(make_source(true, true));
  f.call.blocks = 4;
  const LaunchReport report = f.attend();
  CHECK(report.kernels == std::vector<std::string>{"rotate_q", "decode", "merge", "rotate_out"});
  CHECK(report.k_reader == "key_format");
  CHECK(report.v_reader == "value_format");
  CHECK(report.converted_bytes == 0);
  CHECK(report.cache_bytes == 1000ll * 2 * 3 * (72 + 50));
  CHECK(report.blocks == 3);
  REQUIRE(f.launches.size() == 4);

  constexpr DevicePointer kWork = 64 * kBase + kCounterBytes;
  constexpr std::size_t kSlots = 3 * 2 + 4;  // one split for each batch-head and block
  constexpr std::size_t kQ = 3 * 2 * 8 * 128 * 4, kPartial = kSlots * 8 * 128 * 4, kState = 768;  // 640, rounded up
  const auto rotate_q = f.launches[0].as<kv::RotateArgs>();
  CHECK(rotate_q.in.data == f.call.q.data);
  CHECK(rotate_q.in.query_stride == 1024);
  CHECK(address(rotate_q.out.data) == kWork);
  CHECK(rotate_q.out.head_stride == 128);
  CHECK(rotate_q.out.query_stride == 8 * 128);
  CHECK(rotate_q.out.sequence_stride == 2 * 8 * 128);
  CHECK(rotate_q.sequences == 3);
  CHECK(rotate_q.queries == 2);
  CHECK(rotate_q.heads == 8);
  CHECK(f.launches[0].grid.x == 6);  // 48 rows, 8 warps a block

  const auto attend = f.launches[1].as<kv::AttentionArgs>();
  CHECK(address(attend.q.data) == kWork);
  CHECK(address(attend.partial) == kWork + 2 * kQ);  // behind Q and the output, as many numbers each
  CHECK(address(attend.partial_state) == kWork + 2 * kQ + kPartial);
  CHECK(attend.k.codes == f.call.k.codes);
  CHECK(attend.v.scales == f.call.v.scales);
  CHECK(attend.split_counters == nullptr);  // decode leaves all splits to merge
  CHECK(attend.scheduler.tokens == 1000);
  CHECK(attend.scheduler.sequences == 3);
  CHECK(attend.scheduler.kv_heads == 2);
  CHECK(attend.scheduler.blocks == 3);  // three of four: two whole batch-heads each
  CHECK(attend.scheduler.tiles_per_head == 16);
  CHECK(attend.scheduler.tiles_per_block == 32);
  CHECK(attend.scheduler.blocks_with_one_more == 0);
  CHECK(attend.scale_log2 == doctest::Approx(1 / std::sqrt(128.0) * 1.4426950408889634));
  CHECK(f.launches[1].grid.x == 3);
  CHECK(f.launches[1].grid.y == 1);
  CHECK(f.launches[1].grid.z == 1);

  const auto merge = f.launches[2].as<kv::MergeArgs>();
  CHECK(merge.partial == attend.partial);
  CHECK(merge.partial_state == attend.partial_state);
  CHECK(address(merge.out.data) == kWork + kQ);
  CHECK(merge.scheduler.tiles_per_block == attend.scheduler.tiles_per_block);
  CHECK(f.launches[2].grid.x == 8);
  CHECK(f.launches[2].grid.z == 3);

  const auto rotate_out = f.launches[3].as<kv::RotateArgs>();
  CHECK(rotate_out.in.data == merge.out.data);
  CHECK(rotate_out.out.data == f.call.out.data);
  CHECK(f.program->workspace_bytes(f.call) == kCounterBytes + kQ + kPartial + kState + kQ);
}

TEST_CASE("nothing rotated: two kernels, straight from q to out; the scale given is the scale used") {
  ProgramFixture f(make_source(false, false));
  f.call.scale = 0.5;
  CHECK(f.attend().kernels == std::vector<std::string>{"decode", "merge"});
  const auto attend = f.launches[0].as<kv::AttentionArgs>();
  CHECK(attend.q.data == f.call.q.data);
  CHECK(attend.q.query_stride == f.call.q.query_stride);
  CHECK(address(attend.partial) == 64 * kBase + kCounterBytes);
  CHECK(attend.scale_log2 == doctest::Approx(0.5 * 1.4426950408889634));
  CHECK(f.launches[1].as<kv::MergeArgs>().out.data == f.call.out.data);
}

TEST_CASE("reference: one kernel between the rotations, one block a query row") {
  ProgramFixture f(make_source(true, true));
  const auto report = f.program->reference(f.call, 64 * kBase, nullptr);
  REQUIRE(report);
  CHECK(report->kernels == std::vector<std::string>{"rotate_q", "reference", "rotate_out"});
  const auto args = f.launches[1].as<kv::AttentionArgs>();
  CHECK(f.launches[1].grid.x == 16);
  CHECK(f.launches[1].grid.z == 3);
  CHECK(args.q.data == f.launches[0].as<kv::RotateArgs>().out.data);
  CHECK(args.out.data == f.launches[2].as<kv::RotateArgs>().in.data);
  ProgramFixture plain(make_source(false, false));
  REQUIRE(plain.program->reference(plain.call, 64 * kBase, nullptr));
  CHECK(plain.launches[0].as<kv::AttentionArgs>().out.data == plain.call.out.data);
}

TEST_CASE("blocks: one a multiprocessor, a few less where that saves split boundaries, none without a tile") {
  ProgramFixture f(make_source(false, false));  // two heads
  const auto blocks = [&](int tokens, int wanted, int sequences = 1) {
    f.call.tokens = tokens;
    f.call.blocks = wanted;
    f.call.sequences = sequences;
    f.launches.clear();
    const int count = f.attend().blocks;
    const auto schedule = f.launches[0].as<kv::AttentionArgs>().scheduler;
    CHECK(schedule.blocks == count);
    CHECK(schedule.tiles_per_head >= unsigned(tokens + 63) / 64);
    CHECK(schedule.tiles_per_head < unsigned(tokens + 63) / 64 + schedule.tiles_per_block);
    CHECK(schedule.tiles_per_block * unsigned(count) + schedule.blocks_with_one_more >=
          schedule.tiles_per_head * 2 * unsigned(sequences));
    CHECK(schedule.tiles_per_block * unsigned(count) + schedule.blocks_with_one_more <
          schedule.tiles_per_head * 2 * unsigned(sequences) + schedule.tiles_per_block);
    CHECK(schedule.blocks_with_one_more < unsigned(count));
    CHECK(schedule.tiles_per_block > 0);
    return count;
  };
  CHECK(blocks(1, 0) == 2);
  CHECK(blocks(64, 100) == 2);
  CHECK(blocks(65, 100) == 4);
  CHECK(blocks(1000, 5) == 4);        // 16 tiles a batch-head, 8 a block; a fifth block would only add boundaries
  CHECK(blocks(131072, 0) == 128);    // 2048 tiles a batch-head: with 66 blocks each, some would have 32 tiles as well
  CHECK(blocks(4096, 0, 12) == 120);  // 24 batch-heads of 64 tiles: 13 a block instead of 11.6
  CHECK(blocks(131072, 0, 12) == 132);   // 2048 tiles: 410 a block instead of 372 take longer than boundaries
  CHECK(blocks(131072, 0, 4) == 128);    // 8 batch-heads: 16 blocks each
  CHECK(blocks(131072, 0, 128) == 128);  // 256 batch-heads: two a block
  CHECK(blocks(131072, 0, 33) == 132);   // 66 batch-heads: 2 blocks each
  CHECK(blocks(131072, 0, 50) == 132);   // 100 blocks, one a batch-head, would idle a quarter of the device
  CHECK(blocks(131072, 0, 100) == 132);
  CHECK(blocks(1 << 30, 7) == 7);
  CHECK(blocks(1 << 30, kMostBlocks) == kMostBlocks);

  f.call.lengths = pointer<int>(kBase);  // an address that only the device can read
  f.call.blocks = 0, f.call.tokens = 131072, f.call.sequences = 4;
  CHECK(f.attend().blocks == 132);
  f.call.lengths = nullptr;
  f.context->recorder->device.is_gpu = false;
  CHECK(blocks(256, 0) == 2);
  CHECK(blocks(257, 0) == 4);
  CHECK(blocks(1025, 0) == 5);  // 17 tiles a batch-head: 9 exceed the mean by more than a tile
}

TEST_CASE("calls that a kernel could not survive are refused before any launch, by name") {
  const auto refused = [](const std::function<void(AttentionCall&)>& corrupt, const std::string& part,
                          bool planar = true) {
    ProgramFixture f(make_source(true, true, planar));
    corrupt(f.call);
    const auto result = f.program->attention(f.call, 64 * kBase, nullptr);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == Code::bad_input);
    INFO(result.error().message);
    CHECK(result.error().message.find(part) != std::string::npos);
    CHECK(f.launches.empty());
  };
  refused([](auto& c) { c.tokens = 0; }, "tokens");
  refused([](auto& c) { c.tokens = std::numeric_limits<int>::max(); }, "tokens");
  refused([](auto& c) { c.sequences = 0; }, "sequences");
  refused([](auto& c) { c.sequences = 65536; }, "65536 sequences");
  refused([](auto& c) { c.kv_heads = -1; }, "heads");
  refused([](auto& c) { c.blocks = -1; }, "-1 blocks");
  refused([](auto& c) { c.blocks = kMostBlocks + 1; }, "513 blocks");
  refused([](auto& c) { c.tokens = 1 << 30, c.kv_heads = c.sequences = 60000; }, "tiles of 64 tokens");
  refused([](auto& c) { c.scale = NAN; }, "scale");
  refused([](auto& c) { c.q.data = nullptr; }, "q is a null");
  refused([](auto& c) { c.out.data = pointer<void>(kBase + 2); }, "out is 2 bytes past a multiple of 4");
  refused([](auto& c) { c.k.codes = nullptr; }, "k.codes is a null");
  refused([](auto& c) { c.v.scales = nullptr; }, "v.scales is a null");
  refused([](auto& c) { c.v.codes += 8; }, "v.codes is 8 bytes past");
  refused([](auto& c) { c.k.codes_token_stride = 80; }, "k.codes: token stride 80");
  refused([](auto& c) { c.k.codes_head_stride += 8; }, "k.codes: head stride");
  refused([](auto& c) { c.v.scales_sequence_stride += 2; }, "v.scales: sequence stride");
  refused([](auto& c) { c.lengths = pointer<int>(kBase + 1); }, "lengths");
  refused([](auto& c) { c.k.codes += 1; }, "k.codes is 1 bytes past", false);
  refused([](auto& c) { c.v.codes_token_stride += 1; }, "v.codes: token stride", false);
  ProgramFixture f(make_source(true, true));
  CHECK(f.program->attention(f.call, 0, nullptr).error().message == "workspace is a null pointer");
}

TEST_CASE("layout rows takes any even address and stride") {
  ProgramFixture f(make_source(false, false, false));
  f.call.k.codes += 2;
  f.call.k.codes_head_stride += 6;
  CHECK(f.program->attention(f.call, 64 * kBase, nullptr));
}

TEST_CASE("codecs load on first use, one warp a row, and are checked") {
  ProgramFixture f(make_source(false, false));
  kv::CodecArgs args{};
  args.tensor_scale = 1;
  args.x = {pointer<void>(kBase), 7 * 256, 256, 128};
  args.side = f.call.k;
  args.sequences = 3;
  args.tokens = 7;
  args.heads = 2;
  CHECK(f.program->quantize(0, args, nullptr).error().code == Code::bad_input);  // no element type
  args.x_type = kv::RowType::f16;
  REQUIRE(f.program->quantize(0, args, nullptr));
  CHECK(f.context->got.back() == "quantize_k");
  CHECK(f.launches.back().grid.x == 11);  // 42 rows, 4 warps a block
  CHECK(f.launches.back().as<kv::CodecArgs>().tokens == 7);
  const std::size_t got = f.context->got.size();
  REQUIRE(f.program->quantize(0, args, nullptr));
  CHECK(f.context->got.size() == got);
  args.side = f.call.v;
  REQUIRE(f.program->dequantize(1, args, nullptr));
  CHECK(f.launches.back().name == "dequantize_v");

  CHECK(f.program->quantize(1, args, nullptr).error().code == Code::unsupported);
  CHECK(f.program->quantize(2, args, nullptr).error().code == Code::bad_input);
  args.tokens = 0;
  CHECK(f.program->dequantize(1, args, nullptr).error().code == Code::bad_input);
  args.tokens = 1;
  args.first_token = -1;
  CHECK(f.program->dequantize(1, args, nullptr).error().code == Code::bad_input);
  args.first_token = 0;
  args.x.data = pointer<void>(kBase + 2);
  args.x_type = kv::RowType::f32;
  CHECK(f.program->dequantize(1, args, nullptr).error().code == Code::bad_input);
  args.side = f.call.k;
  args.x_type = kv::RowType::bf16;
  CHECK(f.program->quantize(0, args, nullptr));  // an address that suits f16
  args.x_type = kv::RowType::f32;
  CHECK_FALSE(f.program->quantize(0, args, nullptr).has_value());
}

TEST_CASE("a kernel that takes other arguments than the runtime has is not launched") {
  ProgramSource source = make_source(false, false);
  source.kernels[Role::decode].args_bytes -= 8;
  ProgramFixture f(std::move(source));
  CHECK(f.program->attention(f.call, 64 * kBase, nullptr).error().code == Code::internal);
  CHECK(f.launches.empty());
}

TEST_CASE("outputs overlap no cache, and a cache that is appended to overlaps neither itself nor what is read") {
  ProgramSource source = make_source(false, false);
  source.features.lse = true;
  for (const Role role : {Role::decode, Role::reference})
    source.kernels[role].args_bytes = sizeof(kv::Featured<kv::AttentionArgs>);
  source.kernels[Role::merge].args_bytes = sizeof(kv::Featured<kv::MergeArgs>);
  ProgramFixture f(source);
  f.call.features.lse = pointer<float>(50 * kBase);
  f.attend();
  const DevicePointer k = 3 * kBase, v_scales = address(f.call.v.scales);
  const auto last = [](const kv::CacheSide& side) {  // the last row that the call reads
    return address(side.codes) + 2 * side.codes_sequence_stride + side.codes_head_stride +
           999 * side.codes_token_stride;
  };
  f.refuses([&](auto& c) { c.out.data = pointer<void>(k); }, "out overlaps k.codes; what a call writes");
  f.refuses([&](auto& c) { c.out.data = pointer<void>(last(c.v)); }, "out overlaps v.codes");
  f.refuses([&](auto& c) { c.out.data = pointer<void>(v_scales); }, "out overlaps v.scales");
  f.refuses([&](auto& c) { c.features.lse = pointer<float>(last(c.k)); }, "lse overlaps k.codes");
  f.refuses([&](auto& c) { c.out.data = c.features.lse; }, "lse overlaps out");
  f.call.lengths = pointer<int>(40 * kBase);  // shorter than `tokens`, perhaps: only the first tokens count
  f.refuses([&](auto& c) { c.out.data = pointer<void>(k); }, "out overlaps k.codes");
  f.call.lengths = nullptr;
  f.refuses([](auto& c) { c.k.codes_sequence_stride = 1LL << 62; }, "k.codes: strides");
  f.call.k.codes_sequence_stride = 0;  // sequences may read the same tokens
  f.attend();

  source.append = true;
  source.kernels[Role::decode].args_bytes = sizeof(kv::Featured<kv::AppendArgs>);
  ProgramFixture a(source);
  a.call.features.lse = pointer<float>(50 * kBase);
  a.call.new_k = {pointer<void>(51 * kBase), 512, 256, 128}, a.call.new_v = {pointer<void>(52 * kBase), 512, 256, 128};
  a.attend();
  a.refuses([&](auto& c) { c.new_k.data = c.k.codes; }, "k.codes overlaps new_k; what a call writes");
  a.refuses([&](auto& c) { c.new_v.data = pointer<void>(last(c.v)); }, "v.codes overlaps new_v");
  a.refuses([&](auto& c) { c.new_v.data = c.k.scales; }, "k.scales overlaps new_v");
  a.refuses([&](auto& c) { c.q.data = c.v.scales; }, "v.scales overlaps q");
  a.refuses([](auto& c) { c.features.lse = static_cast<float*>(c.new_k.data); }, "lse overlaps new_k");
  a.refuses([](auto& c) { c.k.codes_sequence_stride = 0; },
            "k.codes: rows of 64 bytes overlap, by strides 0, 65536 "
            "and 64 of 3 sequences, 2 heads and 1000 tokens");
  a.refuses([](auto& c) { c.v.scales_head_stride = 1984; }, "v.scales: rows of 2 bytes overlap");
  CHECK(a.program->reference(a.call, 64 * kBase, nullptr));
  a.call.new_k.data = a.call.k.codes;  // the reference kernel stores nothing
  CHECK(a.program->reference(a.call, 64 * kBase, nullptr));
}

TEST_CASE("rows of quantize and dequantize overlap no cache, and a cache that is written does not overlap itself") {
  ProgramFixture f(make_source(false, false));
  kv::CodecArgs args{};
  args.tensor_scale = 1, args.x_type = kv::RowType::f16;
  args.x = {pointer<void>(kBase), 7 * 256, 256, 128};
  args.side = f.call.k;
  args.sequences = 3, args.tokens = 7, args.heads = 2, args.first_token = 993;
  REQUIRE(f.program->quantize(0, args, nullptr));
  const auto refused = [&](int side, const auto& corrupt, const std::string& message) {
    kv::CodecArgs changed = args;
    corrupt(changed);
    const auto ran = side == 0 ? f.program->quantize(0, changed, nullptr) : f.program->dequantize(1, changed, nullptr);
    REQUIRE_FALSE(ran);
    CHECK(ran.error().code == Code::bad_input);
    CHECK_MESSAGE(ran.error().message.find(message) != std::string::npos, ran.error().message);
  };
  refused(
      0, [](auto& c) { c.x.data = c.side.codes + 993 * 64; }, "k.codes overlaps x; what a call writes");
  refused(
      0, [](auto& c) { c.x.data = c.side.scales + 999 * 8; }, "k.scales overlaps x");
  args.sequences = args.heads = 1;
  args.x.data = args.side.codes;  // tokens 0 to 992 are neither read nor written
  REQUIRE(f.program->quantize(0, args, nullptr));
  args.sequences = 3, args.heads = 2, args.x.data = pointer<void>(kBase);
  refused(
      0, [](auto& c) { c.side.codes_head_stride = 999 * 64; }, "k.codes: rows of 64 bytes overlap");
  refused(
      0, [](auto& c) { c.side.scales_sequence_stride = 0; }, "k.scales: rows of 8 bytes overlap");
  refused(
      0, [](auto& c) { c.side.codes_head_stride = 1LL << 62, c.heads = 8; }, "do not fit 64 bits");
  args.side.codes_sequence_stride = args.side.scales_sequence_stride = 0;
  args.slots = pointer<const kv::i64>(40 * kBase);  // sequences may take slots of one cache
  REQUIRE(f.program->quantize(0, args, nullptr));
  refused(
      0, [](auto& c) { c.side.codes_head_stride = 48; }, "k.codes: rows of 64 bytes overlap");
  refused(
      0, [](auto& c) { c.x.data = c.side.codes; }, "k.codes overlaps x");
  args.slots = nullptr;

  args.side = f.call.v;
  REQUIRE(f.program->dequantize(1, args, nullptr));
  refused(
      1, [](auto& c) { c.x.data = c.side.codes + 993 * 48; }, "x overlaps v.codes; what a call writes");
  args.side.codes_sequence_stride = args.side.scales_sequence_stride = 0;  // reading a row twice is possible
  REQUIRE(f.program->dequantize(1, args, nullptr));
}

TEST_CASE("rows in the rotated domain have all stored columns") {
  ProgramSource source = make_source(true, true);
  source.head_dim_v = 96, source.v.stored_dim = 128;
  ProgramFixture f(source);
  kv::CodecArgs args{};
  args.tensor_scale = 1, args.x_type = kv::RowType::f16;
  args.x = {pointer<void>(kBase), 0, 192, 96};
  args.side = f.call.v;
  args.sequences = 1, args.tokens = 7, args.heads = 2;
  REQUIRE(f.program->dequantize(1, args, nullptr));
  args.keep_rotated = 1;
  const auto refused = f.program->dequantize(1, args, nullptr);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message ==
        "x: rows of 128 elements overlap, by strides 0, 192 and 96 of 1 sequences, 7 queries or tokens and 2 heads");
  args.x.query_stride = 256, args.x.head_stride = 128;
  CHECK(f.program->dequantize(1, args, nullptr));
}

TEST_CASE(
    "slots of layout rows: a token stride shorter than a row is refused, heads and tokens may be nested either way") {
  ProgramFixture f(make_source(false, false, false));
  kv::CodecArgs args{};
  args.tensor_scale = 1, args.x_type = kv::RowType::f16;
  args.x = {pointer<void>(kBase), 7 * 256, 256, 128};
  args.side = f.call.k;
  args.sequences = 3, args.tokens = 7, args.heads = 2;
  args.slots = pointer<const kv::i64>(40 * kBase);
  REQUIRE(f.program->quantize(0, args, nullptr));
  args.side.codes_head_stride = args.side.codes_token_stride = 72;  // [head][one token]
  REQUIRE(f.program->quantize(0, args, nullptr));
  args.side.codes_token_stride = 70;
  const auto refused = f.program->quantize(0, args, nullptr);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("k.codes: rows of 72 bytes overlap") != std::string::npos);
}

TEST_CASE("pages that are written do not overlap") {
  ProgramSource source = make_source(false, false);
  source.page_tokens = 16;
  source.kernels[Role::quantize_k].args_bytes = sizeof(kv::PagedCodecArgs);
  source.kernels[Role::decode].args_bytes = sizeof(kv::PagedAttentionArgs);
  ProgramFixture f(source);
  kv::CodecArgs args{};
  args.x = {pointer<void>(kBase), 0, 256, 128};
  args.side = f.call.k;
  args.sequences = 1, args.heads = 2, args.tokens = 20, args.x_type = kv::RowType::f32, args.tensor_scale = 1;
  const kv::PageTable table{pointer<const int>(40 * kBase), 63};
  REQUIRE(f.program->quantize(0, args, nullptr, table));
  args.side.codes_sequence_stride = 64;
  const auto refused = f.program->quantize(0, args, nullptr, table);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("k.codes: rows of 64 bytes overlap, by strides 64, 1024 and 64 of 2 pages, 2 "
                                     "heads and 16 tokens") != std::string::npos);
  args.tokens = 16;  // one page
  CHECK(f.program->quantize(0, args, nullptr, table));
}
