// Write path and read path on the CPU back-end, for every axis of a format and both layouts. Quantize must give the
// bytes of the reference codec, dequantize its values; the reference kernel (with the rotations around it) must give
// attention over these values.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>

#include "tests/differential/harness.hpp"
#include "tests/support/axis_formats.hpp"
#include "tests/support/every_format.hpp"
#include "tests/support/fenced_backend.hpp"

namespace kvjit::test {
namespace {

constexpr int kTokens = 37;
constexpr float kTensorScale[2] = {0.0625f, 0.375f};

Format axis_format(const AxisFormat& axis, int head_dim) {
  const std::string toml = fmt::format("title = \"of a test\"\n{}\n", axis.toml);
  return must(parse_format(toml, fmt::format("specs/formats/{}.toml", axis.name), registry(), head_dim));
}

Problem problem_of(const Format& k, const Format& v, int head_dim, Layout layout, const std::string& arch) {
  Problem problem;
  problem.k = k;
  problem.v = v;
  problem.head_dim = problem.head_dim_v = head_dim;
  problem.q_heads_per_kv = 2;
  problem.query_length = 1;
  problem.layout = layout;
  problem.arch = *must(registry().require_arch(arch, {}));
  problem.id = fmt::format("{}-{}.d{}", k.name, v.name, head_dim);
  return problem;
}

// Returns rows with heavy tails; the first ones are replaced by rows on which scale rules differ: zeros, equal values,
// equal magnitudes, tiny values, a single spike, large values, the golden input, negative zeros; rows whose scales
// round to 0; where -0 has a code, zeros of both signs and small values beside one that sets the scale. Squares of
// float32 numbers below 1e-19 are inexact, so smaller rows are for formats without squares.
std::vector<float> rows_of(const Format& f, int side, int head_dim) {
  const bool has_squares = f.scale.rule == ScaleRule::norm || f.scale.refine != Refine::none || f.scale.is_searched();
  Rng rng(std::uint64_t(side) + 5);
  std::vector<float> x = heavy_tailed_rows(rng, kKvHeads * kTokens, head_dim);
  const auto row = [&](int r) { return std::span(x).subspan(std::size_t(r * head_dim), std::size_t(head_dim)); };
  for (float& v : row(1)) v = 0;
  for (float& v : row(2)) v = 0.75f;
  for (int i = 0; i < head_dim; ++i) row(3)[std::size_t(i)] = i % 3 == 1 ? -1.5f : 1.5f;
  for (float& v : row(4)) v *= 1e-13f;
  for (float& v : row(5)) v = 0;
  row(5)[7] = -3;
  for (float& v : row(6)) v *= 100;
  for (int i = 0; i < head_dim; ++i) row(7)[std::size_t(i)] = golden_input(head_dim)[std::size_t(i)];
  for (float& v : row(8)) v = -0.f;
  int next = 16;
  for (const int exponent : {3, 4, 6, 8, 9, 10, 11, 13, 16, 20, 30})
    if (!has_squares || exponent < 19)
      for (float& v : row(next++)) v = float(v * std::pow(10., -exponent));
  for (const float largest : {0.f, 1e-4f, -3.f, 200.f}) {
    if (!f.codes().has_negative_zero) break;
    const float small[] = {0.f, -0.f, 1e-9f, -1e-9f, 1e-15f, -1e-15f};
    for (int i = 0; i < head_dim; ++i) row(next)[std::size_t(i)] = small[i % 6];
    row(next++)[9] = largest;
  }
  return x;
}

// Whether a byte of a row is in a field of a kind. Foreign bytes are not compared: no kernel writes them. Residual
// signs are not compared byte by byte: decoders do not read them, or a sign depends on the last bit of a sum and so on
// its order.
bool is_in(const Format& f, FieldKind kind, std::size_t byte) {
  const int at = int(byte % std::size_t(f.block_bytes));
  return std::any_of(f.fields.begin(), f.fields.end(), [&](const Field& field) {
    return field.kind == kind && at >= field.at && at < field.at + field.bytes;
  });
}

struct HarnessedFormat {
  std::shared_ptr<Context> context;
  Problem problem;
  ProgramSource source;
  KernelHarness harness;
};
HarnessedFormat make_harness(const std::shared_ptr<Context>& context, const Problem& problem) {
  ProgramSource source = must(make_reference_program(problem, registry()));
  KernelHarness harness =
      must(KernelHarness::make(context, must(Program::create(context, source)), problem, {1, kKvHeads, kTokens}));
  for (const int side : {0, 1}) {
    const Format& f = side == 0 ? problem.k : problem.v;
    if (f.has_tensor_scale()) harness.set_tensor_scale(side, kTensorScale[side]);
  }
  must(harness.vary_head_scales());
  return {context, problem, std::move(source), std::move(harness)};
}

std::vector<double> decoded_rows(const Format& f, std::span<const std::uint8_t> rows, int head_dim, bool rotated,
                                 const RowScales& scales) {
  const auto row_bytes = std::size_t(f.row_bytes(f.stored_dim(head_dim)));
  std::vector<double> values;
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) {
    const auto row = decode_row(f, rows.subspan(at, row_bytes), head_dim, rotated, scales.of_row(at / row_bytes));
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

// If a code falls on the other side of its bound, many residual signs change. So a row of a format with a residual
// counts as one difference.
void check_bytes(const Format& f, const std::vector<std::uint8_t>& got, const std::vector<std::uint8_t>& want,
                 bool is_exact, const std::string& name) {
  REQUIRE(got.size() == want.size());
  const std::size_t row_bytes = want.size() / (kKvHeads * kTokens);
  std::size_t last_row = want.size();
  long long differs = 0, bits = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (is_in(f, FieldKind::foreign, i)) continue;
    if (is_in(f, FieldKind::residual_signs, i))
      bits += std::popcount(unsigned(got[i] ^ want[i]));
    else if (!f.has_residual() || i / row_bytes != last_row)
      ++differs, last_row = i / row_bytes;
  }
  const long long allowed = allowed_differences(f, is_exact, want.size());
  CHECK_MESSAGE(differs <= allowed, name, ": ", differs, " of ", want.size(), " bytes differ");
  // The element that sets an amax scale equals its code's value up to the last bit, so its residual sign is arbitrary:
  // one bit for each block may differ.
  CHECK_MESSAGE(bits <= (long long)(want.size()) / f.block_bytes, name, ": ", bits, " unread signs differ");
}

void check_side(HarnessedFormat& t, int side, bool is_exact, const std::string& name) {
  const Format& f = side == 0 ? t.problem.k : t.problem.v;
  const int dim = t.problem.head_dim;
  const RowScales scales = t.harness.row_scales(side);
  const std::vector<float> x = rows_of(f, side, dim);
  for (const Element type : {Element::f32, Element::f16, Element::bf16}) {
    const std::vector<float> rounded = rounded_to(type, x);
    must(t.harness.quantize(side, rounded, type));
    check_bytes(f, must(t.harness.rows(side)), encode_rows(f, rounded, dim, scales), is_exact, name);
  }
  const auto rows = encode_rows(f, x, dim, scales);
  must(t.harness.set_rows(side, rows));
  for (const bool rotated : {false, true}) {
    const auto want = decoded_rows(f, rows, dim, rotated, scales);
    const double error = relative_error(must(t.harness.dequantize(side, rotated)), want);
    CHECK_MESSAGE(error <= 2e-6, name, rotated ? " rotated" : "", ": values differ by ", error);
    const double half_error = relative_error(must(t.harness.dequantize(side, rotated, Element::bf16)), want);
    CHECK_MESSAGE(half_error <= 0x1p-8, name, ": values as bf16 differ by ", half_error);
  }
}

void check_attention(HarnessedFormat& t, const std::string& name) {
  const Problem& p = t.problem;
  const int dim = p.head_dim, heads = kKvHeads * p.q_heads_per_kv;
  Rng rng(3);
  const std::vector<float> q = rounded_to(p.q_type, rng.normals(std::size_t(heads * dim)));
  std::vector<double> decoded[2];
  for (const int side : {0, 1}) {
    const Format& f = side == 0 ? p.k : p.v;
    std::vector<float> x = rows_of(f, side, dim);
    for (float& v : x) v *= 0.05f;  // so that several tokens have a weight in the softmax
    const auto rows = encode_rows(f, x, dim, t.harness.row_scales(side));
    must(t.harness.set_rows(side, rows));
    decoded[side] = decoded_rows(f, rows, dim, false, t.harness.row_scales(side));
  }
  const auto want = oracle_attention({heads, kKvHeads, 1, kTokens, dim, false, 0},
                                     std::vector<double>(q.begin(), q.end()), decoded[0], decoded[1]);
  const auto outcome = must(t.harness.attend(q, {kTokens, {}, 0, true}));
  const double error = relative_error(outcome.out, want);
  CHECK_MESSAGE(error <= 1e-5, name, ": attention differs by ", error);
}

void check_format(const std::shared_ptr<Context>& context, const Format& f, int head_dim, bool is_exact,
                  const std::vector<Layout>& layouts = {Layout::planar, Layout::rows}) {
  for (const Layout layout : layouts) {
    if (layout == Layout::planar && f.has_head_scales() && f.has_scale()) continue;  // the plane is that of heads
    const std::string name = fmt::format("{} head_dim {} {}", f.name, head_dim, to_string(layout));
    INFO(name);
    HarnessedFormat t = make_harness(context, problem_of(f, f, head_dim, layout, context->backend()->info().arch));
    for (const int side : {0, 1}) check_side(t, side, is_exact, name);
    check_attention(t, name);
  }
}

// Each with one of the two layouts in turn, or with KVJIT_FULL=1 with both.
TEST_CASE("quantize, dequantize and reference of every axis of a format") {
  const auto context = open_context(DeviceKind::cpu);
  std::size_t turn = turn_of_texts();
  for (const AxisFormat& axis : axis_formats())
    for (const int head_dim : axis.head_dims)
      check_format(context, axis_format(axis, head_dim), head_dim, axis.is_exact,
                   every_nth(std::vector{Layout::planar, Layout::rows}, 2, turn++));
}

// Returns whether the reference codec computes the format in float32 step by step, as the kernels do; then bytes must
// be equal.
bool is_exact(const Format& f) {
  for (const Segment& segment : f.segments)
    if (!is_exact(segment.format)) return false;
  return f.rotation.is_identity() && f.scale.rule != ScaleRule::norm && f.scale.refine != Refine::matched &&
         f.scale.refine != Refine::least_squares;
}

TEST_CASE("quantize, dequantize and reference of every format of specs/formats") {
  const auto context = open_context(DeviceKind::cpu);
  Layout layout = Layout::rows;
  for (const auto& [name, any] : registry().formats()) {
    const int dim = any.has_segments() ? any.heads.back() : check_head_dim(any, 128, {}) ? 128 : 256;
    const Format f = must(registry().format_for(name, dim, {}));
    layout = layout == Layout::rows ? Layout::planar : Layout::rows;  // alternate layouts, so that the axes run in both
    check_format(context, f, dim, is_exact(f), {layout});
  }
}

TEST_CASE("heads of 512, 576 and 1024 values") {
  const auto context = open_context(DeviceKind::cpu);
  for (const auto& [name, dim] : {std::pair{"q8_0", 576},
                                  {"f16", 576},
                                  {"tbq4_wht_dfirst_corr", 512},
                                  {"turbo4_qjl68", 512},
                                  {"atlas_turbo3", 512},
                                  {"q4_1", 1024}}) {
    const Format f = must(registry().format_for(name, dim, {}));
    check_format(context, f, dim, is_exact(f), {Layout::planar});
  }
}

TEST_CASE("factors of channels are applied before the rotation and removed after it") {
  const auto context = open_context(DeviceKind::cpu);
  for (const AxisFormat& axis : axis_formats())
    for (const auto& [name, head_dim] :
         {std::pair{"int8_twos", 64}, {"padded_to_128", 96}, {"projected_original", 256}})
      if (axis.name == std::string(name)) {
        Format f = axis_format(axis, head_dim);
        Rng rng(11);
        for (int i = 0; i < head_dim; ++i) f.channels.push_back(float(std::exp2(2 * rng.uniform() - 1)));
        f.name += "_by_channel";
        check_format(context, f, head_dim, axis.is_exact);
      }
}

TEST_CASE("K and V of different domains") {
  const auto context = open_context(DeviceKind::cpu);
  const auto named = [](const char* name, int head_dim) {
    for (const AxisFormat& axis : axis_formats())
      if (axis.name == std::string(name)) return axis_format(axis, head_dim);
    FAIL(name);
    return Format{};
  };
  constexpr std::pair<const char*, const char*> kPairs[] = {{"projected_rotated", "int4_minimum"},
                                                            {"int8_twos", "direct_signs"},
                                                            {"padded_to_128", "projected_rotated"},
                                                            {"e4m3_tensor", "stored_mask"}};
  for (const auto& [k, v] : kPairs) {
    HarnessedFormat t = make_harness(
        context, problem_of(named(k, 128), named(v, 128), 128, Layout::planar, context->backend()->info().arch));
    check_attention(t, fmt::format("K {} V {}", k, v));
  }
}

// The kernels must treat NaN, infinities and values beyond the scale's range as the reference codec does.
TEST_CASE("NaN, infinities and values beyond the scale's type") {
  const auto context = open_context(DeviceKind::cpu);
  for (const AxisFormat& axis : axis_formats()) {
    const int dim = axis.head_dims.back();
    const Format f = axis_format(axis, dim);
    const Layout layout = f.has_head_scales() ? Layout::rows : Layout::planar;
    HarnessedFormat t = make_harness(context, problem_of(f, f, dim, layout, context->backend()->info().arch));
    std::vector<float> x = rows_of(f, 0, dim);
    const auto at = [&](int row, int i) -> float& { return x[std::size_t(row * dim + i)]; };
    at(10, 5) = at(11, 0) = at(12, dim - 1) = NAN;
    at(13, 3) = INFINITY;
    at(14, 0) = -INFINITY;
    for (int i = 0; i < dim; ++i) at(15, i) *= 1e5f;
    const RowScales scales = t.harness.row_scales(0);
    must(t.harness.quantize(0, x));
    const auto got = must(t.harness.rows(0)), want = encode_rows(f, x, dim, scales);
    if (axis.is_exact) check_bytes(f, got, want, true, axis.name);
    must(t.harness.set_rows(0, got));
    const auto values = must(t.harness.dequantize(0));
    const auto mine = decoded_rows(f, got, dim, false, scales), codec = decoded_rows(f, want, dim, false, scales);
    int differs = 0;
    for (std::size_t i = 0; i < codec.size(); ++i)
      differs +=
          std::isfinite(mine[i]) != std::isfinite(codec[i]) || std::isfinite(values[i]) != std::isfinite(mine[i]);
    CHECK_MESSAGE(differs == 0, f.name, ": ", differs, " values are finite on one side alone");
  }
}

// Mutation test: one word of a template is changed at a time, and the checks above must notice it.
struct Mutation {
  const char* format;
  const char* file;
  const char* from;
  const char* to;
};
constexpr Mutation kMutations[] = {
    {"int5_planes", "formats/fields.cuh", "& kMask) << kLow", "& kMask)"},
    {"table3_nibbles", "formats/fields.cuh", "(group[16 * h + 8] & 4u) << 1", "(group[16 * h + 8] & 4u)"},
    {"int4_signed_split", "formats/groups.cuh", "(!beats(best, other) && other_at < at)", "false"},
    {"int4_minimum", "formats/stored_row.cuh", "level * scale + minimum", "level * scale"},
    {"e2m1_four_scales", "formats/stored_row.cuh", "i % F::kBlock / F::kGroup", "0"},
    {"e2m1_four_scales", "formats/codes.cuh", "mul_rn(bound, d) <= v", "mul_rn(bound, d) < v"},
    {"e2m1_over_heads", "formats/codes.cuh", "? float_of(0x80000001u) : v", "? v : v"},
    {"weighted_table", "formats/scales.cuh", "mul_rn(mul_rn(x[e], x[e]), c[e])", "mul_rn(x[e], c[e])"},
    {"int7_quotient_bf16", "formats/encode.cuh", "if constexpr (R::kByStored)", "if constexpr (false)"},
    {"constant_mask", "formats/stored_row.cuh", "is_outlier ? outliers : channel - outliers",
     "is_outlier ? outliers : channel - 1"},
    {"stored_mask", "formats/encode.cuh", "larger_ones[e] < R::kOutliers", "larger_ones[e] <= R::kOutliers"},
    {"one_bit_zero_bytes", "formats/encode.cuh", "if (is_zero[e])", "if (false)"},
    {"one_bit_zero_bytes", "formats/pack.cuh", "kAt + i % kBytes] = 0", "kAt + i % kBytes] = 1"},
    {"padded_to_128", "formats/number_rows.cuh", "if (i >= kCount) continue;", "if (i >= kCount - 1) continue;"},
    {"projected_original", "formats/rotated_domain.cuh", "D::kIsOriginal ? second[e] : x[e]", "x[e]"},
    {"projected_rotated", "formats/stored_row.cuh", "? size : -size", "? -size : size"},
    {"direct_signs", "formats/encode.cuh", "(R::F::kIsRelative ? 1.f : norm[e])", "1.f"},
    {"whole_head_renormalised", "formats/stored_row.cuh", "scale / shrink", "scale"},
    {"e4m3_tensor", "kernels/reference/reference.cuh", "args.value_scale * rescale_factor / d", "rescale_factor / d"},
    {"e4m3_groups", "formats/write_row.cuh", "f32_from_bf16(bf16_from_f32(rotated[e]))", "rotated[e]"},
    {"e4m3b15_plain", "formats/minifloat_bias15.cuh", "(1u << 19)", "0u"},
    {"e2m1_over_heads", "formats/rare/head_scales.cuh", "return codes_of<F>(row, i);", "return row.scales;"},
    {"e2m1_over_heads", "formats/rare/head_scale_rows.cuh", "tensor_scale * head_scale(to)", "tensor_scale"},
    {"e4m3_per_head", "formats/rare/head_scales.cuh", "tensor_scale * head_scale(from)", "head_scale(from)"},
    {"e4m3_per_head", "kernels/decode/rare/head_scaled.cuh", "head * side.scales_head_stride", "0"},
    {"trellis2_factor", "formats/trellis.cuh", "if (bit % 8 + kBits > 8)", "if (false)"},
    {"trellis2_factor", "formats/trellis_rows.cuh", "cost[g * kJoins + i] < lowest", "cost[g * kJoins + i] > lowest"},
    {"trellis2_factor", "formats/scale_searches.cuh", "d[e] = mul_rn(d[e], R::kFactor)", "d[e] = d[e]"},
    {"trellis2_circle", "formats/trellis.cuh", "next == kCircle ? 0 : next", "next"},
    {"trellis2_circle", "formats/trellis_rows.cuh", "allow<false>(cost, group);", ""},
    {"trellis2_circle", "formats/trellis_rows.cuh", "words[(first + t) % kLength]", "words[t]"},
    {"vectors", "formats/rare/vectors.cuh", "axis % 2 ? -1 : 1", "axis % 2 ? 1 : -1"},
    {"vectors", "formats/rare/vectors.cuh", "k / kVectorDim * 2", "k / kVectorDim"},
    {"vectors", "formats/rare/vector_rows.cuh", "if (is_odd) sum", "if (false) sum"},
    {"vectors", "formats/rare/vector_rows.cuh", "scale_of[i / kVectorDim] = scales.d[e]",
     "scale_of[i / kVectorDim] = 1.f"},
    {"segments_rotated", "formats/split_field.cuh", "(kParts * kSplit) * kSplit + k % kSplit", "kParts"},
    {"segments", "formats/segments.cuh", "row.scales + S::kScalesAt", "row.scales"},
    {"segments", "formats/segment_rows.cuh", "S::kFirst / 32 + e", "e"},
    {"segments", "formats/scale_rows.cuh", "group % F::kScaleRows *", "0 *"},
};

// Returns whether bytes, values and attention of the kernels of `mutated` agree with the codec and the oracle.
bool agrees(const std::shared_ptr<Context>& context, const Registry& mutated, const AxisFormat& axis) {
  const int dim = axis.head_dims.front();
  const Format f = axis_format(axis, dim);
  const Problem problem = problem_of(f, f, dim, Layout::rows, context->backend()->info().arch);
  const auto program = must(Program::create(context, must(make_reference_program(problem, mutated))));
  KernelHarness harness = must(KernelHarness::make(context, program, problem, {1, kKvHeads, kTokens}));
  if (f.has_tensor_scale())
    for (const int side : {0, 1}) harness.set_tensor_scale(side, kTensorScale[side]);
  must(harness.vary_head_scales());
  const std::vector<float> x = rows_of(f, 0, dim);
  must(harness.quantize(0, x));
  const auto got = must(harness.rows(0)), want = encode_rows(f, x, dim, harness.row_scales(0));
  long long differs = 0;
  for (std::size_t i = 0; i < got.size(); ++i) differs += got[i] != want[i];
  if (differs > (axis.is_exact ? 0 : (long long)(got.size()) / 1000)) return false;
  std::vector<double> decoded[2];
  for (const int side : {0, 1}) {
    const auto rows = encode_rows(f, x, dim, harness.row_scales(side));
    must(harness.set_rows(side, rows));
    decoded[side] = decode_rows(f, rows, dim, harness.row_scales(side));
  }
  if (!(relative_error(must(harness.dequantize(0)), decoded[0]) <= 2e-6)) return false;
  Rng rng(3);
  const auto q = rounded_to(Element::f16, rng.normals(std::size_t(2 * kKvHeads * dim)));
  const auto exact = oracle_attention({2 * kKvHeads, kKvHeads, 1, kTokens, dim, false, 0},
                                      std::vector<double>(q.begin(), q.end()), decoded[0], decoded[1]);
  return relative_error(must(harness.attend(q, {kTokens, {}, 0, true})).out, exact) <= 1e-4;
}

// A broken kernel may read past its rows: it runs in a child process, over buffers with fences.
TEST_CASE("a broken codec kernel is noticed") {
  for (const Mutation& mutation : every_nth(std::vector(std::begin(kMutations), std::end(kMutations)), 2)) {
    const Registry broken = changed_registry(mutation.file, mutation.from, mutation.to);
    const auto axis = std::ranges::find(axis_formats(), std::string(mutation.format), &AxisFormat::name);
    REQUIRE_MESSAGE(axis != axis_formats().end(), "no such axis: ", std::string(mutation.format));
    const int end = end_of([&] { return agrees(open_fenced(), broken, *axis); });
    CHECK_MESSAGE((end == kIsFalse || end < 0), std::string(mutation.file), ": not noticed with ",
                  std::string(mutation.format), ": ", std::string(mutation.from), " -> ", std::string(mutation.to));
  }
}

}  // namespace
}  // namespace kvjit::test
