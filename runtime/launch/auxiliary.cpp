// The launches of auxiliary kernels: `merge_contexts` merges outputs over parts of a context; `mask_ranges` finds the
// tokens that a mask shows; `check` reads lengths, page tables and slots on the device before a checked call and
// records a value out of range.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/sizes.hpp"
#include "runtime/launch/call_checks.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit {
namespace {

// What a merge writes must be apart from what it reads, and from each other: rows are merged in any order.
Result<void> check_merge_memory(const ProgramSource& source, const kv::MergeContextsArgs& args) {
  const auto element_bytes = static_cast<int>(wide_element_bytes(source.out_type));
  const auto rows_of = [&](const char* name, const kv::Rows& rows, bool is_written) {
    return RowsCheck{name,          rows,      args.sequences, args.queries, args.heads, source.head_dim_v,
                     element_bytes, is_written};
  };
  const auto lse_of = [&](const char* name, const float* lse) {
    return Footprint(name, lse, Wide{sizeof(float)} * args.sequences * args.queries * args.heads, 0, {});
  };
  const RowsCheck out = rows_of("out", args.out, true);
  KV_CHECK(check_rows(out));
  std::vector<Footprint> written{footprint_of(out)};
  if (args.lse) written.push_back(lse_of("lse", args.lse));
  if (args.lse) KV_CHECK(check_apart(written[1], written[0]));
  for (int i = 0; i < args.count; ++i) {
    const std::string name = fmt::format("contexts[{}]", i), out_name = name + ".out", lse_name = name + ".lse";
    const RowsCheck rows = rows_of(out_name.c_str(), args.contexts[i].out, false);
    KV_CHECK(check_rows(rows));
    for (const Footprint& one : written) {
      KV_CHECK(check_apart(one, footprint_of(rows)));
      KV_CHECK(check_apart(one, lse_of(lse_name.c_str(), args.contexts[i].lse)));
    }
  }
  return {};
}

}  // namespace

Result<void> Program::merge(const kv::MergeContextsArgs& args, Stream stream) const {
  if (!source_.features.lse)
    return fail(Code::unsupported, fmt::format("program {} has no logarithms of sums to merge by", source_.id), {},
                {"attention.features = [\"lse\"]"});
  if (args.count < 1 || args.count > kv::kMostMergeContexts)
    return refuse(fmt::format("{} contexts; 1 to {} are possible (what is merged can be merged again)", args.count,
                              kv::kMostMergeContexts));
  KV_CHECK(check_counts(args.sequences, args.queries, args.heads));
  if (args.queries != source_.query_length && !source_.varlen)
    return refuse(fmt::format("{} queries; the program has {}", args.queries, source_.query_length));
  const auto alignment = static_cast<unsigned>(wide_element_bytes(source_.out_type));
  for (int i = 0; i < args.count; ++i) {
    KV_CHECK(check_pointer(fmt::format("contexts[{}].out", i).c_str(), args.contexts[i].out.data, alignment));
    KV_CHECK(check_pointer(fmt::format("contexts[{}].lse", i).c_str(), args.contexts[i].lse, 4));
  }
  KV_CHECK(check_pointer("out", args.out.data, alignment));
  if (args.lse) KV_CHECK(check_pointer("lse", args.lse, 4));
  KV_CHECK(check_merge_memory(source_, args));
  KV_TRY(loaded, kernel(Role::merge_contexts));
  const Source& source = source_.kernels.at(Role::merge_contexts);
  KV_TRY(grid, grid_of_rows(source, product(1, args.sequences, args.queries, args.heads)));
  return launch(*context_, source, *loaded, grid, args, stream);
}

Result<void> Program::mask_ranges(const AttentionCall& call, int* token_ranges, Stream stream) const {
  if (source_.kernels.count(Role::mask_ranges) == 0)
    return fail(Code::unsupported, fmt::format("program {} has no mask whose ranges could be found", source_.id), {},
                {"attention.features = [\"mask\", \"token_ranges\"]"});
  if (call.query_starts) return refuse("query_starts are given: ranges are found for batches that are not ragged");
  KV_CHECK(check_counts(call.sequences, call.tokens, call.kv_heads));
  const int queries = call.queries > 0 ? call.queries : source_.query_length;
  if (queries > source_.query_length || (queries != source_.query_length && !source_.varlen))
    return refuse(fmt::format("{} queries; the program has {}", queries, source_.query_length));
  KV_CHECK(check_pointer("mask", call.features.mask, 2));
  KV_CHECK(check_pointer("token_ranges", token_ranges, 4));
  if (call.lengths) KV_CHECK(check_pointer("lengths", call.lengths, 4));
  const int heads = call.features.mask_head_stride == 0 ? 1 : call.kv_heads * source_.q_heads_per_kv;
  const kv::MaskRangesArgs args{call.features.mask,
                                call.features.mask_sequence_stride,
                                call.features.mask_head_stride,
                                call.features.mask_query_stride,
                                call.lengths,
                                call.tokens,
                                queries,
                                heads,
                                token_ranges};
  KV_TRY(loaded, kernel(Role::mask_ranges));
  const Source& source = source_.kernels.at(Role::mask_ranges);
  return launch(*context_, source, *loaded, Grid{static_cast<unsigned>(call.sequences), 1, 1}, args, stream);
}

Result<void> Program::launch_check(kv::CheckArgs args, const CheckBounds& check, Stream stream) const {
  KV_CHECK(check_pointer("the check record", check.record, alignof(kv::CheckRecord)));
  const bool has_pages = args.tables[0].table.pages || args.tables[1].table.pages;
  for (const kv::CheckedTable& table : args.tables)
    if (table.table.pages && table.pool_pages <= 0)
      return refuse(fmt::format("{} pages in the pool; a checked program needs their number", table.pool_pages));
  if (args.slots && args.slot_count <= 0)
    return refuse(
        fmt::format("{} slots; a checked program needs the number of those that there are: slot_count, or for "
                    "pages pages.pool_pages",
                    args.slot_count));
  args.record = check.record;
  args.page_tokens = has_pages ? source_.page_tokens : 1;
  KV_TRY(loaded, kernel(Role::check));
  return launch(*context_, source_.kernels.at(Role::check), *loaded, Grid{static_cast<unsigned>(args.sequences), 1, 1},
                args, stream);
}

Result<void> Program::check_cache(const CacheCall& at, int sequences, int tokens, kv::CheckRecord* record,
                                  Stream stream) const {
  if (!source_.checks) return {};
  kv::CheckArgs checked{};
  checked.tokens = tokens, checked.sequences = sequences, checked.first_token = at.tokens.first_token;
  checked.seen.left = checked.seen.right = -1;  // the operation uses all of its tokens
  if (at.tokens.slots) {
    checked.slots = at.tokens.slots, checked.slot_type = at.tokens.slot_type;
    checked.slots_given = static_cast<long long>(sequences) * tokens;
    checked.slot_count =
        source_.page_tokens > 0 && at.pool_pages > 0 ? at.pool_pages * source_.page_tokens : at.slot_count;
  } else if (source_.page_tokens > 0) {
    checked.tables[0] = {at.tokens.table, at.pool_pages, kv::CheckedArray::pages};
  }
  return launch_check(checked, {record, 0, 0, 0}, stream);
}

}  // namespace kvjit
