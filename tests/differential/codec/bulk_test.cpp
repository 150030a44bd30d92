// Bulk write path on the CPU back-end, against the reference codec: enough rows that the runtime launches the
// bulk kernels, rows that end inside a tile, tiles that span heads, both layouts, kernels for warpgroups and for warps.
// SPDX-License-Identifier: MIT
#include "tests/differential/codec/bulk.hpp"

namespace kvjit::test {
TEST_CASE("bulk by warpgroups: the codec's bytes, its decoder's values") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* format : {"tbq4_0", "kv4", "kv3", "kv2", "kv1", "tbq4_dense_qsfirst_raw"})
    for (const Layout layout : {Layout::planar, Layout::rows})
      check_tiles(registry(), context, "sm_90a", format, 128, layout, 1031);
  for (const char* format : {"tbq4_0", "tbq3_dense_qsfirst_raw"})
    check_tiles(registry(), context, "sm_90a", format, 256, Layout::planar, 1024);
}

constexpr Element kHalf = Element::f16, kFloat = Element::f32;

// Formats with top bits in a plane of their own (turbo3, planar3), padding (turbo4_0 in rows), scales that four blocks
// repeat, zero bytes, and rows that are scaled to their length.
TEST_CASE("bulk: how codes are packed and scales are stored") {
  const auto context = open_context(DeviceKind::cpu);
  const TileTypes types{{kHalf}, {kFloat}};
  for (const char* format : {"turbo3_0", "turbo4_0", "amesianx_tbq3_1", "vllm_k4_nc"})
    check_tiles(registry(), context, "sm_90a", format, 128, Layout::rows, 1031, types);
  for (const char* format : {"turbo3_0", "planar3"})
    check_tiles(registry(), context, "sm_90a", format, 128, Layout::planar, 1031, types);
  for (const Layout layout : {Layout::planar, Layout::rows})
    check_tiles(registry(), context, "sm_90a", "turbo3_qk32", 128, layout, 1031, types);
  check_tiles(registry(), context, "sm_80", "turbo3_0", 256, Layout::planar, 1031, types);
  check_tiles(registry(), context, "sm_80", "vllm_k4_nc", 128, Layout::planar, 1031, {{kHalf}, {kFloat}});
  check_tiles(registry(), context, "sm_80", "iso4", 128, Layout::planar, 1031, {{kHalf}, {}});
}

TEST_CASE("bulk by warps") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* format : {"tbq4_0", "kv3", "kv1", "tbq4_dense_qsfirst_raw"})
    check_tiles(registry(), context, "sm_80", format, 128, Layout::rows, 1031);
  for (const char* format : {"tbq4_0", "tbq3_dense_qsfirst_raw"})
    check_tiles(registry(), context, "sm_80", format, 256, Layout::planar, 1024);
}

TEST_CASE("bulk by whole blocks a lane") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* format :
       {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "fp8_e4m3", "fp8_e5m2", "f16", "bf16", "f32"})
    check_tiles(registry(), context, "sm_90a", format, 96, Layout::planar, 1031);
  for (const char* format : {"tq3_0", "tq3_0v"})  // both store signs; one has a rotation of the block
    check_tiles(registry(), context, "sm_90a", format, 96, Layout::planar, 1031, {{kHalf}, {kFloat}});
}

TEST_CASE("each arch and format has the bulk kernels that it can have") {
  struct Expected {
    const char *arch, *format;
    bool types[2][3];  // [quantize, dequantize][f16, bf16, f32]
  };
  constexpr Expected kAll[] = {
      {"sm_90a", "tbq4_0", {{true, true, true}, {true, true, true}}},
      {"sm_90a", "tbq4_dense_qsfirst_raw", {{true, true, true}, {true, true, true}}},
      {"sm_90", "tbq4_0", {{true, false, false}, {true, true, true}}},
      {"sm_90", "tbq4_dense_qsfirst_raw", {{true, false, false}, {false, false, false}}},
      {"sm_75", "tbq4_0", {{false, false, false}, {false, false, false}}},
  };
  for (const Expected& expected : kAll) {
    const Planned one = planned(registry(), {expected.format, "f16", 128, 1, 1, Layout::planar, false}, expected.arch);
    for (const bool is_quantize : {true, false})
      for (int type = 0; type < 3; ++type)
        CHECK_MESSAGE((one.source.kernels.count(bulk_role(is_quantize, true, kv::RowType(type + 1))) == 1) ==
                          expected.types[is_quantize ? 0 : 1][type],
                      expected.arch, " ", expected.format, is_quantize ? " quantize " : " dequantize ", type);
  }
}

// Returns how many bytes of quantized rows of a type the warpgroup kernel gets wrong.
std::size_t wrong_bytes(const Registry& registry, const std::shared_ptr<Context>& context, Element type,
                        const char* format = "tbq4_0", Layout layout = Layout::planar) {
  const Planned one = planned(registry, {format, "f16", 128, 1, 1, layout, false}, "sm_90a");
  const auto program = must(Program::create(context, one.source));
  KernelHarness harness = must(KernelHarness::make(context, program, one.problem, {1, kKvHeads, 1031}));
  const TileRows rows = tile_rows(one.problem.k, 128, std::size_t(kKvHeads) * 1031, type);
  must(harness.set_rows(0, std::vector<std::uint8_t>(rows.stored.size(), 0xa5)));
  if (!harness.quantize(0, rows.x, type)) return rows.stored.size();  // the call reports why the back-end refused
  const auto stored = must(harness.rows(0));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) wrong += stored[i] != rows.stored[i];
  return wrong * 1000 > stored.size() ? wrong : 0;
}

TEST_CASE("bulk quantize: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  struct Mutation {
    const char *file, *from, *to;
    Element type = Element::f16;
  };
  constexpr Mutation kMutations[] = {
      {"kernels/codec/quantize_bulk_wgmma.cuh", "copy_wait<0>();", ""},
      {"kernels/codec/wgmma_rows.cuh", "? warp() % 4 * kBulkRows : 0", "? 0 : 0"},
      {"kernels/codec/wgmma_rows.cuh", "return pack_bf16x2(low, high)", "return pack_f16x2(low, high)", Element::bf16},
      {"kernels/codec/bulk_encode.cuh", "at.head, token, 8)", "at.head, token, 4)"},
      {"kernels/codec/bulk_encode.cuh", "? first.scales : second.scales", "? first.scales : first.scales"},
  };
  for (const auto& [file, from, to, type] : kMutations)
    CHECK_MESSAGE(wrong_bytes(changed_registry(file, from, to), context, type) > 0, "not noticed: ", std::string(from),
                  " -> ", std::string(to));
  constexpr const char* kOfFormats[][4] = {
      {"turbo3_0", "kernels/codec/bulk_codes.cuh", "codes[i] >> 5", "codes[i] >> 6"},
      {"turbo3_0", "kernels/codec/bulk_codes.cuh", "(lane() & 3) * Plan::kHighStride", "0"},
      {"turbo3_qk32", "kernels/codec/bulk_encode.cuh", "(lane() & 3) * Plan::kLaneScaleStride", "0"},
      {"turbo4_0", "kernels/codec/bulk_encode.cuh", "Plan::kPadBytes > 0", "false"},
  };
  for (const auto& [format, file, from, to] : kOfFormats)
    CHECK_MESSAGE(wrong_bytes(changed_registry(file, from, to), context, Element::f16, format, Layout::rows) > 0,
                  "not noticed: ", std::string(from), " -> ", std::string(to));
}

// Returns the relative error of f32 rows from the bulk dequantize kernel of warps. has_uneven_scales: blocks that
// should repeat one scale hold different ones.
double error_back(const Registry& registry, const std::shared_ptr<Context>& context, const char* format,
                  bool has_uneven_scales = false) {
  const Planned one = planned(registry, {format, "f16", 128, 1, 1, Layout::planar, false}, "sm_90a");
  const auto program = must(Program::create(context, one.source));
  KernelHarness harness = must(KernelHarness::make(context, program, one.problem, {1, kKvHeads, 1031}));
  TileRows rows = tile_rows(one.problem.k, 128, std::size_t(kKvHeads) * 1031, Element::f32);
  if (has_uneven_scales) {
    const auto bytes = std::size_t(one.problem.k.block_bytes),
               scale = std::size_t(one.problem.k.field(FieldKind::scale)->at);
    for (std::size_t block = 0; block < rows.stored.size() / bytes; block += 7)
      rows.stored[block * bytes + scale + 1] = block % 2 ? 0x38 : 0xb4;  // about 1/2 or -1/4
    rows.decoded.clear();
    for (std::size_t at = 0; at < rows.stored.size(); at += 4 * bytes) {
      const auto values = decode_row(one.problem.k, std::span(rows.stored).subspan(at, 4 * bytes), 128, false);
      rows.decoded.insert(rows.decoded.end(), values.begin(), values.end());
    }
  }
  must(harness.set_rows(0, rows.stored));
  const auto back = harness.dequantize(0, false, Element::f32);
  return back ? relative_error(*back, rows.decoded) : 1;  // the call reports why the back-end refused
}

TEST_CASE("bulk dequantize: a broken kernel is noticed") {
  const auto context = open_context(DeviceKind::cpu);
  constexpr const char* kMutations[][4] = {
      {"turbo3_0", "kernels/codec/bulk_codes.cuh", "top_bits << 2", "top_bits << 4"},
      {"turbo3_0", "kernels/codec/bulk_codes.cuh", "? 0x1100 : 0x3322", "? 0x1100 : 0x1100"},
      {"turbo3_qk32", "kernels/codec/bulk_decode.cuh", "scales.of_row[half] / largest", "1.f"},
      {"vllm_k3_nc", "kernels/codec/bulk_decode.cuh", "*= rsqrt_fast(square[half])", "*= rsqrt_fast(square[0])"},
  };
  for (const auto& [format, file, from, to] : kMutations) {
    const bool is_uneven = std::string(format) == "turbo3_qk32";
    CHECK(error_back(registry(), context, format, is_uneven) <= 2e-6);
    CHECK_MESSAGE(error_back(changed_registry(file, from, to), context, format, is_uneven) > 1e-4,
                  "not noticed: ", std::string(from), " -> ", std::string(to));
  }
}

// A NaN or infinity in one row must not change another row of its tile.
TEST_CASE("NaN, infinities and lengths beyond float32 stay in their rows") {
  const auto context = open_context(DeviceKind::cpu);
  for (const char* format : {"tbq4_0", "tbq4_dense_qsfirst_raw"}) {
    const Planned one = planned(registry(), {format, "f16", 128, 1, 1, Layout::planar, false}, "sm_90a");
    const auto program = must(Program::create(context, one.source));
    KernelHarness harness = must(KernelHarness::make(context, program, one.problem, {1, kKvHeads, 1100}));
    TileRows rows = tile_rows(one.problem.k, 128, 2200, Element::f32);
    const std::vector<float> bad = {NAN, INFINITY, -INFINITY, 1e25f};
    for (std::size_t i = 0; i < bad.size(); ++i) rows.x[(20 + i) * 128 + 3 * i] = bad[i];
    for (const Element type : {Element::f16, Element::bf16, Element::f32}) {
      must(harness.quantize(0, rows.x, type));
      const auto values = must(harness.dequantize(0));
      for (std::size_t row = 16; row < 32; ++row) {
        const bool is_bad = row >= 20 && row < 20 + bad.size();
        for (std::size_t i = 0; i < 128; ++i)
          CHECK_MESSAGE(std::isfinite(values[row * 128 + i]) != is_bad, format, " row ", row, " value ", i);
      }
    }
  }
}

TEST_CASE("few rows, and rows of the rotated domain, take the kernels for any row") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one =
      planned(registry(), {"kv4", "f16", 128, 1, 1, Layout::planar, false}, context->backend()->info().arch);
  const auto program = must(Program::create(context, one.source));
  KernelHarness few = must(KernelHarness::make(context, program, one.problem, {1, kKvHeads, 100}));
  must(few.quantize(0, tile_rows(one.problem.k, 128, 200, Element::f16).x, Element::f16));
  CHECK(program->record(Role::quantize_bulk_k_f16) == nullptr);
  CHECK(program->record(Role::quantize_k) != nullptr);
  KernelHarness many = must(KernelHarness::make(context, program, one.problem, {1, kKvHeads, 1100}));
  must(many.quantize(0, tile_rows(one.problem.k, 128, 2200, Element::f32).x, Element::f32));
  CHECK(program->record(Role::quantize_bulk_k_f32) != nullptr);
  must(many.dequantize(0, true));
  CHECK(program->record(Role::dequantize_bulk_k_f32) == nullptr);
  CHECK(program->record(Role::dequantize_k) != nullptr);
}

TEST_CASE("formats that no bulk kernel can serve have none") {
  for (const auto& [format, layout] : {std::pair{"q4_0", Layout::rows},
                                       {"kv5", Layout::planar},
                                       {"tbq4_dense256_qsfirst_raw", Layout::planar},
                                       {"atlas_turbo3", Layout::planar},
                                       {"turbo4_qjl68", Layout::planar}}) {
    const Planned one = planned(registry(), {format, "f16", 256, 1, 1, layout, false}, "sm_90a");
    CHECK_MESSAGE(one.source.kernels.count(Role::quantize_bulk_k_f16) == 0, format);
  }
}

}  // namespace kvjit::test
