// emit_copy, emit_shift, emit_quantize_rope: the text of copy, requantize, shift and quantize_rope.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "args/operations.cuh"
#include "generator/emit/writer.hpp"
#include "generator/kernels/operations/operations.hpp"

namespace kvjit {
namespace {

using namespace emit;

constexpr int kWarps = 4;  // of a block of kernels with one row a warp
constexpr int kCopyThreads = 256;

// Returns the format without a swizzle, and without its mark in the name.
Format in_token_order(Format format) {
  format.swizzles_scales = false;
  format.name.resize(format.name.rfind('.'));
  return format;
}

// The text that decodes rows of a format in token order. Two formats are equal if their texts are.
std::string decoder_of(const CodecPlan& plan, const Registry& registry) {
  Writer w{registry, {}, {}};
  Format format = plan.format;
  if (format.swizzles_scales) format = in_token_order(std::move(format));
  write_format(w, format, plan.head_dim, "Stored", false);
  write_domain(w, plan.format, true);
  return w.text + domain_members(plan.format, plan.head_dim);
}

// Bytes of a row that are copied alike: `bytes` bytes of each of `blocks` blocks. Offsets and strides are bytes.
// is_code: they are in the plane of codes, else in that of scales.
struct ByteCopy {
  bool is_code;
  int bytes, blocks, from_at, from_stride, to_at, to_stride;
  std::string text() const {
    return fmt::format("CopiedBytes<{}, {}, {}, {}, {}, {}, {}>", flag(is_code), bytes, blocks, from_at, from_stride,
                       to_at, to_stride);
  }
};

// Returns the bytes from StoredRow::scales to the scale of a group.
int scale_place(const CodecPlan& plan, int group) {
  const Format& f = plan.format;
  const Field& scale = *f.field(FieldKind::scale);
  const int quarter = f.block / f.scale.group / 4;
  if (f.swizzles_scales) return group / quarter * 4 * quarter + group % quarter * 4;
  return (plan.is_planar ? scale.plane_at : scale.at) + group;
}

// The copies that make up a row of one format in two layouts: whole planes if the layouts are equal, else one copy a
// field. largest: bytes of the largest copy.
std::vector<std::string> byte_copies_of(const CopyPlan& plan, int& largest) {
  const Format& f = plan.from.format;
  const int blocks = f.stored_dim(plan.from.head_dim) / f.block;
  std::vector<std::string> copies;
  const auto add = [&](const ByteCopy& copy) {
    copies.push_back(copy.text());
    largest = std::max(largest, copy.bytes * copy.blocks);
  };
  if (plan.from.format.swizzles_scales || plan.to.format.swizzles_scales) {
    if (plan.from.is_planar == plan.to.is_planar)
      add({true, f.code_bytes * blocks, 1, 0, 0, 0, 0});
    else
      for (const Field& field : f.fields)
        if (field.is_code())
          add({true, field.bytes, 1, plan.from.is_planar ? field.plane_at : field.at, 0,
               plan.to.is_planar ? field.plane_at : field.at, 0});
    for (int group = 0; group < f.block / f.scale.group; ++group)
      add({false, 1, 1, scale_place(plan.from, group), 0, scale_place(plan.to, group), 0});
    return copies;
  }
  if (plan.from.is_planar == plan.to.is_planar) {
    const int codes = plan.from.is_planar ? f.code_bytes : f.block_bytes;
    add({true, codes * blocks, 1, 0, 0, 0, 0});
    if (plan.from.is_planar && f.scale_bytes > 0) add({false, f.scale_bytes * blocks, 1, 0, 0, 0, 0});
    return copies;
  }
  const auto at = [](const Field& field, bool is_planar) { return is_planar ? field.plane_at : field.at; };
  const auto stride = [&](const Field& field, bool is_planar) {
    return !is_planar ? f.block_bytes : field.is_code() ? f.code_bytes : f.scale_bytes;
  };
  for (const Field& field : f.fields) {
    if (field.kind != FieldKind::pad)
      add({field.is_code(), field.bytes, blocks, at(field, plan.from.is_planar), stride(field, plan.from.is_planar),
           at(field, plan.to.is_planar), stride(field, plan.to.is_planar)});
    else if (!plan.to.is_planar)
      copies.push_back(fmt::format("ZeroBytes<{}, {}, {}, {}>", field.bytes, blocks, field.at, f.block_bytes));
  }
  return copies;
}

Source emit_bytes(const CopyPlan& plan, Writer& w, const std::string& name) {
  const CodecPlan &from = plan.from, &to = plan.to;
  int largest = 0, row_threads = 1;
  const std::vector<std::string> copies = byte_copies_of(plan, largest);
  while (row_threads < 32 && row_threads * plan.alignment < largest) row_threads *= 2;
  write_format(w, from.format, from.head_dim, "FromFormat", from.is_planar, tokens_paging(from.page_tokens));
  write_format(w, to.format, to.head_dim, "ToFormat", to.is_planar, tokens_paging(to.page_tokens));
  w.line("struct Plan {{\n  using From = FromFormat;\n  using To = ToFormat;");
  w.line("  static constexpr int kThreads = {}, kRowThreads = {}, kAlignment = {};", kCopyThreads, row_threads,
         plan.alignment);
  w.line("  using Ranges = CopiedRanges<{}>;\n}};\n", joined(copies, [](const std::string& copy) { return copy; }));
  Source source = finish(w, name, from.arch, {"copy", "CopyArgs", kCopyThreads, 0, sizeof(kv::CopyArgs)});
  source.row_threads = row_threads;
  return source;
}

Source emit_requantize(const CopyPlan& plan, Writer& w, const std::string& name) {
  const CodecPlan &from = plan.from, &to = plan.to;
  const int warp_bytes = writer_bytes(to.format, to.head_dim);
  write_format(w, from.format, from.head_dim, "FromFormat", from.is_planar, tokens_paging(from.page_tokens));
  write_domain(w, from.format, true, "From");
  w.line("struct FromReader {{\n{}\n  using F = FromFormat;\n}};\n",
         domain_members(from.format, from.head_dim, "From"));
  write_format(w, to.format, to.head_dim, "ToFormat", to.is_planar, tokens_paging(to.page_tokens));
  write_domain(w, to.format, false, "To");
  write_encoder(w, to.format, "ToFormat", "RowEncoder", to.is_planar, "To");
  w.line("struct ToWriter {{\n{}", domain_members(to.format, to.head_dim, "To"));
  write_writer_members(w, to.format, "ToFormat", "RowEncoder", to.is_planar);
  w.line("}};\n");
  w.line("struct Plan {{\n  using From = FromReader;\n  using To = ToWriter;");
  w.line("  static constexpr int kWarps = {}, kWarpBytes = {};", kWarps, warp_bytes);
  w.line("  static constexpr bool kStaysRotated = {};\n}};\n", flag(plan.kind == CopyKind::rotated));
  return finish(w, name, from.arch, {"requantize", "CopyArgs", kWarps * 32, kWarps * warp_bytes, sizeof(kv::CopyArgs)});
}

Source emit_requantize_blocks(const CopyPlan& plan, Writer& w, const std::string& name) {
  constexpr int kThreads = kWarps * 32;
  const CodecPlan &from = plan.from, &to = plan.to;
  write_format(w, from.format, from.head_dim, "FromFormat", true, tokens_paging(from.page_tokens));
  write_format(w, to.format, to.head_dim, "ToFormat", true, tokens_paging(to.page_tokens));
  write_domain(w, to.format, false);
  write_encoder(w, to.format, "ToFormat", "RowEncoder", true);
  w.line("struct LaneEncoder : RowEncoder {{\n  using Lanes = InLane;\n}};\n");
  w.line("struct Plan {{\n  static constexpr int kHeadDim = {}, kThreads = {}, kValues = {};", from.head_dim, kThreads,
         plan.lane_values);
  w.line("  using From = FromFormat;\n  using Encoder = LaneEncoder;\n}};\n");
  Source source = finish(w, name, from.arch, {"requantize_bulk_blocks", "CopyArgs", kThreads, 0, sizeof(kv::CopyArgs)});
  source.row_threads = from.head_dim / plan.lane_values;
  return source;
}

struct RopeKernel {
  const char *family, *what, *args;
  int args_bytes;
  Paging paging;
};
Source emit_rope(const CodecPlan& plan, const RopeKernel& kernel, const Registry& registry) {
  const Format& f = plan.format;
  const std::string name =
      fmt::format("{}.{}.d{}.{}.{}", kernel.family, f.name, plan.head_dim, plan.layout(), plan.arch);
  Writer w = begin(registry, name, kernel.what);
  w.fragment(fmt::format("kernels/operations/{}.cuh", kernel.family));
  if (plan.page_tokens > 0) w.fragment("formats/stored_pages.cuh");
  w.check_first(plan.checks);
  format_fragments(w, f, true);
  domain_fragments(w, f);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  write_format(w, f, plan.head_dim, "StoredFormat", plan.is_planar, kernel.paging);
  write_domain(w, f, false);
  write_encoder(w, f, "StoredFormat", "RowEncoder", plan.is_planar);
  const int values = (f.stored_dim(plan.head_dim) + 31) / 32 * 32;
  const int warp_bytes = std::max(writer_bytes(f, plan.head_dim), values * int(sizeof(float)));
  const int shared_bytes = kWarps * warp_bytes + kv::kMostRopePairs * 8;
  w.line("struct Plan {{\n{}", domain_members(f, plan.head_dim));
  w.line("  static constexpr int kWarps = {}, kWarpBytes = {}, kStepsAt = {};\n  using F = StoredFormat;", kWarps,
         warp_bytes, kWarps * warp_bytes);
  write_writer_members(w, f, "StoredFormat", "RowEncoder", plan.is_planar);
  w.line("}};\n");
  return finish(w, name, plan.arch, {kernel.family, kernel.args, kWarps * 32, shared_bytes, kernel.args_bytes});
}

}  // namespace

bool have_same_bytes(const CodecPlan& from, const CodecPlan& to, const Registry& registry) {
  return decoder_of(from, registry) == decoder_of(to, registry);
}

Source emit_copy(const CopyPlan& plan, const Registry& registry) {
  const CodecPlan &from = plan.from, &to = plan.to;
  const bool is_bytes = plan.kind == CopyKind::bytes, is_by_lanes = plan.lane_values > 0;
  const char* const family = is_bytes ? "copy" : is_by_lanes ? "requantize_bulk_blocks" : "requantize";
  const std::string name =
      fmt::format("{}.{}.{}-{}.{}.d{}.{}{}.{}", family, from.format.name, from.layout(), to.format.name, to.layout(),
                  from.head_dim, to_string(plan.kind), is_bytes ? std::to_string(plan.alignment) : "", from.arch);
  Writer w = begin(registry, name, is_bytes ? "stored rows to another cache" : "stored rows to another format");
  w.fragment(fmt::format("kernels/operations/{}.cuh", family));
  if (from.page_tokens > 0 || to.page_tokens > 0) w.fragment("formats/stored_pages.cuh");
  w.check_first(from.checks || to.checks);
  format_fragments(w, from.format, false), format_fragments(w, to.format, !is_bytes);
  if (!is_bytes) domain_fragments(w, from.format), domain_fragments(w, to.format);
  w.line("// ======== the plan ========\nnamespace kv {{\n");
  return is_bytes      ? emit_bytes(plan, w, name)
         : is_by_lanes ? emit_requantize_blocks(plan, w, name)
                       : emit_requantize(plan, w, name);
}

Source emit_shift(const CodecPlan& plan, const Registry& registry) {
  return emit_rope(plan,
                   {"shift", "rows of the cache to other positions", "ShiftArgs", sizeof(kv::ShiftArgs),
                    tokens_paging(plan.page_tokens)},
                   registry);
}

Source emit_quantize_rope(const CodecPlan& plan, const Registry& registry) {
  return emit_rope(plan,
                   {"quantize_rope", "rows at their positions into the cache", "RopedCodecArgs",
                    sizeof(kv::RopedCodecArgs), codec_paging(plan.page_tokens)},
                   registry);
}

}  // namespace kvjit
