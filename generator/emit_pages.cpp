// emit_pages: what kernels over pages are told: the tokens of a page, and where in their arguments its table is.
// SPDX-License-Identifier: MIT
#include "core/pages.cuh"
#include "generator/emit_text.hpp"

namespace kvjit::emit {
namespace {

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

int codec_args_bytes(bool is_paged) { return is_paged ? sizeof(kv::PagedCodecArgs) : sizeof(kv::CodecArgs); }

void write_paging(Writer& w, const Paging& paging) {
  if (paging.tokens > 0)
    w.line("  static constexpr int kPageTokens = {}, kTableAt = {};", paging.tokens, paging.table_at);
}

}  // namespace kvjit::emit
