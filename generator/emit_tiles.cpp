// emit_tiles: quantise and dequantise for many rows at once.
// SPDX-License-Identifier: MIT
#include "generator/emit_tiles.hpp"

#include <cmath>

#include "core/pages.cuh"

namespace kvjit {

using namespace emit;

namespace emit {

void write_tile_constants(Writer& w, const TileText& text) {
  const Format& f = text.format;
  const TilePlan& plan = text.plan;
  const auto word = [](std::uint32_t v) { return fmt::format("{:#010x}", v); };
  const std::vector<double> values = text.values();
  w.line("KV_CONSTANT float {}Values[{}] = {{\n    {}}};", text.prefix, values.size(), joined(values, real));
  if (text.is_quantise)
    w.line("KV_CONSTANT u32 {}Buckets[{}] = {{\n    {}}};", text.prefix, plan.buckets.size(),
           joined(plan.buckets, word));
  const auto words = [&](const std::vector<std::int8_t>& signs) {
    std::vector<std::uint32_t> all(signs.size() / 32);
    for (std::size_t i = 0; i < signs.size(); ++i)
      if (signs[i] < 0) all[i / 32] |= 1u << i % 32;
    return joined(all, word);
  };
  if (plan.is_dense) {
    w.line("// {}, by rows", f.rotation.name);
    w.line("KV_TABLE float kMatrix[{}] = {{\n    {}}};", kTileGroup * kTileGroup,
           joined(f.rotation.matrix.numbers(), real));
  } else {
    w.line("// {}: a set bit is -1", f.rotation.name);
    w.line("KV_CONSTANT u32 {}PreSigns[{}] = {{{}}};", text.prefix, kTileGroup / 32, words(f.rotation.pre));
    w.line("KV_CONSTANT u32 {}PostSigns[{}] = {{{}}};", text.prefix, kTileGroup / 32, words(f.rotation.post));
  }
}

void write_tile_places(Writer& w, const TileText& text) {
  const Format& f = text.format;
  const Field &codes = *f.field(FieldKind::codes), &scale = *f.field(FieldKind::scale);
  w.line("  static constexpr int kCodesAt = {}, kScaleAt = {}, kCodeStride = {}, kScaleStride = {}, kCodeUnit = {};",
         text.is_planar ? codes.plane_at : codes.at, text.is_planar ? scale.plane_at : scale.at,
         text.is_planar ? f.code_bytes : f.block_bytes, text.is_planar ? f.scale_bytes : f.block_bytes,
         text.plan.code_unit);
  w.line("  static constexpr bool kIsNibbles = {};", flag(codes.is_nibbles));
  w.line("  static constexpr int kLaneStride = {}, kWordStride = {};  // of the codes' words, bytes",
         codes.is_nibbles ? 4 : 4 * f.codes().bits, codes.is_nibbles ? kTileGroup / 32 * 4 : 4);
}

void write_tile_numbers(Writer& w, const TileText& text) {
  w.line("  KV_DEVICE static float value(int code) {{ return {}Values[code]; }}", text.prefix);
  if (!text.is_quantise) {
    w.line("  // halves hold values / kUnit; a transformed sum times kFactor and the stored scale is a value");
    w.line("  static constexpr float kUnit = {}, kFactor = {};", real(text.plan.unit),
           real(text.plan.unit / text.length()));
    w.line("  static constexpr int kCodeParts = {};", text.plan.code_parts);
    return;
  }
  // The largest power of two that leaves the squared length of 128 of the longest entries below 2^31.
  const double last = text.values().back(), most = kTileGroup * last * last;
  w.line("  static constexpr float kSquareStep = {};  // integer steps of 1 in squared lengths",
         real(std::exp2(std::floor(31 - std::log2(most)))));
  w.line("  static constexpr bool kIsMatched = {}, kIsSignMagnitude = {};",
         flag(text.format.scale.refine == Refine::matched), flag(!text.format.codes().cell_codes.empty()));
  w.line("  KV_DEVICE static u32 bucket(int i) {{ return {}Buckets[i]; }}", text.prefix);
}

void write_tile_signs(Writer& w, const TileText& text) {
  if (text.plan.is_dense) return;
  w.line("  KV_DEVICE static u32 pre_signs(int word) {{ return {}PreSigns[word]; }}", text.prefix);
  w.line("  KV_DEVICE static u32 post_signs(int word) {{ return {}PostSigns[word]; }}", text.prefix);
}

}  // namespace emit

namespace {

// By Element, of templates/core/inputs.cuh and decoding.cuh.
constexpr const char* kInputs[] = {"HalfInput", "BfloatInput", "FloatInput"};
constexpr const char* kOutputs[] = {"HalfOutput", "BfloatOutput", "FloatOutput"};
constexpr const char* kWords[] = {"F16Words", "Bf16Words", "F32Words"};  // of templates/core/lanes.cuh

Source emit_blocks(const CodecPlan& codec, const TilePlan& plan, const TileKernel& kernel, const TileCall& call,
                   const std::string& name, const Registry& registry) {
  const Format& f = codec.format;
  const int head_dim = codec.head_dim, page_tokens = codec.page_tokens;
  const std::string& arch = codec.arch;
  Writer w = begin(registry, name, call.is_quantise ? "many rows into the cache" : "many cache rows back");
  w.fragment(fmt::format("kernels/{}.cuh", kernel.name));
  codec_fragments(w, codec);
  w.check_first(codec.checks);
  if (call.is_quantise) domain_fragments(w, f);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const std::string rows = rows_name(codec, "StoredFormat");
  write_format(w, f, head_dim, rows, true, codec_paging(page_tokens));
  write_slots(w, codec, "StoredFormat", rows);
  if (call.is_quantise) {
    write_domain(w, f, false);
    write_encoder(w, f, "StoredFormat", "RowEncoder", true);
    w.line("struct LaneEncoder : RowEncoder {{\n  using Lanes = InLane;\n}};\n");
  }
  w.line("struct Plan {{\n  static constexpr int kHeadDim = {}, kThreads = {}, kValues = {};", head_dim,
         kernel.warps * 32, plan.lane_values);
  w.line("  using {} = {};", call.is_quantise ? "Encoder" : "F", call.is_quantise ? "LaneEncoder" : "StoredFormat");
  w.line("  using Words = {};\n}};\n", kWords[int(call.type)]);
  Source source = finish(
      w, name, arch, {kernel.name, codec_args(codec), kernel.warps * 32, kernel.shared_bytes, codec_args_bytes(codec)});
  source.row_threads = head_dim / plan.lane_values;
  return source;
}

}  // namespace

Source emit_tiles(const CodecPlan& codec, const TilePlan& plan, const TileKernel& kernel, const TileCall& call,
                  const Registry& registry) {
  const Format& f = codec.format;
  const int head_dim = codec.head_dim, page_tokens = codec.page_tokens;
  const std::string& arch = codec.arch;
  const std::string name =
      fmt::format("{}.{}.d{}.{}.{}.{}", kernel.name, f.name, head_dim, codec.layout(), to_string(call.type), arch);
  if (plan.family == TileFamily::blocks) return emit_blocks(codec, plan, kernel, call, name, registry);
  Writer w = begin(registry, name, call.is_quantise ? "many rows into the cache" : "many cache rows back");
  w.fragment(fmt::format("kernels/{}.cuh", kernel.name));
  codec_fragments(w, codec);
  w.check_first(codec.checks);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const TileText text{plan, f, codec.is_planar, call.is_quantise, kernel.by_matrix};
  write_tile_constants(w, text);
  w.line("struct {} {{\n  static constexpr bool kIsPlanar = {};", rows_name(codec, "Stored"), flag(codec.is_planar));
  write_paging(w, codec_paging(page_tokens));
  w.line("}};");
  write_slots(w, codec, "Stored", rows_name(codec, "Stored"));
  w.line("struct Plan {{\n  using F = Stored;");
  w.line("  static constexpr int kHeadDim = {}, kWarps = {}, kThreads = {}, kBits = {};", head_dim, kernel.warps,
         kernel.warps * 32, f.codes().bits);
  write_tile_places(w, text);
  w.line("  static constexpr int kMatrixAt = {}, kStageAt = {};", kernel.matrix_at, kernel.stage_at);
  write_tile_numbers(w, text);
  if (call.is_quantise && kernel.by_matrix) {
    w.line("  using Input = {};", kInputs[int(call.type)]);
    w.line(
        "  // a product, for a row of length 1, is this many standard deviations, and its square times kSquareUnit "
        "is of the row");
    w.line("  static constexpr float kDeviations = {}, kSquareUnit = {};",
           real(std::sqrt(double(kTileGroup)) / text.length()), real(1 / (text.length() * text.length())));
  }
  if (!call.is_quantise) w.line("  using Output = {};", kOutputs[int(call.type)]);
  write_tile_signs(w, text);
  if (kernel.by_matrix) {
    w.line("  static constexpr int kMatrixParts = {};", plan.is_dense ? 2 : 1);
    w.line("  KV_DEVICE static float matrix(int i, int k) {{ return {}; }}",
           plan.is_dense ? fmt::format("{} * kMatrix[i * {} + k]", real(kDenseLength), kTileGroup)
                         : std::string("wht_entry<Plan>(i, k)"));
  } else if (plan.is_dense) {
    w.line("  KV_DEVICE static float matrix(int i) {{ return kMatrix[i]; }}");
  }
  w.line("}};\n");
  Source source = finish(
      w, name, arch, {kernel.name, codec_args(codec), kernel.warps * 32, kernel.shared_bytes, codec_args_bytes(codec)});
  source.tiles = kernel.warps * kernel.warp_tiles;
  return source;
}

}  // namespace kvjit
