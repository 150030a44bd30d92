// Copies from one cache to another. Between layouts of one format the bytes must be equal; between formats they must be
// those of the reference codec's decode and encode. Source and target use ranges and slots; no other byte may be
// written. The CPU tests and the GPU tests share this file.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/kernels/operations/operations.hpp"
#include "tests/differential/arrays.hpp"

namespace kvjit::test::copies {

constexpr int kTokens = 37, kCopied = 21, kFromFirst = 5, kToFirst = 11;

struct End {
  const char* format;
  Layout layout;
  int page_tokens = 0;
  Layout page_layout = Layout::planar;
  float tensor_scale = 1;
};
struct Pair {
  End from, to;
  CopyKind kind;
  int head_dim = 128;
};

inline std::string name_of(const Pair& pair) {
  const auto end = [](const End& e) {
    return fmt::format("{} {}{}", e.format, to_string(e.layout), e.page_tokens ? std::to_string(e.page_tokens) : "");
  };
  return fmt::format("{} -> {}, head_dim {}", end(pair.from), end(pair.to), pair.head_dim);
}

// K of a cache with two sequences.
struct Store {
  Problem problem;
  std::shared_ptr<Program> program;
  KernelHarness harness;
  Buffer table;
  PageDeal pages;

  static Store make(const std::shared_ptr<Context>& context, const Registry& registry, const End& end, int head_dim) {
    const Case test{end.format, end.format, head_dim, 1, 1, end.layout, false, 0, end.page_tokens, end.page_layout};
    const Problem problem =
        must(resolve(must(parse_specs(test.toml(), test.name())).at(0), registry, context->backend()->info().arch));
    const auto program = must(Program::create(context, must(make_reference_program(problem, registry))));
    KernelHarness harness = must(KernelHarness::make(context, program, problem, {2, kKvHeads, kTokens}));
    harness.set_tensor_scale(0, end.tensor_scale);
    must(harness.vary_head_scales());
    return {problem, program, std::move(harness), {}, deal_pages(end.page_tokens, 2, kTokens, 1)};
  }
  CacheCall tokens(int first, float scale) {
    CacheCall call;
    call.tokens.side = harness.cache(0);
    call.tokens.table = must(harness.upload_table(0, {}, table));
    call.tokens.first_token = first;
    call.tokens.tensor_scale = scale;
    return call;
  }
  long long slot(int sequence, long long token) const {
    if (pages.page_tokens == 0 || token < 0) return token;
    return (long long)(pages.page_of(sequence, token)) * pages.page_tokens + token % pages.page_tokens;
  }
  std::size_t row_bytes() const { return std::size_t(problem.k.head_bytes(problem.head_dim)); }
};

// Maps each token of the call to a token of the source and of the target; negative: the token is skipped.
struct Moves {
  std::vector<int> from, to;  // [sequence][token]
};
inline Moves ranges() {
  Moves moves;
  for (int i = 0; i < 2 * kCopied; ++i)
    moves.from.push_back(kFromFirst + i % kCopied), moves.to.push_back(kToFirst + i % kCopied);
  return moves;
}
inline Moves scattered() {
  Moves moves;
  for (int i = 0; i < 2 * kCopied; ++i) {
    moves.from.push_back(i % 7 == 3 ? -2 : (i * 5) % kTokens);
    moves.to.push_back(i % 5 == 1 ? -1 : (i % kCopied * 8 + 2) % kTokens);
  }
  return moves;
}

inline std::vector<std::uint8_t> converted(const Pair& pair, const Store& from, const Store& to,
                                           std::span<const std::uint8_t> row, std::size_t number) {
  if (pair.kind == CopyKind::bytes) return {row.begin(), row.end()};
  const auto values = decode_row(from.problem.k, row, pair.head_dim, false, from.harness.row_scales(0).of_row(number));
  return encode_row(to.problem.k, std::vector<float>(values.begin(), values.end()),
                    to.harness.row_scales(0).of_row(number));
}

// Counts bytes that are wrong in rows that the call writes, and bytes that were written elsewhere. For a format with a
// residual a wrong row counts once, because one code changes many bits.
struct Differences {
  long long written = 0, elsewhere = 0, all = 0;
};
inline Differences differences(const std::shared_ptr<Context>& context, const Registry& registry, const Pair& pair,
                               bool by_slots, bool by_tiles = false) {
  Store from = Store::make(context, registry, pair.from, pair.head_dim),
        to = Store::make(context, registry, pair.to, pair.head_dim);
  const auto x = heavy_tailed(7, std::size_t(2 * kKvHeads * kTokens * pair.head_dim), pair.head_dim);
  const auto rows = encode_rows(from.problem.k, x, pair.head_dim, from.harness.row_scales(0));
  must(from.harness.set_rows(0, rows));
  const Moves moves = by_slots ? scattered() : ranges();
  std::vector<int> from_slots;
  std::vector<long long> to_slots;
  for (int i = 0; i < 2 * kCopied; ++i) {
    from_slots.push_back(int(from.slot(i / kCopied, moves.from[std::size_t(i)])));
    to_slots.push_back(to.slot(i / kCopied, moves.to[std::size_t(i)]));
  }
  Arrays arrays(context);
  CopyCall call;
  call.from = from.tokens(kFromFirst, pair.from.tensor_scale), call.to = to.tokens(kToFirst, pair.to.tensor_scale);
  call.sequences = 2, call.tokens = kCopied, call.heads = kKvHeads;
  if (by_slots) {
    call.from.tokens.slots = arrays.upload(from_slots), call.from.tokens.slot_type = kv::SlotType::i32;
    call.to.tokens.slots = arrays.upload(to_slots), call.to.tokens.slot_type = kv::SlotType::i64;
  }
  const CopyPlan plan = must(plan_copy(side_plan(from.problem, 0), side_plan(to.problem, 0),
                                       pair.kind == CopyKind::bytes || pair.from.tensor_scale == pair.to.tensor_scale,
                                       Program::alignment_of(call, *from.program, *to.program), registry));
  CHECK(std::string(to_string(plan.kind)) == to_string(pair.kind));
  must(from.program->copy(call, *to.program,
                          by_tiles ? emit_bulk_copy(plan, registry).value() : emit_copy(plan, registry), nullptr));
  must(context->backend()->synchronize(nullptr));

  const auto got = must(to.harness.rows(0));
  const std::size_t row = to.row_bytes(), from_row = from.row_bytes();
  std::vector<bool> is_written(2 * kKvHeads * kTokens);
  Differences found;
  for (int s = 0; s < 2; ++s)
    for (int head = 0; head < kKvHeads; ++head)
      for (int t = 0; t < kCopied; ++t) {
        const int source = moves.from[std::size_t(s * kCopied + t)], target = moves.to[std::size_t(s * kCopied + t)];
        if (source < 0 || target < 0) continue;
        const std::size_t line = std::size_t((s * kKvHeads + head) * kTokens);
        is_written[line + std::size_t(target)] = true;
        const auto want =
            converted(pair, from, to, std::span(rows).subspan((line + std::size_t(source)) * from_row, from_row),
                      line + std::size_t(source));
        found.all += (long long)(row);
        long long in_row = 0;
        for (std::size_t i = 0; i < row; ++i) in_row += got[(line + std::size_t(target)) * row + i] != want[i];
        found.written += to.problem.k.has_residual() ? in_row > 0 : in_row;
      }
  for (std::size_t i = 0; i < is_written.size(); ++i)
    for (std::size_t b = 0; b < row && !is_written[i]; ++b) {
      const bool is_padding = pair.to.layout != Layout::rows && got[i * row + b] == 0;  // planes store no padding
      found.elsewhere += got[i * row + b] != 0xff && !is_padding;
    }
  return found;
}

// Copies of every layout to every other, with an outlier mask and padding in the block, all kinds of rotations,
// residuals on either side, and tensor scales.
inline const Pair kPairs[] = {
    {{"q8_0", Layout::rows}, {"q8_0", Layout::planar}, CopyKind::bytes},
    {{"tbq4_0", Layout::planar}, {"tbq4_0", Layout::paged, 16}, CopyKind::bytes},
    {{"tbq4_0", Layout::paged, 8, Layout::rows}, {"tbq4_0", Layout::rows}, CopyKind::bytes},
    {{"turbo4_legacy68", Layout::planar}, {"turbo4_legacy68", Layout::rows}, CopyKind::bytes},
    {{"turbo4_qjl68", Layout::rows}, {"turbo4_qjl68", Layout::planar}, CopyKind::bytes},
    {{"fp8_e4m3", Layout::planar, 0, Layout::planar, 0.5f},
     {"fp8_e4m3", Layout::rows, 0, Layout::planar, 0.125f},
     CopyKind::rotated},
    {{"q8_0", Layout::rows}, {"q4_0", Layout::planar}, CopyKind::rotated},
    {{"fp8_e4m3", Layout::planar, 0, Layout::planar, 0.5f}, {"q4_1", Layout::paged, 16}, CopyKind::rotated},
    {{"iq4_nl", Layout::planar}, {"bf16", Layout::planar}, CopyKind::rotated},
    {{"tbq4_0", Layout::paged, 16}, {"tbq3_0", Layout::planar}, CopyKind::rotated},
    {{"turbo4_qjl68", Layout::planar}, {"tbq4_0", Layout::rows}, CopyKind::rotated},
    {{"f16", Layout::planar}, {"turbo4_qjl68", Layout::paged, 32}, CopyKind::dequantized},
    {{"tbqp4_dense256_qsfirst_raw", Layout::planar},
     {"tbqp3_dense256_qsfirst_raw", Layout::rows},
     CopyKind::dequantized,
     256},
    {{"atlas_turbo4", Layout::planar}, {"tbq3_0", Layout::planar}, CopyKind::dequantized, 256},
    {{"fp8_e4m3", Layout::planar, 0, Layout::planar, 0.5f},
     {"fp8_e4m3", Layout::rows, 0, Layout::planar, 0.5f},
     CopyKind::bytes},
    {{"vllm_fp8_per_head", Layout::planar}, {"vllm_fp8_per_head", Layout::rows}, CopyKind::bytes},
    {{"vllm_fp8_per_head", Layout::paged, 16, Layout::rows},
     {"vllm_fp8_per_head", Layout::planar, 0, Layout::planar, 0.125f},
     CopyKind::rotated},
    {{"q8_0", Layout::rows}, {"vllm_fp8_per_head", Layout::paged, 16}, CopyKind::rotated},
};

// Copies that have a bulk kernel.
inline const Pair kTilePairs[] = {
    {{"tbq4_0", Layout::paged, 16}, {"kv3", Layout::planar}, CopyKind::rotated},
    {{"kv2", Layout::rows}, {"kv4", Layout::paged, 8, Layout::rows}, CopyKind::rotated, 256},
};

inline void check_copies(const std::shared_ptr<Context>& context, std::span<const Pair> pairs = kPairs,
                         bool by_tiles = false) {
  for (const Pair& pair : pairs)
    for (const bool by_slots : {false, true}) {
      const Differences found = differences(context, registry(), pair, by_slots, by_tiles);
      const long long allowed = pair.kind == CopyKind::bytes ? 0 : found.all / 1000;
      CHECK_MESSAGE(found.written <= allowed, name_of(pair), by_slots ? " by slots: " : ": ", found.written, " of ",
                    found.all, " bytes differ");
      CHECK_MESSAGE(found.elsewhere == 0, name_of(pair), ": ", found.elsewhere, " bytes elsewhere were written");
    }
}

}  // namespace kvjit::test::copies
