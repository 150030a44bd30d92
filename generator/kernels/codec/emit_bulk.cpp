// emit_bulk: writes the bulk forms of quantize and dequantize: over tiles of 16 rows on the tensor cores, or with whole
// blocks a lane (emit_blocks).
// SPDX-License-Identifier: MIT
#include "generator/kernels/codec/emit_bulk.hpp"

#include <cmath>

#include "args/page_table.cuh"

namespace kvjit {

using namespace emit;

namespace emit {

void write_bulk_constants(Writer& w, const BulkText& text) {
  const Format& f = text.format;
  const BulkPlan& plan = text.plan;
  const auto word = [](std::uint32_t v) { return fmt::format("{:#010x}", v); };
  const std::vector<double> values = text.values();
  w.line("KV_CONSTANT float {}Values[{}] = {{\n    {}}};", text.prefix, values.size(), joined(values, real));
  if (text.is_quantize)
    w.line("KV_CONSTANT u32 {}Buckets[{}] = {{\n    {}}};", text.prefix, plan.buckets.size(),
           joined(plan.buckets, word));
  const auto words = [&](const std::vector<std::int8_t>& signs) {
    std::vector<std::uint32_t> all(signs.size() / 32);
    for (std::size_t i = 0; i < signs.size(); ++i)
      if (signs[i] < 0) all[i / 32] |= 1u << i % 32;
    return joined(all, word);
  };
  if (plan.is_dense) {
    w.line("// {}, by rows of {}", f.rotation.name, f.rotation.width);
    w.line("KV_TABLE float kMatrix[{}] = {{\n    {}}};", f.rotation.matrix.numbers().size(),
           joined(f.rotation.matrix.numbers(), real));
  } else {
    w.line("// {}: a set bit is -1", f.rotation.name);
    w.line("KV_CONSTANT u32 {}PreSigns[{}] = {{{}}};", text.prefix, kBulkGroup / 32, words(f.rotation.pre));
    w.line("KV_CONSTANT u32 {}PostSigns[{}] = {{{}}};", text.prefix, kBulkGroup / 32, words(f.rotation.post));
  }
}

void write_bulk_places(Writer& w, const BulkText& text) {
  const BulkPlaces& p = text.plan.places;
  w.line("  static constexpr int kCodesAt = {}, kScaleAt = {}, kCodeStride = {}, kScaleStride = {}, kCodeUnit = {};",
         p.codes_at, p.scale_at, p.code_stride, p.scale_stride, p.unit);
  w.line("  using Packing = {};", p.packing == BulkPacking::nibbles ? "NibbleCodes"
                                  : p.packing == BulkPacking::split
                                      ? "SplitCodes"
                                      : fmt::format("StreamCodes<{}>", text.format.codes().bits));
  w.line("  static constexpr int kLaneStride = {};  // of the codes' words, bytes", p.lane_stride);
  if (p.packing == BulkPacking::split)
    w.line("  static constexpr int kHighAt = {}, kHighStride = {};", p.high_at, p.high_stride);
  if (p.lane_scale_stride > 0) w.line("  static constexpr int kLaneScaleStride = {};", p.lane_scale_stride);
  if (p.pad_bytes > 0) w.line("  static constexpr int kPadAt = {}, kPadBytes = {};", p.pad_at, p.pad_bytes);
  if (text.is_quantize && text.format.zero_bytes) w.line("  static constexpr bool kZeroBytes = true;");
  if (!text.is_quantize && text.format.scale.renormalise) w.line("  static constexpr bool kRenormalises = true;");
}

void write_bulk_values(Writer& w, const BulkText& text) {
  w.line("  KV_DEVICE static float value(int code) {{ return {}Values[code]; }}", text.prefix);
  if (!text.is_quantize) {
    w.line("  // halves hold values / kUnit; a transformed sum times kFactor and the stored scale is a value{}",
           text.format.scale.renormalise ? ", if the row's length is 1" : "");
    w.line("  static constexpr float kUnit = {}, kFactor = {};", real(text.plan.unit),
           real(text.format.scale.renormalise ? 1 : text.plan.unit / text.length()));
    w.line("  static constexpr int kCodeTerms = {};", text.code_terms);
    return;
  }
  // The largest power of two such that the sum of 128 squares of the largest entry stays below 2^31.
  const double last = text.values().back(), most = kBulkGroup * last * last;
  w.line("  static constexpr float kSquareStep = {};  // integer steps of 1 in squared lengths",
         real(std::exp2(std::floor(31 - std::log2(most)))));
  w.line("  static constexpr bool kIsMatched = {}, kIsSignMagnitude = {};",
         flag(text.format.scale.refine == Refine::matched), flag(!text.format.codes().cell_codes.empty()));
  if (text.plan.steps != BulkPlan().steps) w.line("  static constexpr float kStep = {};", real(text.plan.steps));
  if (text.format.scale.epsilon > 0) w.line("  static constexpr float kEpsilon = {};", real(text.format.scale.epsilon));
  w.line("  KV_DEVICE static u32 bucket(int i) {{ return {}Buckets[i]; }}", text.prefix);
}

void write_bulk_signs(Writer& w, const BulkText& text) {
  if (text.plan.is_dense) return;
  w.line("  KV_DEVICE static u32 pre_signs(int word) {{ return {}PreSigns[word]; }}", text.prefix);
  w.line("  KV_DEVICE static u32 post_signs(int word) {{ return {}PostSigns[word]; }}", text.prefix);
}

}  // namespace emit

namespace {

// Types by Element. kInputs and kOperands (if rows are a wgmma operand where they are staged) are those of
// templates/kernels/codec/wgmma_rows.cuh.
constexpr const char* kInputs[] = {"HalfInput", "ScaledBfloatInput", "FloatInput"};
constexpr const char* kOperands[] = {"HalfInput", "BfloatInput", nullptr};
constexpr const char* kOutputs[] = {"HalfOutput", "BfloatOutput", "FloatOutput"};  // of bulk_decode.cuh
constexpr const char* kWords[] = {"F16Words", "Bf16Words", "F32Words"};  // of templates/kernels/codec/lane_rows.cuh

// The expression of the matrix's entry in row i, column k.
std::string matrix_entry(const Rotation& r) {
  if (r.width == kBulkGroup) return fmt::format("kMatrix[i * {} + k]", r.width);
  return fmt::format("(i / {0} == k / {0} ? kMatrix[i * {0} + k % {0}] : 0.f)", r.width);
}

Source emit_blocks(const CodecPlan& codec, const BulkPlan& plan, const BulkKernel& kernel, const BulkCall& call,
                   const std::string& name, const Registry& registry) {
  const Format& f = codec.format;
  const int head_dim = codec.head_dim, page_tokens = codec.page_tokens;
  const std::string& arch = codec.arch;
  Writer w = begin(registry, name, call.is_quantize ? "rows into the cache, in bulk" : "cache rows back, in bulk");
  w.fragment(fmt::format("kernels/codec/{}.cuh", kernel.name));
  codec_fragments(w, codec);
  w.check_first(codec.checks);
  format_fragments(w, f, call.is_quantize);
  domain_fragments(w, f);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const std::string rows = rows_name(codec, "StoredFormat");
  write_format(w, f, head_dim, rows, true, codec_paging(page_tokens));
  write_row_places(w, codec, "StoredFormat", rows);
  write_domain(w, f, !call.is_quantize);
  if (call.is_quantize) {
    write_encoder(w, f, "StoredFormat", "RowEncoder", true);
    w.line("struct LaneEncoder : RowEncoder {{\n  using Lanes = InLane;\n}};\n");
  }
  w.line("struct Plan {{\n  static constexpr int kHeadDim = {}, kThreads = {}, kValues = {};", head_dim,
         kernel.warps * 32, plan.lane_values);
  const int row_lanes = codec.fits_rows ? plan.fitting_lanes(head_dim) : head_dim / plan.lane_values;
  if (codec.fits_rows) w.line("  static constexpr bool kFitsRows = true;");
  if (!call.is_quantize) w.line("  static constexpr int kRowLanes = {};", row_lanes);
  w.line("  using {} = {};", call.is_quantize ? "Encoder" : "F", call.is_quantize ? "LaneEncoder" : "StoredFormat");
  if (!call.is_quantize) w.line("  using Rotation = PlanRotation;");
  w.line("  using Words = {};\n}};\n", kWords[int(call.type)]);
  Source source = finish(
      w, name, arch, {kernel.name, codec_args(codec), kernel.warps * 32, kernel.shared_bytes, codec_args_bytes(codec)});
  source.row_threads = row_lanes;
  return source;
}

}  // namespace

Source emit_bulk(const CodecPlan& codec, const BulkPlan& plan, const BulkKernel& kernel, const BulkCall& call,
                 const Registry& registry) {
  const Format& f = codec.format;
  const int head_dim = codec.head_dim, page_tokens = codec.page_tokens;
  const std::string& arch = codec.arch;
  const std::string name =
      fmt::format("{}.{}.d{}.{}.{}.{}", kernel.name, f.name, head_dim, codec.layout(), to_string(call.type), arch);
  if (plan.family == BulkFamily::blocks) return emit_blocks(codec, plan, kernel, call, name, registry);
  Writer w = begin(registry, name, call.is_quantize ? "rows into the cache, in bulk" : "cache rows back, in bulk");
  w.fragment(fmt::format("kernels/codec/{}.cuh", kernel.name));
  if (call.is_quantize && f.scale.epsilon > 0) w.fragment("kernels/codec/bulk_epsilon.cuh");
  codec_fragments(w, codec);
  w.check_first(codec.checks);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const BulkText text{plan, f, codec.is_planar, call.is_quantize, kernel.by_matrix, kernel.code_terms};
  write_bulk_constants(w, text);
  w.line("struct {} {{\n  static constexpr bool kIsPlanar = {};", rows_name(codec, "Stored"), flag(codec.is_planar));
  write_paging(w, codec_paging(page_tokens));
  w.line("}};");
  write_row_places(w, codec, "Stored", rows_name(codec, "Stored"));
  w.line("struct Plan : BulkDefaults {{\n  using F = Stored;");
  w.line("  static constexpr int kHeadDim = {}, kWarps = {}, kThreads = {}, kBits = {};", head_dim, kernel.warps,
         kernel.warps * 32, f.codes().bits);
  write_bulk_places(w, text);
  w.line("  static constexpr int kMatrixAt = {}, kStageAt = {};", kernel.matrix_at, kernel.stage_at);
  write_bulk_values(w, text);
  if (call.is_quantize && kernel.by_matrix) {
    w.line("  using Input = {};", (kernel.stages_operand ? kOperands : kInputs)[int(call.type)]);
    w.line(
        "  // a product, for a row of length 1, is this many standard deviations, and its square times kSquareUnit "
        "is of the row");
    w.line("  static constexpr float kDeviations = {}, kSquareUnit = {};",
           real(std::sqrt(double(kBulkGroup)) / text.length()), real(1 / (text.length() * text.length())));
  }
  if (!call.is_quantize) w.line("  using Output = {};", kOutputs[int(call.type)]);
  write_bulk_signs(w, text);
  if (kernel.by_matrix) {
    w.line("  static constexpr int kRestBits = {};", kernel.rest_bits);
    w.line("  KV_DEVICE static float matrix(int i, int k) {{ return {}; }}",
           plan.is_dense ? fmt::format("{} * {}", real(kDenseLength), matrix_entry(f.rotation))
                         : std::string("wht_entry<Plan>(i, k)"));
  } else if (plan.is_dense) {
    w.line("  KV_DEVICE static float matrix(int i, int k) {{ return {}; }}", matrix_entry(f.rotation));
  }
  w.line("}};\n");
  Source source = finish(
      w, name, arch, {kernel.name, codec_args(codec), kernel.warps * 32, kernel.shared_bytes, codec_args_bytes(codec)});
  source.tiles = kernel.warps * kernel.warp_tiles;
  return source;
}

}  // namespace kvjit
