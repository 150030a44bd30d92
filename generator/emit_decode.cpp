// emit_decode: the decode family.
// SPDX-License-Identifier: MIT
#include "core/args.cuh"
#include "generator/emit_text.hpp"

namespace kvjit {
namespace {

using namespace emit;

std::string term(const UnpackTerm& t) {
  const std::string word = t.shift == 0  ? fmt::format("w[{}]", t.word)
                           : t.shift > 0 ? fmt::format("w[{}] >> {}", t.word, t.shift)
                                         : fmt::format("w[{}] << {}", t.word, -t.shift);
  return t.mask == 0xffffffffu ? word : fmt::format("({} & {:#010x}u)", word, t.mask);
}

// One side of decode: geometry of its staged rows, its unpack sequence and its decoder.
void write_side(Writer& w, const SidePlan& side, const std::string& type, int threads) {
  const Format& f = side.format;
  const RunPlan& run = side.run;
  w.line("// {} as {}: {} bits a value", type == "KeySide" ? "K" : "V", f.name, f.bits_per_value());
  if (!side.halves.empty())
    w.line("KV_CONSTANT u16 k{}Halves[{}] = {{  // centroids / kUnit, as halves\n    {}}};", type, side.halves.size(),
           joined(side.halves, [](std::uint16_t half) { return fmt::format("{:#06x}", half); }));
  w.line("struct {} {{", type);
  w.line(
      "  static constexpr bool kIsPlanar = {}, kHasScale = {}, kIsBf16 = {}, kOwnsTable = {}, kIsSkewed = "
      "{};",
      flag(side.is_planar), flag(f.has_scale()), flag(f.codes().element == Element::bf16), flag(side.owns_table),
      flag(side.is_skewed));
  w.line("  static constexpr int kThreads = {}, kBits = {}, kOffset = {};", threads, f.codes().bits, f.codes().offset);
  w.line("  // the staged row");
  w.line(
      "  static constexpr int kRowBytes = {}, kRowUnit = {}, kPitch = {}, kGroupStride = {}, "
      "kCodesAt = {};",
      side.row_bytes, side.row_unit, side.pitch, side.group_stride, side.codes_at);
  w.line(
      "  static constexpr int kScaleRowBytes = {}, kScalesAt = {}, kScalePitch = {}, kScaleStride = {}, "
      "kStageBytes = {};",
      side.scale_row_bytes, side.scales_at, side.scale_pitch, side.scale_stride, side.stage_bytes);
  w.line("  // the codes of a lane: kGroups x kRuns runs");
  w.line(
      "  static constexpr int kGroups = {}, kRuns = {}, kRunCodes = {}, kRunWords = {}, kRunLoadBytes = {}, "
      "kRunUnit = {};",
      run.groups, run.runs, run.codes, run.words, run.load_bytes, run.unit);
  w.line("  static constexpr int kRunStride = {}, kPartBits = {};", run.run_stride, run.part_bits);
  w.line("  static constexpr int kTableAt = {}, kTableStride = {}, kTableCopies = {};", side.table_at,
         side.table_stride, side.table_copies);
  w.line("  static constexpr float kUnit = {};", real(side.unit));
  if (f.codes().kind != CodeKind::plain) {
    if (f.codes().kind == CodeKind::table)
      w.line("  KV_DEVICE static u32 half_value(int code) {{ return k{}Halves[code]; }}", type);
    w.line("  KV_DEVICE static void unpack(const u32 (&w)[{}], u32 (&y)[{}]) {{", run.words, run.unpack.size());
    for (std::size_t m = 0; m < run.unpack.size(); ++m) {
      std::string sum;
      for (const UnpackTerm& t : run.unpack[m]) sum += (sum.empty() ? "" : " | ") + term(t);
      w.line("    y[{}] = {}{};", m, f.codes().twos_complement ? "(" + sum + ")" : sum,
             f.codes().twos_complement ? fmt::format(" ^ {:#010x}u", 0x01010101u << (f.codes().bits - 1)) : "");
    }
    w.line("  }}");
    w.line("  using Pairs = {}<{}>;", f.codes().kind == CodeKind::table ? "TablePairs" : "UniformPairs", type);
    w.line("  using Run = CodeRun<{}>;", type);
  } else {
    w.line("  using Run = PlainRun<{}>;", type);
  }
  w.line("}};\n");
}

}  // namespace

Source emit_decode(const DecodePlan& plan, const Registry& registry) {
  const std::string name = fmt::format("decode.{}", plan.name);
  Writer w = begin(registry, name, "decode attention over a packed KV cache, partial results");
  w.fragment("kernels/decode.cuh");
  w.fragment(feature_fragment(plan.causal));
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_side(w, plan.k, "KeySide", plan.threads());
  write_side(w, plan.v, "ValueSide", plan.threads());
  const auto number = [](int v) { return std::to_string(v); };
  w.line(
      "// Dimension of each contraction slot of Q, and of each row of O, in the order the packings give "
      "them.");
  w.line("KV_CONSTANT u16 kKeyOrder[{}] = {{\n    {}}};", plan.key_order.size(), joined(plan.key_order, number));
  w.line("KV_CONSTANT u16 kValueOrder[{}] = {{\n    {}}};\n", plan.value_order.size(),
         joined(plan.value_order, number));
  w.line("struct Plan {{");
  w.line("  static constexpr int kHeadDim = {}, kGroup = {}, kRows = {}, kColumnBlocks = {}, kQueryParts = {};",
         plan.head_dim, plan.group, plan.rows, plan.column_blocks, plan.query_parts);
  w.line("  static constexpr bool kHoldQueries = {};", flag(plan.hold_queries));
  w.line("  static constexpr int kWarps = {}, kThreads = {}, kStages = {}, kTile = {}, kSubtiles = {};", plan.warps,
         plan.threads(), plan.stages, plan.tile, plan.subtiles);
  w.line("  static constexpr int kQueriesAt = {}, kRingAt = {}, kStageBytes = {};", plan.queries_at, plan.ring_at,
         plan.stage_bytes);
  w.line("  using K = KeySide;\n  using V = ValueSide;\n  using Feature = {};",
         feature_of(plan.causal, plan.query_length));
  w.line("{}", load_of(plan.q_type, "load_query"));
  w.line("  KV_DEVICE static int key_order(int i) {{ return kKeyOrder[i]; }}");
  w.line("  KV_DEVICE static int value_order(int i) {{ return kValueOrder[i]; }}\n}};");
  w.line(
      "static_assert(KeySide::kStageBytes + ValueSide::kStageBytes == Plan::kStageBytes, \"stages do not add "
      "up\");\n");
  return finish(w, name, plan.arch.name,
                {"decode", "AttentionArgs", plan.threads(), plan.shared_bytes, sizeof(kv::AttentionArgs)});
}

}  // namespace kvjit
