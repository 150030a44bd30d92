// emit_format: a stored format as formats/stored.cuh and formats/encode.cuh read it.
// SPDX-License-Identifier: MIT
#include "generator/emit_text.hpp"

namespace kvjit::emit {

void write_format(Writer& w, const Format& f, const std::string& type, bool is_planar) {
  const Section& s = f.codes();
  const Field& codes = *f.field(FieldKind::codes);
  const Field* const scale = f.field(FieldKind::scale);
  const bool is_table = s.kind == CodeKind::table;
  w.line("// {}: {} bits a value, {} values in {} bytes", f.name, f.bits_per_value(), f.block, f.block_bytes);
  if (is_table) {
    w.line("KV_CONSTANT float k{}Values[{}] = {{\n    {}}};", type, s.values.size(), joined(s.values, real));
    w.line("KV_CONSTANT float k{}Bounds[{}] = {{\n    {}}};", type, s.bounds.size(), joined(s.bounds, real));
  }
  w.line("struct {} {{", type);
  w.line("  static constexpr bool kIsPlanar = {}, kIsPlain = {}, kIsBf16 = {}, kIsSplit = {}, kHasScale = {};",
         flag(is_planar), flag(s.kind == CodeKind::plain), flag(s.element == Element::bf16),
         flag(codes.split > 0), flag(f.has_scale()));
  w.line(
      "  static constexpr int kBits = {}, kBlock = {}, kBlockBytes = {}, kCodeBytes = {}, kCodesAt = {}, "
      "kScaleAt = {};",
      s.bits, f.block, f.block_bytes, f.code_bytes, codes.at, scale ? scale->at : 0);
  w.line("  static constexpr int kCodeStride = {}, kScaleStride = {};", is_planar ? f.code_bytes : f.block_bytes,
         is_planar ? f.scale_bytes : f.block_bytes);
  if (s.kind != CodeKind::plain) {
    w.line("  static constexpr int kOffset = {}, kMaxCode = {};", s.offset, s.max_code);
    w.line("  static constexpr u32 kCodeXor = {:#x};", s.twos_complement ? 1u << (s.bits - 1) : 0u);
    w.line("  static constexpr float kDivisor = {};", real(f.scale.divisor));
    w.line("  KV_DEVICE static float value(u32 code) {{ return {}; }}",
           is_table ? fmt::format("k{}Values[code]", type) : "float(int(code) - kOffset)");
    if (is_table) w.line("  KV_DEVICE static float bound(u32 i) {{ return k{}Bounds[i]; }}", type);
    w.line("  KV_DEVICE static u32 code(float v) {{ return {}<{}>(v); }}",
           s.rounding == Rounding::bounds    ? "count_bounds"
           : s.rounding == Rounding::half_up ? "round_half_up"
                                             : "round_half_away",
           type);
    std::string padding = "false";
    for (const Field& field : f.fields)
      if (field.kind == FieldKind::pad)
        padding += fmt::format(" || (j >= {} && j < {})", field.at, field.at + field.bytes);
    w.line("  KV_DEVICE static bool is_padding([[maybe_unused]] int j) {{ return {}; }}", padding);
    if (f.scale.rule == ScaleRule::norm)
      w.line("  using Encoder = NormEncoder<{}>;", flag(f.scale.refine == Refine::matched));
    else
      w.line("  using Encoder = AmaxEncoder<{}>;", f.scale.rule == ScaleRule::signed_max ? "SignedMax" : "Amax");
  }
  w.line("}};\n");
}

}  // namespace kvjit::emit
