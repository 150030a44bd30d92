// emit_tiles: quantise and dequantise for many rows at once.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "core/args.cuh"
#include "generator/emit_text.hpp"

namespace kvjit {

using namespace emit;

Source emit_tiles(const Format& f, const TilePlan& plan, int head_dim, bool is_planar, bool is_quantise,
                  const std::string& arch, const Registry& registry) {
  const Section& s = f.codes();
  const Field &codes = *f.field(FieldKind::codes), &scale = *f.field(FieldKind::scale);
  const char* family = !is_quantise ? "dequantise_tiles" : plan.is_dense ? "quantise_dense" : "quantise_tiles";
  const std::string name =
      fmt::format("{}.{}.d{}.{}.{}", family, f.name, head_dim, is_planar ? "planar" : "rows", arch);
  Writer w = begin(registry, name, is_quantise ? "many f16 rows into the cache" : "many cache rows back");
  w.fragment(fmt::format("kernels/{}.cuh", family));
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const auto word = [](std::uint32_t v) { return fmt::format("{:#010x}", v); };
  w.line("KV_CONSTANT float kValues[{}] = {{\n    {}}};", s.values.size(), joined(s.values, real));
  if (is_quantise)
    w.line("KV_CONSTANT u32 kBuckets[{}] = {{\n    {}}};", plan.buckets.size(), joined(plan.buckets, word));
  if (plan.is_dense) {
    w.line("// {}, by rows", f.rotation.name);
    w.line("KV_TABLE float kMatrix[{}] = {{\n    {}}};", kTileGroup * kTileGroup,
           joined(f.rotation.matrix.numbers(), real));
  }
  const auto words = [&](const std::vector<std::int8_t>& signs) {
    std::vector<std::uint32_t> all(signs.size() / 32);
    for (std::size_t i = 0; i < signs.size(); ++i)
      if (signs[i] < 0) all[i / 32] |= 1u << i % 32;
    return joined(all, word);
  };
  if (!plan.is_dense) {
    w.line("// {}: a set bit is -1", f.rotation.name);
    w.line("KV_CONSTANT u32 kPreSigns[{}] = {{{}}};", kTileGroup / 32, words(f.rotation.pre));
    w.line("KV_CONSTANT u32 kPostSigns[{}] = {{{}}};", kTileGroup / 32, words(f.rotation.post));
  }
  w.line("struct Stored {{\n  static constexpr bool kIsPlanar = {};\n}};", flag(is_planar));
  const int warps =
      is_quantise ? plan.warps : std::min(plan.warps, 12);  // two halves of every entry take more registers
  w.line("struct Plan {{\n  using F = Stored;");
  w.line("  static constexpr int kHeadDim = {}, kWarps = {}, kThreads = {}, kBits = {};", head_dim, warps, warps * 32,
         s.bits);
  w.line("  static constexpr int kCodesAt = {}, kScaleAt = {}, kCodeStride = {}, kScaleStride = {}, kCodeUnit = {};",
         is_planar ? codes.plane_at : codes.at, is_planar ? scale.plane_at : scale.at,
         is_planar ? f.code_bytes : f.block_bytes, is_planar ? f.scale_bytes : f.block_bytes, plan.code_unit);
  const int tables = is_quantise ? kEncodingBytes : 256 << 2 * s.bits;
  w.line("  static constexpr int kHadamardAt = {};", tables);
  w.line("  static constexpr bool kIsMatched = {};", flag(f.scale.refine == Refine::matched));
  w.line("  KV_DEVICE static float value(int code) {{ return kValues[code]; }}");
  if (is_quantise) {
    w.line("  KV_DEVICE static u32 bucket(int i) {{ return kBuckets[i]; }}");
  } else {
    w.line("  // halves hold values / kUnit; a transformed sum times kFactor and the stored scale is a value");
    w.line("  static constexpr float kUnit = {}, kFactor = {};", real(s.values.back()),
           real(s.values.back() / std::sqrt(double(kTileGroup))));
  }
  if (plan.is_dense) {
    w.line("  KV_DEVICE static float matrix(int i) {{ return kMatrix[i]; }}\n}};\n");
  } else {
    w.line("  KV_DEVICE static u32 pre_signs(int word) {{ return kPreSigns[word]; }}");
    w.line("  KV_DEVICE static u32 post_signs(int word) {{ return kPostSigns[word]; }}\n}};\n");
  }
  Source source = finish(
      w, name, arch,
      {family, "CodecArgs", warps * 32,
       is_quantise ? plan.shared_bytes : tables + kHadamardBytes + warps * kTileStageBytes, sizeof(kv::CodecArgs)});
  source.tile_rows = warps * plan.warp_rows;
  return source;
}

}  // namespace kvjit
