// Writes what kernels over pages and over slots need: the tokens of a page, and where in the kernel's arguments the
// page table of a side is. It computes these places from the structs of templates/args, which it includes.
// SPDX-License-Identifier: MIT
#include "args/operations.cuh"
#include "generator/emit/writer.hpp"

namespace kvjit::emit {
namespace {

// Bytes from a side to its page table.
int distance(const kv::CacheSide& side, const kv::PageTable& table) {
  return int(reinterpret_cast<const char*>(&table) - reinterpret_cast<const char*>(&side));
}

}  // namespace

Paging attention_paging(int page_tokens, bool is_key, bool appends) {
  if (page_tokens == 0) return {};
  const auto between = [&](const auto& args) {
    return is_key ? distance(args.k, args.k_table) : distance(args.v, args.v_table);
  };
  return {page_tokens, appends ? between(kv::PagedAppendArgs{}) : between(kv::PagedAttentionArgs{})};
}

Paging codec_paging(int page_tokens) {
  if (page_tokens == 0) return {};
  const kv::PagedCodecArgs args{};
  return {page_tokens, distance(args.side, args.table)};
}

Paging tokens_paging(int page_tokens) {
  if (page_tokens == 0) return {};
  const kv::CacheTokens tokens{};
  return {page_tokens, distance(tokens.side, tokens.table)};
}

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
  w.line("alignas(16) KV_SCRATCH u8 kNobody[{}];", f.row_bytes(f.stored_dim(plan.head_dim)) + 16);
  w.line("struct {} : {} {{\n  using Rows = {};\n  using Slot = {};", type, rows, rows, plan.slots);
  w.line("  static constexpr int kSideAt = {};",
         int(reinterpret_cast<const char*>(&args.side) - reinterpret_cast<const char*>(&args)));
  w.line("  KV_DEVICE static u8* nobody() {{ return kNobody; }}\n}};\n");
}

void write_paging(Writer& w, const Paging& paging) {
  if (paging.tokens > 0)
    w.line("  static constexpr int kPageTokens = {}, kTableAt = {};", paging.tokens, paging.table_at);
}

}  // namespace kvjit::emit
