// plan_tiles: whether, and how, many rows at once are quantised on the tensor cores (templates/kernels/quantise_tiles.cuh).
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "generator/plan.hpp"

namespace kvjit {
namespace {

bool is_mirrored(const Section& s) {
  const std::size_t values = s.values.size(), bounds = s.bounds.size();
  for (std::size_t i = 0; i < values; ++i)
    if (s.values[i] != -s.values[values - 1 - i]) return false;
  for (std::size_t i = 0; i < bounds; ++i)
    if (s.bounds[i] != -s.bounds[bounds - 1 - i]) return false;
  return s.cell_codes.empty();
}

}  // namespace

std::optional<TilePlan> plan_tiles(const Format& f, int head_dim, bool is_planar, const Arch& arch) {
  const Section& s = f.codes();
  const Field* codes = f.field(FieldKind::codes);
  const bool is_simple = f.sections.size() == 1 && f.channels.empty() && !f.rounds_to_bf16 && !f.is_padded &&
                         !f.zero_bytes && !f.field(FieldKind::residual_signs) && !f.field(FieldKind::pad);
  if (!is_simple || head_dim % kTileGroup != 0 || s.kind != CodeKind::table || s.bits > 4 || codes->bits != s.bits ||
      codes->split != 0 || (f.rotation.kind != RotationKind::wht && f.rotation.kind != RotationKind::dense) ||
      f.rotation.size != kTileGroup || f.block != kTileGroup || f.scale.span != kTileGroup ||
      f.scale.rule != ScaleRule::norm || f.scale.type != ScaleType::f16 ||
      (f.scale.refine != Refine::none && f.scale.refine != Refine::matched) || !is_mirrored(s))
    return std::nullopt;
  TilePlan plan;
  plan.is_dense = f.rotation.kind == RotationKind::dense;
  // In integer steps of 2^-18 standard deviations; a bucket is 2^16 of them, and 0 begins bucket 64.
  const double step = 0x1p18 * std::sqrt(double(kTileGroup));
  constexpr std::int64_t kBucket = 1 << 16;
  constexpr std::uint32_t kZeroBits = 0x4B400000;  // of the float 1.5 * 2^23, which the kernel adds
  std::size_t below = 0;                           // bounds below the bucket
  for (int i = 0; i < 128; ++i) {
    const std::int64_t low = (i - 64) * kBucket;
    while (below < s.bounds.size() && std::ceil(s.bounds[below] * step - 0.5) <= double(low)) ++below;
    std::uint32_t word = std::uint32_t(below) << 16;
    if (below < s.bounds.size()) {
      const auto bound = std::int64_t(std::ceil(s.bounds[below] * step - 0.5));
      if (bound < low + kBucket) word += std::uint32_t(kBucket - (bound - low));  // carries from the bound on
      if (below + 1 < s.bounds.size() && std::ceil(s.bounds[below + 1] * step - 0.5) < double(low + kBucket))
        return std::nullopt;  // two bounds in a quarter of a standard deviation
    }
    plan.buckets.push_back(word - (kZeroBits + std::uint32_t(low)));
  }
  const int stride = is_planar ? f.code_bytes : f.block_bytes, at = is_planar ? codes->plane_at : codes->at;
  plan.code_unit = 16;
  while (stride % plan.code_unit != 0 || at % plan.code_unit != 0) plan.code_unit /= 2;
  if (!is_planar) plan.code_unit = std::min(plan.code_unit, 2);  // rows may begin at any even address
  if (plan.code_unit < 2) return std::nullopt;
  constexpr int kTables = kEncodingBytes + kHadamardBytes, kRing = 2 * kTileStageBytes;  // two stages a warp
  plan.warps = std::min((arch.shared_bytes_per_block - kTables) / kRing, 16);
  if (plan.warps < 2) return std::nullopt;
  plan.shared_bytes = kTables + plan.warps * kRing;
  if (plan.is_dense) {  // no ring, but the matrix in two halves; registers allow eight warps
    plan.warps = 8, plan.warp_rows = 32;
    plan.shared_bytes = kEncodingBytes + kTileGroup * kTileGroup * 4;
    if (plan.shared_bytes > arch.shared_bytes_per_block) return std::nullopt;
  }
  return plan;
}

}  // namespace kvjit
