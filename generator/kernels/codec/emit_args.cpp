// Arguments of kernels over one side of a cache: the struct of templates/args, and the format by slots.
// SPDX-License-Identifier: MIT
#include "args/operations.cuh"
#include "generator/kernels/codec/emit.hpp"

namespace kvjit::emit {

const char* codec_args(const CodecPlan& plan) {
  return !plan.slots.empty() ? "IndexedCodecArgs" : plan.page_tokens > 0 ? "PagedCodecArgs" : "CodecArgs";
}

int codec_args_bytes(const CodecPlan& plan) {
  return !plan.slots.empty()    ? sizeof(kv::IndexedCodecArgs)
         : plan.page_tokens > 0 ? sizeof(kv::PagedCodecArgs)
                                : sizeof(kv::CodecArgs);
}

void codec_fragments(Writer& w, const CodecPlan& plan) {
  if (plan.page_tokens > 0) w.fragment("formats/stored_pages.cuh");
  if (!plan.slots.empty()) w.fragment("formats/stored_slots.cuh");
}

void write_slots(Writer& w, const CodecPlan& plan, const std::string& type, const std::string& rows) {
  if (plan.slots.empty()) return;
  const kv::CodecArgs args{};
  const Format& f = plan.format;
  w.line("// Tokens by slots; those that are none have a row of nobody's.");
  w.line("alignas(16) KV_SCRATCH u8 kScratchRow[{}];", f.row_bytes(f.stored_dim(plan.head_dim)) + 16);
  w.line("struct {} : {} {{\n  using Rows = {};\n  using Slot = {};", type, rows, rows, plan.slots);
  w.line("  static constexpr int kSideAt = {};",
         int(reinterpret_cast<const char*>(&args.side) - reinterpret_cast<const char*>(&args)));
  w.line("  KV_DEVICE static u8* scratch_row() {{ return kScratchRow; }}\n}};\n");
}

}  // namespace kvjit::emit
