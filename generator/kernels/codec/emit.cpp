// emit_codec: writes quantize and dequantize with one row a warp. They serve every format.
// SPDX-License-Identifier: MIT
#include "generator/kernels/codec/emit.hpp"

namespace kvjit {
namespace {

using namespace emit;

constexpr int kWarpsOfRowKernels = 4;  // a block; one warp takes a row

}  // namespace

Source emit_codec(const CodecPlan& plan, const Registry& registry) {
  const Format& f = plan.format;
  const char* family = plan.is_quantize ? "quantize" : "dequantize";
  const std::string name = fmt::format("{}.{}.d{}.{}.{}", family, f.name, plan.head_dim, plan.layout(), plan.arch);
  Writer w = begin(registry, name, plan.is_quantize ? "rows into the cache" : "cache rows back to values");
  w.fragment(fmt::format("kernels/codec/{}.cuh", family));
  codec_fragments(w, plan);
  w.check_first(plan.checks);
  format_fragments(w, f, plan.is_quantize);
  domain_fragments(w, f);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  const std::string rows = rows_name(plan, "StoredFormat");
  write_format(w, f, plan.head_dim, rows, plan.is_planar, codec_paging(plan.page_tokens));
  write_row_places(w, plan, "StoredFormat", rows);
  write_domain(w, f, !plan.is_quantize);
  const int warp_bytes = plan.is_quantize ? writer_bytes(f, plan.head_dim) : 0;
  // Segments are named after the format without slots and lengths, which is the one that write_format wrote.
  if (plan.is_quantize) write_encoder(w, f, f.has_segments() ? rows : "StoredFormat", "RowEncoder", plan.is_planar);
  w.line("struct Plan {{\n{}", domain_members(f, plan.head_dim));
  if (plan.fits_rows) w.line("  static constexpr bool kFitsRows = true;\n  static constexpr int kRowLanes = 32;");
  w.line("  static constexpr int kWarps = {}, kWarpBytes = {};\n  using F = StoredFormat;", kWarpsOfRowKernels,
         warp_bytes);
  if (plan.is_quantize) write_writer_members(w, f, "StoredFormat", "RowEncoder", plan.is_planar);
  w.line("}};\n");
  return finish(
      w, name, plan.arch,
      {family, codec_args(plan), kWarpsOfRowKernels * 32, kWarpsOfRowKernels * warp_bytes, codec_args_bytes(plan)});
}

}  // namespace kvjit
