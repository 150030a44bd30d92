// offer_teams: how many warps divide the sums of the output, and by which dimension.
//
// The sums are in registers: for every 8 query rows, a quarter of V's rotated dimension a lane. If they are too many
// for one warp, a team of warps takes its tiles together (templates/kernels/decode/warp_team.cuh). Its warps divide the
// output by dimensions of V, or by query rows if the packing of V does not divide among the lanes of several warps.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

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

// A team whose products are wgmma. It divides V by dimensions, multiplies K as fp16, and has columns in the widths of
// templates/device/wgmma_columns.cuh.
Result<TeamPlan> plan_warpgroup(const Problem& problem, int blocks) {
  const bool is_planar = problem.is_planar();
  TeamPlan team;
  team.warps = team.value_share = 4;
  team.column_blocks = std::max(2, int(std::bit_ceil(unsigned(blocks))));
  team.by_warpgroups = true;
  KV_TRY(k, plan_side(problem.k, problem.head_dim, is_planar, true, false, 1, 16));
  KV_TRY(v, plan_side(problem.v, problem.v_dim(), is_planar, false, false, team.value_share, 16, true));
  team.k = k, team.v = v;
  return team;
}

TeamPlan plan_warps(const Problem& problem, int warps, int blocks, const SidePlan& k, const SidePlan& v) {
  TeamPlan team;
  team.warps = warps, team.column_blocks = blocks;
  team.k = k, team.v = v;
  if (warps == 1) return team;
  if (auto shared = plan_side(problem.v, problem.v_dim(), problem.is_planar(), false, false, warps))
    team.v = *shared, team.value_share = warps;
  const int step = 2 * warps / team.value_share;  // probabilities are read two blocks at a time
  team.column_blocks = (blocks + step - 1) / step * step;
  return team;
}

}  // namespace

Result<bool> offer_teams(const Problem& problem, int rows, const SidePlan& k, const SidePlan& v,
                         const std::function<bool(const TeamPlan&)>& takes) {
  const int blocks = (rows + 7) / 8;
  bool is_any = false;
  const auto is_taken = [&](const TeamPlan& team) {
    is_any = true;
    return takes(team);
  };
  if (problem.arch.has("wgmma") && rows >= kWarpgroupRows)
    if (auto team = plan_warpgroup(problem, blocks); team && sums_of(*team) <= kMostSums && is_taken(*team))
      return true;
  std::map<int, TeamPlan> teams;  // by warps
  for (const int most : {kManySums, kMostSums})
    for (int warps = 1; warps <= kMostTeam; warps *= 2) {
      auto planned = teams.find(warps);
      if (planned == teams.end()) planned = teams.emplace(warps, plan_warps(problem, warps, blocks, k, v)).first;
      const int sums = sums_of(planned->second);
      const bool is_tight = sums > kManySums && !(warps == 1 && blocks == 1);
      if (sums <= kMostSums && is_tight == (most == kMostSums) && is_taken(planned->second)) return true;
    }
  if (!is_any)
    return fail(Code::unsupported,
                fmt::format("the decode family has no registers for {} query rows over {} values a row of {}", rows,
                            v.rotated_dim, problem.v.name),
                {}, {"head_dim up to 512 works"});
  return false;
}

}  // namespace kvjit
