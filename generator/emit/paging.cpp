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

void write_paging(Writer& w, const Paging& paging) {
  if (paging.tokens > 0)
    w.line("  static constexpr int kPageTokens = {}, kTableAt = {};", paging.tokens, paging.table_at);
}

}  // namespace kvjit::emit
