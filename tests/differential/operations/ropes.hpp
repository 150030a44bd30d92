// Rotary positions: rows are rotated in place (shift) and on their way into the cache (quantize_rope), and must equal
// the formula in double precision followed by the reference codec. The CPU tests and the GPU tests share this file.
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/kernels/operations/operations.hpp"
#include "runtime/launch/rope.hpp"
#include "tests/differential/arrays.hpp"
#include "tools/verify/harness_data.hpp"

namespace kvjit::test::ropes {

constexpr int kTokens = 40;

struct RopeCase {
  const char* format;
  Layout layout;
  int page_tokens, head_dim;
  kv::RopePairs pairs;
  int first, dims;
  double base, scale;
  bool has_factors;
};
inline const RopeCase kCases[] = {
    {"q8_0", Layout::rows, 0, 128, kv::RopePairs::halves, 0, 128, 500000, 1, true},
    {"tbq4_0", Layout::planar, 0, 128, kv::RopePairs::neighbours, 0, 96, 10000, 0.25, false},
    {"turbo4_qjl68", Layout::paged, 16, 128, kv::RopePairs::halves, 0, 64, 10000, 1, false},
    {"f16", Layout::planar, 0, 576, kv::RopePairs::neighbours, 512, 64, 10000, 1, false},
};

// Cases that have a bulk kernel.
inline const RopeCase kTileCases[] = {
    {"tbq4_0", Layout::planar, 0, 128, kv::RopePairs::neighbours, 2, 96, 10000, 0.25, true},
    {"kv3", Layout::paged, 16, 128, kv::RopePairs::halves, 64, 64, 10000, 1, false},
    {"turbo3_0", Layout::rows, 0, 256, kv::RopePairs::halves, 128, 128, 500000, 1, true},
};

inline float factor_of(const RopeCase& test, int pair) {
  return test.has_factors ? 1.f + 0.25f * float(pair % 13) : 1.f;
}

// Returns a row rotated by the formula of rotary positions, in double precision.
inline std::vector<double> rotated(const RopeCase& test, std::vector<double> x, double position) {
  for (int i = 0; i < test.dims / 2; ++i) {
    const double angle = position * test.scale * std::pow(test.base, -2.0 * i / test.dims) / factor_of(test, i);
    const bool by_halves = test.pairs == kv::RopePairs::halves;
    double& a = x[std::size_t(test.first + (by_halves ? i : 2 * i))];
    double& b = x[std::size_t(test.first + (by_halves ? i + test.dims / 2 : 2 * i + 1))];
    const double before = a;
    a = before * std::cos(angle) - b * std::sin(angle);
    b = before * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

inline std::vector<float> as_floats(const std::vector<double>& x) { return {x.begin(), x.end()}; }
inline std::vector<double> as_doubles(std::span<const float> x) { return {x.begin(), x.end()}; }

struct Store {
  RopeCase test;
  Problem problem;
  std::shared_ptr<Program> program;
  KernelHarness harness;
  Buffer table;
  std::vector<float> factors;
  kv::RopeArgs rope;

  static Store make(const std::shared_ptr<Context>& context, const Registry& registry, const RopeCase& test) {
    const Case spec{test.format, test.format,      test.head_dim, 1, 1, test.layout, false,
                    0,           test.page_tokens, Layout::planar};
    const Problem problem =
        must(resolve(must(parse_specs(spec.toml(), spec.name())).at(0), registry, context->backend()->info().arch));
    const auto program = must(Program::create(context, must(make_reference_program(problem, registry))));
    Rope rope;
    rope.pairs = test.pairs, rope.first = test.first, rope.dims = test.dims;
    rope.base = test.base, rope.scale = test.scale;
    Store store{test,
                problem,
                program,
                must(KernelHarness::make(context, program, problem, {2, kKvHeads, kTokens})),
                {},
                {},
                must(rope_args(rope))};
    for (int i = 0; i < test.dims / 2; ++i) store.factors.push_back(factor_of(test, i));
    return store;
  }
  const Format& format() const { return problem.k; }
  std::size_t row_bytes() const { return std::size_t(format().head_bytes(test.head_dim)); }
  kv::RopeArgs rope_at(Arrays& arrays, const std::vector<int>& positions) const {
    kv::RopeArgs args = rope;
    args.positions = arrays.upload(positions);
    if (test.has_factors) args.factors = arrays.upload(factors);
    return args;
  }
};

// Returns the index in [sequence][token] of row number `row` in [sequence][head][token].
inline std::size_t token_of(std::size_t row) { return row / kTokens / kKvHeads * kTokens + row % kTokens; }

inline std::vector<float> numbers(const RopeCase& test) {
  return heavy_tailed(11, std::size_t(2 * kKvHeads * kTokens * test.head_dim), test.head_dim);
}

struct Differences {
  long long bytes = 0, all = 0;
};
inline Differences compare(const Store& store, const std::vector<std::uint8_t>& got,
                           const std::vector<std::uint8_t>& want) {
  REQUIRE(got.size() == want.size());
  Differences found{0, (long long)(got.size())};
  const std::size_t row = store.row_bytes();
  for (std::size_t at = 0; at < got.size(); at += row) {
    long long differs = 0;
    for (std::size_t i = at; i < at + row; ++i) differs += got[i] != want[i];
    found.bytes += store.format().has_residual() ? differs > 0 : differs;
  }
  return found;
}

// Shifts a cache and returns the bytes that differ. by_tiles: by the bulk kernel.
inline Differences shift(const std::shared_ptr<Context>& context, const Registry& registry, const RopeCase& test,
                         bool by_tiles = false) {
  Store store = Store::make(context, registry, test);
  const auto x = numbers(test);
  const auto dim = std::size_t(test.head_dim);
  std::vector<int> by;
  for (int i = 0; i < 2 * kTokens; ++i) by.push_back(i % 4 == 1 ? 0 : i % 4 == 2 ? -i : i % 7 == 0 ? 131071 + i : 17);
  std::vector<std::uint8_t> before, want;
  for (std::size_t r = 0; r < x.size() / dim; ++r) {
    const auto row = encode_row(store.format(), std::span(x).subspan(r * dim, dim));
    before.insert(before.end(), row.begin(), row.end());
    const int d = by[token_of(r)];
    const auto after =
        d == 0 ? row
               : encode_row(store.format(),
                            as_floats(rotated(test, decode_row(store.format(), row, test.head_dim, false), d)));
    want.insert(want.end(), after.begin(), after.end());
  }
  must(store.harness.set_rows(0, before));
  ShiftCall call;
  call.at.tokens.side = store.harness.cache(0);
  call.at.tokens.table = must(store.harness.upload_table(0, {}, store.table));
  call.at.tokens.tensor_scale = 1;
  call.sequences = 2, call.tokens = kTokens, call.heads = kKvHeads;
  Arrays arrays(context);
  call.rope = store.rope_at(arrays, by);
  const CodecPlan side = side_plan(store.problem, 0);
  must(store.program->shift(call, by_tiles ? emit_shift_bulk(side, registry).value() : emit_shift(side, registry),
                            nullptr));
  must(context->backend()->synchronize(nullptr));
  const auto got = must(store.harness.rows(0));
  for (std::size_t r = 0; r < got.size() / store.row_bytes(); ++r)
    if (by[token_of(r)] == 0)
      for (std::size_t i = r * store.row_bytes(); i < (r + 1) * store.row_bytes(); ++i)
        if (got[i] != before[i]) return {1 << 20, 1};  // a row that is not shifted must not change
  return compare(store, got, want);
}

// Quantizes with rotary positions and returns the bytes that differ. by_tiles: by the bulk kernel. There, f32 rows of
// an unpaged cache go to slots in reverse order, and every ninth token is skipped.
inline Differences quantize(const std::shared_ptr<Context>& context, const Registry& registry, const RopeCase& test,
                            bool by_tiles = false, Element type = Element::f32) {
  Store store = Store::make(context, registry, test);
  const auto x = rounded_to(type, numbers(test));
  const auto dim = std::size_t(test.head_dim);
  std::vector<int> positions;
  for (int i = 0; i < 2 * kTokens; ++i) positions.push_back(i * 37 % 4096);
  std::vector<int> slots;
  if (by_tiles && type == Element::f32 && test.page_tokens == 0)
    for (int i = 0; i < 2 * kTokens; ++i) slots.push_back(i % 9 == 4 ? -1 : kTokens - 1 - i % kTokens);
  std::vector<std::uint8_t> want(x.size() / dim * store.row_bytes(), 0xa5);
  must(store.harness.set_rows(0, want));
  for (std::size_t r = 0; r < x.size() / dim; ++r) {
    const auto row =
        encode_row(store.format(),
                   as_floats(rotated(test, as_doubles(std::span(x).subspan(r * dim, dim)), positions[token_of(r)])));
    const int slot = slots.empty() ? int(r % kTokens) : slots[token_of(r)];
    if (slot >= 0) std::copy(row.begin(), row.end(), want.begin() + (r - r % kTokens + slot) * store.row_bytes());
  }
  Arrays arrays(context);
  kv::CodecArgs args{};
  const long long head = kTokens * test.head_dim;
  args.x = {arrays.upload(harness::packed(type, x)), kKvHeads * head, test.head_dim, head};
  args.x_type = harness::row_type(type);
  args.side = store.harness.cache(0);
  args.sequences = 2, args.tokens = kTokens, args.heads = kKvHeads, args.tensor_scale = 1;
  must(store.program->quantize_rope(0, args, store.rope_at(arrays, positions),
                                    by_tiles ? emit_quantize_rope_bulk(side_plan(store.problem, 0), registry).value()
                                             : emit_quantize_rope(side_plan(store.problem, 0), registry),
                                    nullptr, must(store.harness.upload_table(0, {}, store.table)), {},
                                    {arrays.upload(slots), kv::SlotType::i32}));
  must(context->backend()->synchronize(nullptr));
  return compare(store, must(store.harness.rows(0)), want);
}

inline void check_ropes(const std::shared_ptr<Context>& context) {
  for (const RopeCase& test : kCases) {
    const Differences shifted = shift(context, registry(), test), written = quantize(context, registry(), test);
    CHECK_MESSAGE(shifted.bytes <= shifted.all / 1000, test.format, " shifted: ", shifted.bytes, " of ", shifted.all,
                  " bytes differ");
    CHECK_MESSAGE(written.bytes <= written.all / 1000, test.format, " written: ", written.bytes, " of ", written.all,
                  " bytes differ");
  }
}

inline void check_tile_writes(const std::shared_ptr<Context>& context) {
  for (const RopeCase& test : kTileCases)
    for (const Element type : {Element::f16, Element::bf16, Element::f32}) {
      const Differences found = quantize(context, registry(), test, true, type);
      CHECK_MESSAGE(found.bytes <= found.all / 1000, test.format, " written, ", int(type), ": ", found.bytes, " of ",
                    found.all, " bytes differ");
    }
}

inline void check_tile_shifts(const std::shared_ptr<Context>& context) {
  for (const RopeCase& test : kTileCases) {
    const Differences found = shift(context, registry(), test, true);
    CHECK_MESSAGE(found.bytes <= found.all / 1000, test.format, " shifted: ", found.bytes, " of ", found.all,
                  " bytes differ");
  }
}

// Keys are written at positions 0, 1, ... and then shifted by 1000. The expected values are keys written at 1000, 1001,
// ... The error must be that of encoding twice, and attention over both must agree within the format's error.
inline void check_shifted_cache(const std::shared_ptr<Context>& context) {
  constexpr int kBy = 1000;
  for (const RopeCase& test : {kCases[0], kCases[1]}) {
    Store store = Store::make(context, registry(), test);
    const auto x = numbers(test);
    const auto dim = std::size_t(test.head_dim);
    std::vector<std::uint8_t> old;
    std::vector<double> exact, direct;
    for (std::size_t r = 0; r < x.size() / dim; ++r) {
      const auto one = as_doubles(std::span(x).subspan(r * dim, dim));
      const int position = int(r % kTokens);
      const auto row = encode_row(store.format(), as_floats(rotated(test, one, position)));
      old.insert(old.end(), row.begin(), row.end());
      const auto moved = rotated(test, one, position + kBy);
      exact.insert(exact.end(), moved.begin(), moved.end());
      const auto decoded =
          decode_row(store.format(), encode_row(store.format(), as_floats(moved)), test.head_dim, false);
      direct.insert(direct.end(), decoded.begin(), decoded.end());
    }
    must(store.harness.set_rows(0, old));
    ShiftCall call;
    call.at.tokens.side = store.harness.cache(0);
    call.at.tokens.tensor_scale = 1;
    call.sequences = 2, call.tokens = kTokens, call.heads = kKvHeads;
    Arrays arrays(context);
    call.rope = store.rope_at(arrays, {});
    call.rope.position = kBy;
    must(store.program->shift(call, emit_shift(side_plan(store.problem, 0), registry()), nullptr));
    const auto shifted = must(store.harness.dequantize(0));
    const double once = relative_error(as_floats(direct), exact), twice = relative_error(shifted, exact);
    CHECK_MESSAGE(twice < 1.6 * once, test.format, ": error ", twice, " after a shift, ", once, " without");
    CHECK(twice > once);
    Rng rng(2);
    const OracleCase attention{kKvHeads, kKvHeads, 1, kTokens, test.head_dim, false, 0};
    const auto q = rng.normals(kKvHeads * dim);
    const std::size_t half = exact.size() / 2;
    const auto answer = [&](const auto& keys) {
      return oracle_attention(attention, as_doubles(q), std::vector<double>(keys.begin(), keys.begin() + long(half)),
                              std::vector<double>(exact.begin(), exact.begin() + long(half)));
    };
    const auto want = answer(exact);
    const double error = relative_error(as_floats(answer(shifted)), want),
                 error_once = relative_error(as_floats(answer(direct)), want);
    CHECK_MESSAGE(error < 3 * error_once, test.format, ": attention differs by ", error, " and ", error_once);
  }
}

}  // namespace kvjit::test::ropes
