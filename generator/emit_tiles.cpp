// emit_tiles: quantise for many rows at once.
// SPDX-License-Identifier: MIT
#include "core/args.cuh"
#include "generator/emit_text.hpp"

namespace kvjit {

using namespace emit;

Source emit_tiles(const Format& f, const TilePlan& plan, int head_dim, bool is_planar, const std::string& arch,
                  const Registry& registry) {
  const Section& s = f.codes();
  const Field &codes = *f.field(FieldKind::codes), &scale = *f.field(FieldKind::scale);
  const std::string name =
      fmt::format("quantise_tiles.{}.d{}.{}.{}", f.name, head_dim, is_planar ? "planar" : "rows", arch);
  Writer w = begin(registry, name, "many f16 rows into the cache");
  w.fragment("kernels/quantise_tiles.cuh");
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const auto word = [](std::uint32_t v) { return fmt::format("{:#010x}", v); };
  w.line("KV_CONSTANT float kValues[{}] = {{\n    {}}};", s.values.size(), joined(s.values, real));
  w.line("KV_CONSTANT u32 kBuckets[{}] = {{\n    {}}};", plan.buckets.size(), joined(plan.buckets, word));
  const auto words = [&](const std::vector<std::int8_t>& signs) {
    std::vector<std::uint32_t> all(signs.size() / 32);
    for (std::size_t i = 0; i < signs.size(); ++i)
      if (signs[i] < 0) all[i / 32] |= 1u << i % 32;
    return joined(all, word);
  };
  w.line("// {}: a set bit is -1", f.rotation.name);
  w.line("KV_CONSTANT u32 kPreSigns[{}] = {{{}}};", kTileGroup / 32, words(f.rotation.pre));
  w.line("KV_CONSTANT u32 kPostSigns[{}] = {{{}}};", kTileGroup / 32, words(f.rotation.post));
  w.line("struct Stored {{\n  static constexpr bool kIsPlanar = {};\n}};", flag(is_planar));
  w.line("struct Plan {{\n  using F = Stored;");
  w.line("  static constexpr int kHeadDim = {}, kWarps = {}, kThreads = {}, kBits = {};", head_dim, plan.warps,
         plan.warps * 32, s.bits);
  w.line("  static constexpr int kCodesAt = {}, kScaleAt = {}, kCodeStride = {}, kScaleStride = {}, kCodeUnit = {};",
         is_planar ? codes.plane_at : codes.at, is_planar ? scale.plane_at : scale.at,
         is_planar ? f.code_bytes : f.block_bytes, is_planar ? f.scale_bytes : f.block_bytes, plan.code_unit);
  w.line("  static constexpr bool kIsMatched = {};", flag(f.scale.refine == Refine::matched));
  w.line("  KV_DEVICE static float value(int code) {{ return kValues[code]; }}");
  w.line("  KV_DEVICE static u32 bucket(int i) {{ return kBuckets[i]; }}");
  w.line("  KV_DEVICE static u32 pre_signs(int word) {{ return kPreSigns[word]; }}");
  w.line("  KV_DEVICE static u32 post_signs(int word) {{ return kPostSigns[word]; }}\n}};\n");
  Source source =
      finish(w, name, arch, {"quantise_tiles", "CodecArgs", plan.warps * 32, plan.shared_bytes, sizeof(kv::CodecArgs)});
  source.tile_rows = plan.warps * 16;
  return source;
}

}  // namespace kvjit
