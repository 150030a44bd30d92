// Arguments of kernels over one side of a cache: the struct of templates/args, and the format by slots or with lengths.
// SPDX-License-Identifier: MIT
#include "args/context_chunks.cuh"
#include "args/operations.cuh"
#include "generator/kernels/codec/emit.hpp"

namespace kvjit::emit {

const char* codec_args(const CodecPlan& plan) {
  if (plan.has_lengths) return "BoundedCodecArgs";
  return !plan.slots.empty() ? "IndexedCodecArgs" : plan.page_tokens > 0 ? "PagedCodecArgs" : "CodecArgs";
}

int codec_args_bytes(const CodecPlan& plan) {
  if (plan.has_lengths) return sizeof(kv::BoundedCodecArgs);
  return !plan.slots.empty()    ? sizeof(kv::IndexedCodecArgs)
         : plan.page_tokens > 0 ? sizeof(kv::PagedCodecArgs)
                                : sizeof(kv::CodecArgs);
}

void codec_fragments(Writer& w, const CodecPlan& plan) {
  if (plan.page_tokens > 0) w.fragment("formats/stored_pages.cuh");
  if (!plan.slots.empty()) w.fragment("formats/stored_slots.cuh");
  if (plan.has_lengths) w.fragment("formats/stored_lengths.cuh");
  if (plan.fits_rows) w.fragment("kernels/codec/row_powers.cuh");
  if (plan.has_lengths && !plan.is_quantize) w.overlap = Overlap::by_args;  // the first pass of prefill in two
}

void write_row_places(Writer& w, const CodecPlan& plan, const std::string& type, const std::string& rows) {
  if (plan.slots.empty() && !plan.has_lengths) return;
  const kv::CodecArgs args{};
  const auto side_at = int(reinterpret_cast<const char*>(&args.side) - reinterpret_cast<const char*>(&args));
  const Format& f = plan.format;
  w.line("// Tokens {} the scratch row.", !plan.has_lengths  ? "by slots; negative slots have"
                                          : plan.is_quantize ? "at the ends of sequences; those before token 0 have"
                                          : plan.reads_seen  ? "of sequences; those that no query sees have"
                                                             : "of sequences; those behind the end of one have");
  w.line("alignas(16) KV_SCRATCH u8 kScratchRow[{}];", f.row_bytes(f.stored_dim(plan.head_dim)) + 16);
  w.line("struct {} : {} {{\n  using Rows = {};", type, rows, rows);
  if (!plan.slots.empty()) w.line("  using Slot = {};", plan.slots);
  w.line("  static constexpr int kSideAt = {};", side_at);
  if (plan.has_lengths) w.line("  static constexpr bool {} = true;", plan.is_quantize ? "kAppends" : "kEndsAtLengths");
  if (plan.reads_seen) w.line("  static constexpr bool kReadsSeen = true;");
  w.line("  KV_DEVICE static u8* scratch_row() {{ return kScratchRow; }}\n}};\n");
}

}  // namespace kvjit::emit
