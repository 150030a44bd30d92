// plan_copy: whether a copy of rows to another cache moves bytes, or decodes and encodes values (CopyKind).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "generator/kernels/operations/operations.hpp"

namespace kvjit {
namespace {

// Whether two rotations are equal, apart from their names.
bool is_same_rotation(Rotation a, const Rotation& b) {
  a.name = b.name;
  return a == b;
}

// Values of a lane, if a lane can take whole blocks of the format and needs no other lane; else 0.
int lane_values(const CodecPlan& side, const Arch& arch) {
  if (!side.format.rotation.is_identity()) return 0;
  Decision unused;
  const auto tiles = plan_bulk(side.format, side.head_dim, side.is_planar, arch, unused);
  return tiles && tiles->family == BulkFamily::blocks ? tiles->lane_values : 0;
}

}  // namespace

const char* to_string(CopyKind kind) {
  constexpr const char* kNames[] = {"bytes", "rotated", "dequantized"};
  return kNames[int(kind)];
}

Result<CopyPlan> plan_copy(const CodecPlan& from, const CodecPlan& to, bool has_same_scale, int alignment,
                           const Registry& registry) {
  const Format &f = from.format, &g = to.format;
  if (from.head_dim != to.head_dim)
    return fail(Code::unsupported,
                fmt::format("a copy from heads of {} values to heads of {}; both must be of one size", from.head_dim,
                            to.head_dim),
                {}, {"attention.head_dim of either spec"});
  if (from.arch != to.arch)
    return fail(Code::unsupported,
                fmt::format("a copy from a program for {} to one for {}; both must be for one", from.arch, to.arch), {},
                {"target.arch of either spec"});
  CopyPlan plan{from, to, CopyKind::dequantized, std::clamp(alignment, 1, 16)};
  if (has_same_scale && have_same_bytes(from, to, registry)) {
    plan.kind = CopyKind::bytes;
  } else {
    plan.alignment = 2;
    const bool needs_original = (g.has_residual() && g.residual.is_original) || g.is_unnormalised;
    if (is_same_rotation(f.rotation, g.rotation) && f.channels == g.channels && !needs_original &&
        f.stored_dim(from.head_dim) == g.stored_dim(to.head_dim))
      plan.kind = CopyKind::rotated;
    KV_TRY(arch, registry.require_arch(from.arch, {}));
    const int from_values = lane_values(from, *arch), to_values = lane_values(to, *arch);
    const int values = std::max(from_values, to_values);
    const bool is_whole = values > 0 && values % f.block == 0 && values % g.block == 0 && from.head_dim % values == 0;
    if (plan.kind == CopyKind::rotated && from_values > 0 && to_values > 0 && is_whole) plan.lane_values = values;
  }
  return plan;
}

}  // namespace kvjit
