// offer_teams: how many warps divide the sums of the output, and by which dimension.
//
// The sums are in registers: for every 8 query rows, a quarter of V's rotated dimension a lane. If they are too many
// for one warp, a team of warps takes its tiles together (templates/kernels/decode/warp_team.cuh). Its warps divide the
// output by dimensions of V, or by query rows if the packing of V does not divide among the lanes of several warps.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

// Registers a lane for sums of the output: teams with more than kManySums come last, more than kMostSums do not fit.
constexpr int kManySums = 64, kMostSums = 128;
constexpr int kMostTeam = 8;  // warps
// The fewest query rows for wgmma. With fewer the tensor cores are idle anyway, and one warp alone needs no barriers.
constexpr int kWarpgroupRows = 17;

int sums_of(const TeamPlan& team) {
  const int own_blocks = team.column_blocks * team.value_share / team.warps;
  return own_blocks * team.v.rotated_dim / team.value_share / 4;
}

constexpr int kWarpgroup = 4;  // warps

// A team whose products are wgmma. It divides V by dimensions, multiplies K as fp16, and has columns in the widths of
// templates/device/wgmma_columns.cuh.
Result<TeamPlan> plan_warpgroup(TeamSides& sides, int blocks) {
  const auto& planned = sides.warpgroup();
  if (!planned) return tl::unexpected(planned.error());
  TeamPlan team;
  team.warps = team.value_share = kWarpgroup;
  team.column_blocks = std::max(2, int(std::bit_ceil(unsigned(blocks))));
  team.by_warpgroups = true;
  team.k = planned->first, team.v = planned->second;
  return team;
}

TeamPlan plan_warps(TeamSides& sides, int warps, int blocks) {
  TeamPlan team;
  team.warps = warps, team.column_blocks = blocks;
  team.k = sides.k, team.v = sides.v;
  if (warps == 1) return team;
  if (const auto& shared = sides.shared_values(warps)) team.v = *shared, team.value_share = warps;
  const int step = 2 * warps / team.value_share;  // probabilities are read two blocks at a time
  team.column_blocks = (blocks + step - 1) / step * step;
  return team;
}

}  // namespace

const Result<SidePlan>& TeamSides::shared_values(int warps) {
  auto planned = shared_values_.find(warps);
  if (planned == shared_values_.end()) {
    planned = shared_values_
                  .emplace(warps, plan_side(problem_.v, problem_.v_dim(), problem_.is_planar(), false, false, warps))
                  .first;
    if (planned->second && problem_.values_in_keys)
      put_in_keys(*planned->second, k);
    else if (planned->second)
      place_records(*planned->second, problem_, false, false);
  }
  return planned->second;
}

const Result<std::pair<SidePlan, SidePlan>>& TeamSides::warpgroup() {
  const auto plan = [this]() -> Result<std::pair<SidePlan, SidePlan>> {
    const bool is_planar = problem_.is_planar();
    KV_TRY(keys, plan_side(problem_.k, problem_.head_dim, is_planar, true, false, 1, 16));
    KV_TRY(values, plan_side(problem_.v, problem_.v_dim(), is_planar, false, false, kWarpgroup, 16, true));
    place_records(keys, problem_, true, false), place_records(values, problem_, false, false);
    if (problem_.values_in_keys) put_in_keys(values, keys);
    return std::pair(std::move(keys), std::move(values));
  };
  if (!warpgroup_) warpgroup_ = plan();
  return *warpgroup_;
}

Result<bool> offer_teams(TeamSides& sides, int rows, const std::function<bool(const TeamPlan&)>& takes) {
  const int blocks = (rows + 7) / 8;
  bool is_any = false;
  const auto is_taken = [&](const TeamPlan& team) {
    is_any = true;
    return takes(team);
  };
  if (sides.problem().arch.has("wgmma") && rows >= kWarpgroupRows)
    if (auto team = plan_warpgroup(sides, blocks); team && sums_of(*team) <= kMostSums && is_taken(*team)) return true;
  for (const int most : {kManySums, kMostSums})
    for (int warps = 1; warps <= kMostTeam; warps *= 2) {
      const TeamPlan team = plan_warps(sides, warps, blocks);
      const int sums = sums_of(team);
      const bool is_tight = sums > kManySums && !(warps == 1 && blocks == 1);
      if (sums <= kMostSums && is_tight == (most == kMostSums) && is_taken(team)) return true;
    }
  if (!is_any)
    return fail(Code::unsupported,
                fmt::format("the decode family has no registers for {} query rows over {} values a row of {}", rows,
                            sides.v.rotated_dim, sides.problem().v.name),
                {}, {"head_dim up to 512 works"});
  return false;
}

}  // namespace kvjit
