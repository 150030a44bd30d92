// plan_bulk: whether a format is quantized and dequantized in bulk, and by which family of kernels: on the tensor cores
// (templates/kernels/codec: quantize_bulk_wgmma.cuh, quantize_bulk.cuh, quantize_bulk_dense.cuh and their inverses), or
// by whole blocks a lane (quantize_bulk_blocks.cuh). plan_bulk_kernel chooses the kernel for rows of one element type.
// SPDX-License-Identifier: MIT
#include "generator/kernels/codec/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/base/halves.hpp"
#include "generator/base/minifloat.hpp"

namespace kvjit {
namespace {

// Whether the codebook is symmetric around 0.
bool is_mirrored(const Section& s) {
  const std::vector<double> values = values_by_cell(s);
  const std::size_t bounds = s.bounds.size();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != -values[values.size() - 1 - i]) return false;
  for (std::size_t i = 0; i < bounds; ++i)
    if (s.bounds[i] != -s.bounds[bounds - 1 - i]) return false;
  return true;
}

// Names the property that bulk tiles require and the format lacks; null if it has all.
const char* missing(const Format& f, int head_dim) {
  const Section& s = f.codes();
  if (f.has_segments()) return "one format for all channels";
  if (f.sections.size() != 1 || f.field(FieldKind::residual_signs)) return "one section of codes, no signs";
  if (!f.channels.empty() || f.rounds_to_bf16) return "rows as they are: no channel factors or roundings";
  if (s.kind != CodeKind::table || s.bits > 4 || s.is_trellis()) return "a codebook of up to 4 bits";
  if (f.rotation.size != kBulkGroup || !f.rotation.is_orthogonal || head_dim % kBulkGroup != 0)
    return "whole rotations of 128";
  if (f.scale.span != kBulkGroup || f.scale.group != f.block || f.scale.rule != ScaleRule::norm ||
      f.scale.type != ScaleType::f16 || (f.scale.refine != Refine::none && f.scale.refine != Refine::matched) ||
      f.scale.least > 0 || f.scale.factor > 0 || f.scale.by_stored)
    return "an f16 norm of 128 values";
  if (f.scale.epsilon > 0 && f.rotation.kind != RotationKind::wht) return "a norm without an epsilon";
  if (!s.cell_codes.empty() && (f.zero_bytes || s.cell_codes != sign_magnitude_codes(s.values.size())))
    return "codes that ascend, or are sign and magnitude";
  return is_mirrored(s) ? nullptr : "a symmetric codebook";
}

// A lane takes one block, or 16 values if the format has no blocks. missing_for_blocks: what that requires and the
// format lacks, or null.
constexpr int kMostLaneValues = 32;
int lane_values(const Format& f) { return f.block == 1 ? 16 : f.block; }
const char* missing_for_blocks(const Format& f, int head_dim, bool is_planar) {
  const bool has_spans = f.scale.rule != ScaleRule::none && f.scale.rule != ScaleRule::tensor;
  if (!is_planar) return "layout = \"planar\"";
  if (f.has_segments()) return "one format for all channels";
  if (f.sections.size() != 1 || f.field(FieldKind::mask)) return "one section of codes";
  if (f.codes().is_trellis() || f.codes().is_vector()) return "codes that are chosen one by one";
  if (!f.channels.empty() || f.rounds_to_bf16 || f.is_padded || f.zero_bytes || f.scale.renormalise)
    return "rows as they are: no channel factors or padding";
  if (lane_values(f) > kMostLaneValues || lane_values(f) % 8 != 0 || head_dim % lane_values(f) != 0 ||
      (has_spans && lane_values(f) % f.scale.span != 0))
    return "whole blocks and spans of at most 32 values";
  return nullptr;
}

// The words of the 128 buckets, for `steps` integer steps to a standard deviation. A bucket has 2^16 steps, and bucket
// 64 begins at 0. Empty if a bucket holds two bounds.
std::vector<std::uint32_t> buckets_of(const Section& s, double steps) {
  const double step = steps * std::sqrt(double(kBulkGroup));
  constexpr std::int64_t kBucket = 1 << 16;
  constexpr std::uint32_t kZeroBits = 0x4B400000;  // of the float 1.5 * 2^23, which the kernel adds
  std::vector<std::uint32_t> words;
  std::size_t below = 0;  // bounds below the bucket
  for (int i = 0; i < 128; ++i) {
    const std::int64_t low = (i - 64) * kBucket;
    while (below < s.bounds.size() && std::ceil(s.bounds[below] * step - 0.5) <= double(low)) ++below;
    std::uint32_t word = std::uint32_t(below) << 16;
    if (below < s.bounds.size()) {
      const auto bound = std::int64_t(std::ceil(s.bounds[below] * step - 0.5));
      if (bound < low + kBucket) word += std::uint32_t(kBucket - (bound - low));  // carries from the bound on
      if (below + 1 < s.bounds.size() && std::ceil(s.bounds[below + 1] * step - 0.5) < double(low + kBucket)) return {};
    }
    words.push_back(word - (kZeroBits + std::uint32_t(low)));
  }
  return words;
}

// How often each code occurs: the probability of its cell under N(0, 1).
std::vector<double> code_probabilities(const Section& s) {
  const auto below = [](double bound) { return std::erfc(-bound * std::sqrt(kBulkGroup / 2.0)) / 2; };
  std::vector<double> probabilities(s.values.size());
  double before = 0;
  for (std::size_t cell = 0; cell < probabilities.size(); ++cell) {
    const double to = cell < s.bounds.size() ? below(s.bounds[cell]) : 1;
    probabilities[s.cell_codes.empty() ? cell : std::size_t(s.cell_codes[cell])] = to - before;
    before = to;
  }
  return probabilities;
}

// Plans the entries of the codebook as fp16: unscaled if fp16 holds them exactly.
void plan_entries(const Section& s, BulkPlan& plan) {
  HalfTable table{1, {}};
  for (const double v : s.values) table.halves.push_back(f16_from_float(float(v)));
  const std::vector<double> probabilities = code_probabilities(s);
  if (relative_rounding(s.values, table) > 0) table = halves_of(s.values, probabilities);
  plan.unit = table.unit;
  plan.code_rounding = relative_rounding(s.values, table, probabilities);
}

// The relative rounding error of the matrix as kernels have it, in fp16.
double rounding_of(const Rotation& rotation) {
  HalfTable table{1 / kDenseLength, {}};
  const std::vector<double>& matrix = rotation.matrix.numbers();
  for (const double v : matrix) table.halves.push_back(f16_from_float(float(v * kDenseLength)));
  return relative_rounding(matrix, table);
}

// The largest relative rounding error of a type.
double half_step(Element type) { return std::exp2(type == Element::f16 ? -11 : type == Element::bf16 ? -8 : -24); }

}  // namespace

std::optional<BulkPlan> plan_bulk(const Format& f, int head_dim, bool is_planar, const Arch& arch, Decision& decision) {
  decision = {"write path", "a row a warp", "", {}};
  const auto refuse = [&](const std::string& why) {
    decision.why = f.name + " is written by the kernels for any row";
    decision.rejected.push_back("bulk kernels: " + why);
    return std::nullopt;
  };
  if (f.swizzles_scales) return refuse("tiles take scales in the order of tokens");
  if (f.has_head_scales()) return refuse("tiles take one scale for all heads");
  // A lane can rotate the values that it has. Larger rotations take bulk tiles.
  const bool is_in_lane = f.rotation.kind == RotationKind::wht && f.rotation.size <= kMostLaneValues &&
                          lane_values(f) % f.rotation.size == 0;
  if (f.rotation.kind == RotationKind::none || is_in_lane) {
    if (const char* what = missing_for_blocks(f, head_dim, is_planar))
      return refuse(fmt::format("a lane needs {}", what));
    decision.choice = fmt::format("{} values a lane", lane_values(f));
    decision.why = "nothing crosses lanes; rows of f16, bf16 and f32";
    BulkPlan plan;
    plan.family = BulkFamily::blocks;
    plan.lane_values = lane_values(f);
    return plan;
  }
  if (const char* what = missing(f, head_dim)) return refuse(fmt::format("tiles need {}", what));
  const Section& s = f.codes();
  BulkPlan plan;
  if (const char* what = plan_bulk_places(f, is_planar, plan.places)) return refuse(fmt::format("tiles need {}", what));
  plan.is_dense = f.rotation.kind != RotationKind::wht;
  // Buckets of a quarter of a standard deviation, or of a fifth. The largest of 128 values can be sqrt(128) = 11.3
  // standard deviations, and 64 buckets of a fifth reach 12.8.
  for (const double bucket : {1 / 4.0, 1 / 5.0})
    if (plan.buckets.empty()) plan.steps = 0x1p16 / bucket, plan.buckets = buckets_of(s, plan.steps);
  if (plan.buckets.empty()) return refuse("bounds a fifth of a standard deviation apart");
  plan_entries(s, plan);
  if (plan.is_dense) plan.matrix_rounding = rounding_of(f.rotation);

  const auto is_possible = [&] { return plan_bulk_kernel(plan, f, {true, Element::f16}, arch).has_value(); };
  if (arch.has("wgmma")) {
    plan.family = BulkFamily::matrix;
    if (is_possible()) {
      decision.choice = "64 rows a warpgroup (wgmma)";
      const auto products = [&](Element type) {
        const auto kernel = plan_bulk_kernel(plan, f, {false, type}, arch);
        return kernel ? kernel->products() : 0;
      };
      decision.why = fmt::format("{} as {} of halves; rows of f16, bf16 and f32, back by {}, {} and {} products",
                                 f.rotation.name, plan.is_dense ? "two matrices" : "a matrix", products(Element::f16),
                                 products(Element::bf16), products(Element::f32));
      return plan;
    }
  }
  plan.family = plan.is_dense ? BulkFamily::dense : BulkFamily::hadamard;
  decision.rejected.push_back("64 rows a warpgroup: needs wgmma, which " + arch.name + " does not have");
  if (!is_possible()) return refuse(fmt::format("tables take more shared memory than {} has", arch.name));
  decision.choice = plan.is_dense ? "32 rows a warp (mma)" : "16 rows a warp (mma)";
  decision.why = plan.is_dense ? "quantize of f16" : "quantize of f16, dequantize to f16, bf16 and f32";
  return plan;
}

// If the error is at most an eighth of the type's largest rounding error, the squared error of the result grows by
// about a tenth at most.
int fp16_terms(double rounding, Element type) {
  constexpr double kFraction = 1 / 8.0;
  return rounding <= kFraction * half_step(type) ? 1 : 2;
}

// Bits of the rest of a matrix entry. Rests as E4M3 times codes as E4M3 are off by 2^-4 each at most, so together by an
// eighth.
int rest_bits(double rounding, Element type) {
  if (fp16_terms(rounding, type) == 1) return 0;
  return fp16_terms(rounding / 8, type) == 1 ? 8 : 16;
}

std::optional<BulkKernel> plan_bulk_kernel(const BulkPlan& plan, const Format& f, const BulkCall& call,
                                           const Arch& arch) {
  if (plan.family == BulkFamily::blocks) {
    BulkKernel kernel;
    kernel.name = call.is_quantize ? "quantize_bulk_blocks" : "dequantize_bulk_blocks";
    kernel.warps = 4, kernel.warp_tiles = 0;
    if (!call.is_quantize)  // results pass through shared memory
      kernel.shared_bytes = kernel.warps * 32 * plan.lane_values * (call.type == Element::f32 ? 4 : 2);
    return kernel;
  }
  // Only the kernels for Walsh-Hadamard transforms weigh codes if each lane has a scale.
  if (!call.is_quantize && plan.is_dense && plan.places.lane_scale_stride > 0) return std::nullopt;
  BulkKernel kernel;
  // quantize rotates rows as exactly as float32 sums are, whatever their type; dequantize only as exactly as the type
  // of its results.
  const Element precision = call.is_quantize ? Element::f32 : call.type;
  kernel.code_terms = fp16_terms(plan.code_rounding, precision);
  kernel.rest_bits = rest_bits(plan.matrix_rounding, precision);
  // Rests of 8 bits need codes of 8 bits. quantize has rows instead of codes, and with codes of two fp16 numbers there
  // are no registers for both.
  if (kernel.rest_bits == 8 && (call.is_quantize || kernel.code_terms == 2)) kernel.rest_bits = 16;
  const int matrix = kOperandBytes + kOperandBytes / 16 * kernel.rest_bits,
            decoding = plan.places.table_bytes(f.codes().bits);
  const int available = arch.shared_bytes_per_block;
  kernel.matrix_at = call.is_quantize ? kEncodingBytes : decoding;
  // dequantize behind a Walsh-Hadamard transform is faster by warps: it has an eighth of the products, and results pass
  // through shared memory.
  if (plan.family == BulkFamily::matrix && (call.is_quantize || plan.is_dense)) {
    kernel.name = call.is_quantize ? "quantize_bulk_wgmma" : "dequantize_bulk_wgmma";
    kernel.by_matrix = true;
    kernel.warps = 12;  // 168 registers a thread: sums and first operands take up to 128
    kernel.stage_at = kernel.shared_bytes = kernel.matrix_at + matrix;
    int stage = call.is_quantize ? kBulkRows * kBulkGroup * (call.type == Element::f32 ? 4 : 2) : 0;
    kernel.stages_operand =
        call.is_quantize && (call.type == Element::f16 || (call.type == Element::bf16 && !plan.is_dense));
    if (kernel.stages_operand) {  // 128 registers a thread suffice
      stage *= 2;
      kernel.warps = std::clamp((available - kernel.stage_at) / stage / 4 * 4, 4, 16);
    }
    kernel.shared_bytes += kernel.warps * stage;
  } else if (call.is_quantize && call.type == Element::f16 && plan.family == BulkFamily::hadamard) {
    constexpr int kRing = 2 * kBulkStageBytes;  // two stages a warp
    kernel.name = "quantize_bulk";
    kernel.stage_at = kernel.matrix_at + kHadamardBytes;
    kernel.warps = std::min((available - kernel.stage_at) / kRing, 16);
    kernel.shared_bytes = kernel.stage_at + kernel.warps * kRing;
  } else if (call.is_quantize && call.type == Element::f16) {  // the matrix instead of stages; registers for 8 warps
    kernel.name = "quantize_bulk_dense";
    kernel.warps = 8, kernel.warp_tiles = 2;
    kernel.shared_bytes = kernel.matrix_at + 2 * kOperandBytes;  // two fp16 numbers for each entry
  } else if (!call.is_quantize && !plan.is_dense) {
    kernel.name = "dequantize_bulk";
    kernel.stage_at = kernel.matrix_at + kHadamardBytes;
    kernel.warps = std::min((available - kernel.stage_at) / kBulkStageBytes, 12);  // 168 registers a thread
    kernel.shared_bytes = kernel.stage_at + kernel.warps * kBulkStageBytes;
  } else {
    return std::nullopt;
  }
  if (kernel.warps < 2 || kernel.shared_bytes > available) return std::nullopt;
  return kernel;
}

Result<void> check_codec(const Format& f, int head_dim) {
  const int stored = f.stored_dim(head_dim);
  const auto refuse = [&](const std::string& what, std::vector<std::string> notes = {}) -> Result<void> {
    return fail(Code::unsupported, fmt::format("the codec kernels need {}", what), {}, std::move(notes));
  };
  KV_CHECK(check_head_dim(f, head_dim, {}));
  if (stored % 32 != 0 && !f.is_ragged(head_dim))
    return refuse(fmt::format("a head_dim that is a multiple of 32, not {}", stored),
                  {"a format with padding = \"zero\" may serve it"});
  const auto fits = [](int size) { return size % 32 == 0 || 32 % size == 0; };
  const std::pair<const char*, int> groups[] = {
      {"blocks", f.block}, {"scale groups", f.scale.group}, {"scale spans", f.scale.span}};
  for (const auto& [what, size] : groups)
    if (!fits(size))
      return refuse(fmt::format("{} that divide 32 or are multiples of it, not {} as {} has", what, size, f.name));
  if (!f.rotation.is_orthogonal)
    return fail(
        Code::unsupported,
        fmt::format("{}: rotation '{}' is not orthogonal, so its transpose does not undo it", f.name, f.rotation.name),
        {},
        {"it projects the residual of QJL; an orthogonal matrix is kind = \"dense\" with generator = \"householder\""});
  const bool has_outliers = f.sections.size() > 1 + std::size_t(f.has_residual());
  if (has_outliers && f.block % 32 != 0)
    return refuse(fmt::format("masks of whole words: a block of 32 values or a multiple; {} has {}", f.name, f.block));
  if (f.zero_bytes && (f.scale.span < f.block || f.stored_mask > 0 || f.scale.rule != ScaleRule::norm))
    return refuse(
        fmt::format("a norm for the whole block, and no stored mask, where tiny blocks are zero bytes ({})", f.name));
  if (f.scale.division == Division::ratio && f.scale.rule != ScaleRule::amax)
    return refuse(fmt::format("rule = \"amax\" for division = \"ratio\" ({})", f.name));
  return {};
}

CodecPlan side_plan(const Problem& problem, int side, bool is_quantize) {
  return {side == 0 ? problem.k : problem.v,
          problem.dim(side),
          problem.is_planar(),
          is_quantize,
          problem.page_tokens,
          problem.checks,
          problem.arch.name};
}

}  // namespace kvjit
