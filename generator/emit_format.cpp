// emit_format: a stored format as formats/stored.cuh and formats/encode.cuh read it.
// SPDX-License-Identifier: MIT
#include "generator/emit_text.hpp"

namespace kvjit::emit {

void write_format(Writer& w, const Format& f, const std::string& type, bool is_planar) {
  const bool is_table = f.kind == CodeKind::table;
  w.line("// {}: {} bits a value, {} values in {} bytes", f.name, f.bits_per_value(), f.block, f.block_bytes);
  if (is_table) {
    w.line("KV_CONSTANT float k{}Values[{}] = {{\n    {}}};", type, f.values.size(), joined(f.values, real));
    w.line("KV_CONSTANT float k{}Bounds[{}] = {{\n    {}}};", type, f.bounds.size(), joined(f.bounds, real));
  }
  w.line("struct {} {{", type);
  w.line("  static constexpr bool kIsPlanar = {}, kIsPlain = {}, kIsBf16 = {}, kIsSplit = {}, kHasScale = {};",
         flag(is_planar), flag(f.kind == CodeKind::plain), flag(f.element == Element::bf16),
         flag(f.packing == Packing::split), flag(f.has_scale()));
  w.line(
      "  static constexpr int kBits = {}, kBlock = {}, kBlockBytes = {}, kCodeBytes = {}, kCodesAt = {}, "
      "kScaleAt = {};",
      f.bits, f.block, f.block_bytes, f.code_bytes, f.codes_at, f.scale_at);
  w.line("  static constexpr int kCodeStride = {}, kScaleStride = {};", is_planar ? f.code_bytes : f.block_bytes,
         is_planar ? 2 : f.block_bytes);
  if (f.kind != CodeKind::plain) {
    w.line("  static constexpr int kOffset = {}, kMaxCode = {};", f.offset, f.max_code);
    w.line("  static constexpr u32 kCodeXor = {:#x};", f.twos_complement ? 1u << (f.bits - 1) : 0u);
    w.line("  static constexpr float kDivisor = {};", real(f.divisor));
    w.line("  KV_DEVICE static float value(u32 code) {{ return {}; }}",
           is_table ? fmt::format("k{}Values[code]", type) : "float(int(code) - kOffset)");
    if (is_table) w.line("  KV_DEVICE static float bound(u32 i) {{ return k{}Bounds[i]; }}", type);
    w.line("  KV_DEVICE static u32 code(float v) {{ return {}<{}>(v); }}",
           f.rounding == Rounding::bounds    ? "count_bounds"
           : f.rounding == Rounding::half_up ? "round_half_up"
                                             : "round_half_away",
           type);
    std::string padding = "false";
    for (const Field& field : f.fields)
      if (field.kind == FieldKind::pad)
        padding += fmt::format(" || (j >= {} && j < {})", field.at, field.at + field.bytes);
    w.line("  KV_DEVICE static bool is_padding([[maybe_unused]] int j) {{ return {}; }}", padding);
    switch (f.scale) {
      case ScaleRule::none:
        break;
      case ScaleRule::amax:
        w.line("  using Encoder = AmaxEncoder<Amax>;");
        break;
      case ScaleRule::signed_max:
        w.line("  using Encoder = AmaxEncoder<SignedMax>;");
        break;
      case ScaleRule::raw_norm:
        w.line("  using Encoder = NormEncoder<false>;");
        break;
      case ScaleRule::corrected_norm:
        w.line("  using Encoder = NormEncoder<true>;");
        break;
    }
  }
  w.line("}};\n");
}

}  // namespace kvjit::emit
