// plan_decode: tiles, stages, tables, pitches and orders of the decode family.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "generator/codec.hpp"
#include "generator/plan.hpp"

namespace kvjit {
namespace {

int round_up(int v, int to) { return (v + to - 1) / to * to; }

void size_stage(SidePlan& side, int tile) {
  constexpr int kSlack = 16;  // a run that starts inside a byte may read past the last row
  const int rows = round_up(tile * side.pitch + kSlack, 16);
  side.scales_at = side.is_planar ? rows : 0;
  side.stage_bytes = rows + (side.is_planar ? round_up(tile * side.scale_row_bytes, 16) : 0);
}

int table_entries(const SectionPlan& s) {
  if (s.is_masked || s.codes.kind != CodeKind::table || s.integers.kind != IntegerKind::none) return 0;
  return s.by_nibbles ? 256 : s.codes.bits <= 4 ? 1 << 2 * s.codes.bits : 1 << s.codes.bits;
}

bool has_tables(const DecodePlan& plan) {
  const auto is_table = [](const SectionPlan& s) { return table_entries(s) > 0; };
  return std::any_of(plan.k.sections.begin(), plan.k.sections.end(), is_table) ||
         std::any_of(plan.v.sections.begin(), plan.v.sections.end(), is_table);
}

bool is_same_table(const SectionPlan& a, const SectionPlan& b) {
  return a.halves == b.halves && a.by_nibbles == b.by_nibbles;
}

// Tables of all sections with `copies` copies an entry. Two full tables share 256-byte entries (a half each), so that an entry's
// address is one permute; sections with the same entries share one table. Returns the bytes used.
int place_tables(DecodePlan& plan, int copies) {
  std::vector<SectionPlan*> owners;
  for (SidePlan* side : {&plan.k, &plan.v}) {
    // An entry of two words takes the room of two copies.
    side->table_copies = copies, side->table_stride = copies == 32 ? 256 : std::max(copies * 4, 8);
    for (SectionPlan& section : side->sections) {
      section.owns_table = false, section.table_at = 0;
      if (table_entries(section) == 0) continue;
      const auto same = std::find_if(owners.begin(), owners.end(),
                                     [&](const SectionPlan* other) { return is_same_table(*other, section); });
      if (same == owners.end()) section.owns_table = true, owners.push_back(&section);
    }
  }
  int end = 0, tall = 0;  // of the last pair of tables
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const int entries = table_entries(*owners[i]), stride = plan.k.table_stride;
    const bool is_second = copies == 32 && i % 2 == 1;
    if (is_second) {
      owners[i]->table_at = owners[i - 1]->table_at + 128;
      end += std::max(entries - tall, 0) * stride;
    } else {
      owners[i]->table_at = end;
      end += entries * stride, tall = entries;
    }
  }
  for (SidePlan* side : {&plan.k, &plan.v})
    for (SectionPlan& section : side->sections)
      for (const SectionPlan* owner : owners)
        if (is_same_table(*owner, section)) section.table_at = owner->table_at;
  return end;
}

// Blocks with masks of their own: long code, many registers.
bool is_masked(const DecodePlan& plan) { return plan.k.sections[0].is_masked || plan.v.sections[0].is_masked; }

// Does each token of V have one scale?
bool has_token_scales(const SidePlan& v) {
  const SectionPlan& section = v.sections[0];
  return v.sections.size() == 1 && section.use == ScaleUse::by_group && section.run.groups == 1 &&
         section.run.blocks == 1 && !v.format.scale.renormalise;
}

// The block's shape: as many bytes in flight and as many warps as fit, tables without bank conflicts if they
// can be had.
struct Shape {
  int warps = 0, stages = 0, tile = 0, copies = 0;
  double score = -1;
};

int layout_shared(DecodePlan& plan, const Shape& shape) {
  plan.warps = shape.warps, plan.stages = shape.stages, plan.tile = shape.tile;
  size_stage(plan.k, shape.tile);
  size_stage(plan.v, shape.tile);
  const int tables = place_tables(plan, shape.copies);
  plan.order_at = round_up(tables, 128);
  plan.integer_table_at = plan.order_at + plan.v.inner_dim * 2;
  plan.bases_at = round_up(plan.integer_table_at + (int(plan.k.sections[0].integers.table.size()) + 1) * 4,
                           16);  // read when the warps merge, so ahead of what is overwritten then
  plan.queries_at = round_up(plan.bases_at + (plan.shares_bases ? shape.warps * plan.column_blocks * 32 : 0), 128);
  const SectionPlan& keys = plan.k.sections[0];
  const int columns = plan.column_blocks * 8;
  plan.sums_at = plan.queries_at + plan.k.inner_dim * columns * (plan.has_integer_keys ? 2 : 2 * plan.query_parts);
  plan.sum_groups = keys.adds_minima || keys.integers.has_half ? keys.run.groups : 0;
  plan.largest_at = round_up(plan.sums_at + plan.sum_groups * columns * 4, 16);
  plan.tops_at = round_up(plan.largest_at + (plan.has_integer_keys ? columns * 4 : 0), 16);
  plan.probabilities_at = plan.ring_at = plan.tops_at;
  if (plan.team > 1) {
    plan.probabilities_at = round_up(plan.tops_at + shape.warps * (columns + 1) * 4, 128);
    plan.ring_at = plan.probabilities_at + shape.warps * shape.tile * columns * 2;
  }
  plan.stage_bytes = plan.k.stage_bytes + plan.v.stage_bytes;
  const int ring_end = plan.ring_at + shape.stages * shape.warps * plan.stage_bytes;
  plan.epilogue_at = plan.queries_at;  // behind the tables, which the next part needs
  const int epilogue_end = plan.epilogue_at + round_up(shape.warps * plan.rows * 8, 16) +
                           shape.warps / plan.team * plan.rows * (plan.v.inner_dim + 4) * 4 +
                           (plan.finishes ? plan.rows * plan.v.inner_dim * 4 : 0);
  plan.shared_bytes = std::max(ring_end, epilogue_end);
  return plan.shared_bytes;
}

Result<void> choose_shape(DecodePlan& plan) {
  // Bytes an SM should have under way: 1 us of latency, with some room; and where more gains nothing.
  constexpr double kEnoughInFlight = 56 * 1024, kPlentyInFlight = 96 * 1024;
  // 65,536 registers a block: 255, 168 or 128 a thread. What a lane of a team holds at once, but for addresses: sums of the output, and
  // by warpgroups scores (twice where K has groups), bases, denominators and codes of K; else twelve a block of columns and subtile.
  const auto most_warps = [&](int tile) {
    if (is_masked(plan)) return 8;
    if (plan.team == 1) return plan.sums() > 32 ? 8 : 12;
    const RunPlan& run = plan.k.sections[0].run;
    const bool has_groups = run.groups > 1 || plan.k.sections.size() > 1 || !plan.scales_probabilities;
    if (plan.by_warpgroups) {
      const int held = plan.sums() + plan.column_blocks * (has_groups ? 14 : 6) + run.codes;
      return held <= 88 ? 16 : held <= 128 ? 12 : 8;
    }
    return plan.sums() + plan.column_blocks * 12 * tile / 16 > 104 ? 8 : 12;
  };
  Shape best;
  for (int copies : has_tables(plan) ? std::vector<int>{32, 8, 4, 2, 1} : std::vector<int>{1})
    for (int tile : {32, 16})
      for (int warps : {16, 12, 8, 6, 4, 2, 1})
        for (int stages : {4, 3, 2}) {
          Shape shape{warps, stages, tile, copies, 0};
          if (warps > most_warps(tile) || warps % plan.team != 0) continue;
          if (plan.team > 1 && tile == 32 && (plan.by_warpgroups || plan.column_blocks > 2)) continue;
          if (layout_shared(plan, shape) > plan.arch.shared_bytes_per_block) continue;
          const double in_flight = double(warps) * (stages - 1) * plan.stage_bytes;
          shape.score = 4 * std::min(in_flight / kEnoughInFlight, 1.0) + std::min(in_flight / kPlentyInFlight, 1.0) +
                        3.0 * std::min(warps, 8) / 8 + 3.0 * warps / 12 +
                        (copies == 32  ? 2
                         : copies == 8 ? 1
                                       : copies / 16.0) +
                        (tile == 32 ? 0.5 : 0) - stages * 0.01;
          if (shape.score > best.score) best = shape;
        }
  if (best.score < 0)
    return fail(Code::unsupported,
                fmt::format("no block shape of the decode family fits {} bytes of shared memory on {}",
                            plan.arch.shared_bytes_per_block, plan.arch.name),
                {}, {"a smaller attention.head_dim or fewer bits need less"});
  // Two subtiles together keep more independent work in flight, where registers allow.
  const int few_sums = best.warps <= 8 && plan.column_blocks > 1 ? 64 : 32;
  const int alone = best.tile == 32 && !is_masked(plan) && plan.sums() <= few_sums ? 2 : 1;
  plan.subtiles = plan.team > 1 ? best.tile / 16 : alone;
  layout_shared(plan, best);
  plan.decisions.push_back({"block",
                            fmt::format("{} warps x {} stages x {} tokens", best.warps, best.stages, best.tile),
                            fmt::format("{} bytes in flight, {} of {} bytes of shared memory",
                                        best.warps * (best.stages - 1) * plan.stage_bytes, plan.shared_bytes,
                                        plan.arch.shared_bytes_per_block),
                            {}});
  if (has_tables(plan))
    plan.decisions.push_back(
        {"tables",
         fmt::format("{} copies of an entry", best.copies),
         best.copies == 32 ? "every lane has its own bank" : "shared memory is short: lanes share banks",
         {}});
  return {};
}

void take_team(DecodePlan& plan, const TeamPlan& team) {
  plan.team = team.warps, plan.value_share = team.value_share, plan.column_blocks = team.column_blocks;
  plan.by_warpgroups = team.by_warpgroups;
  plan.shares_bases = plan.by_warpgroups;
  plan.k = team.k, plan.v = team.v;
  plan.scales_probabilities = plan.team > 1 && has_token_scales(plan.v);
  const SectionPlan& keys = plan.k.sections[0];
  plan.has_integer_keys = keys.integers.kind != IntegerKind::none;
  // Of more than eight rows the second product costs more than it is worth, unless K's own rounding is as small.
  plan.query_parts =
      plan.is_exact_query || (plan.column_blocks > 1 && (plan.by_warpgroups || keys.codes.kind != CodeKind::plain)) ? 1
                                                                                                                    : 2;
}

// The first team that has a block shape.
Result<void> choose_team(DecodePlan& plan, const std::vector<TeamPlan>& teams) {
  std::optional<Error> refusal;
  for (const TeamPlan& team : teams) {
    take_team(plan, team);
    const Decision family{"family",
                          "decode",
                          fmt::format("{} query rows fill {} block(s) of 8 columns", plan.rows, plan.column_blocks),
                          {}};
    const std::string shared =
        fmt::format("they share {}: {} sums of the output a lane",
                    plan.value_share > 1 ? "the dimensions of V" : "the query rows", plan.sums());
    plan.decisions = {family};
    if (plan.team > 1)
      plan.decisions.push_back(
          {"team",
           plan.by_warpgroups ? "4 warps, as a warpgroup (wgmma)" : fmt::format("{} warps", plan.team),
           shared,
           {}});
    const auto chosen = choose_shape(plan);
    if (chosen) return {};
    if (!refusal) refusal = chosen.error();
  }
  return tl::unexpected(*refusal);
}

// Whether a lane's registers hold numbers in the order they lie, not codes that were unpacked.
bool is_direct(const SectionPlan& section) { return section.is_masked || section.codes.bits > 8; }

// Inner dimension that each contraction slot of Q holds: [(step * 4 + c) * 4 + i], of integers [(step * 4 + c) * 8 + i].
void order_keys(const SectionPlan& section, std::vector<int>& order) {
  const RunPlan& run = section.run;
  if (section.integers.kind != IntegerKind::none) {
    for (int gr = 0; gr < run.groups * run.runs; ++gr)
      for (int step = 0; step < run.codes / 8; ++step)
        for (int c = 0; c < 4; ++c)
          for (int i = 0; i < 8; ++i)
            order.push_back(run.elements[(gr * run.parts + c) * run.codes + run.slots[step * 8 + i]]);
    return;
  }
  for (int gr = 0; gr < run.groups * run.runs; ++gr)
    for (int step = 0; step < run.codes / 4; ++step)
      for (int c = 0; c < 4; ++c)
        for (int i = 0; i < 4; ++i) {
          const int pair = 2 * step + i / 2;  // register of the fragment; i % 2: its low or high half
          const int code = is_direct(section) ? 2 * pair + i % 2 : run.slots[(pair / 4 * 2 + i % 2) * 4 + pair % 4];
          order.push_back(run.elements[(gr * run.parts + c) * run.codes + code]);
        }
}

// Inner dimension that row (tile, half, g) of O holds: [tile * 16 + half * 8 + g]; of the warp of a team that has the given share.
void order_values(const SectionPlan& section, int share, std::vector<int>& order) {
  const RunPlan& run = section.run;
  for (int gr = 0; gr < run.groups * run.runs; ++gr)
    for (int register_ = 0; register_ < run.codes; ++register_)
      for (int g = 0; g < 8; ++g) {
        const int code = is_direct(section) ? register_ : run.slots[register_];
        order.push_back(run.elements[(gr * run.parts + share * 8 + g) * run.codes + code]);
      }
}

std::string reader(const SectionPlan& section) {
  std::string text;
  if (section.is_masked) return "codes found by the mask of each block";
  constexpr const char* kIntegers[] = {"", "codes as 8-bit integers", "8-bit integers by one permute for four codes",
                                       "8-bit integers by one permute for four codes and their signs",
                                       "8-bit integers by two permutes for four codes"};
  if (section.integers.kind != IntegerKind::none)
    return fmt::format("{}{}", kIntegers[int(section.integers.kind)],
                       section.integers.parts == 2 ? ", in two parts" : "");
  switch (section.codes.kind) {
    case CodeKind::plain:
      text = section.codes.element == Element::f16 ? "as stored"
                                                   : fmt::format("{} rounded to f16", to_string(section.codes.element));
      break;
    case CodeKind::uniform:
      text = "integers to halves by exponent";
      break;
    case CodeKind::table:
      text = section.by_nibbles        ? "two pairs of codes by table"
             : section.codes.bits <= 4 ? "pairs of codes by table"
                                       : "single codes by table";
      break;
  }
  return text + (section.use == ScaleUse::by_value ? ", each times its scale" : "");
}

}  // namespace

Result<DecodePlan> plan_decode(const Problem& problem) {
  DecodePlan plan;
  plan.arch = problem.arch;
  plan.head_dim = problem.head_dim;
  plan.group = problem.q_heads_per_kv;
  plan.query_length = problem.query_length;
  plan.rows = plan.group * plan.query_length;
  plan.column_blocks = (plan.rows + 7) / 8;
  plan.causal = problem.causal;
  // A dense matrix is multiplied once for all blocks, by kernels of its own; the other maps cost a block less than a launch.
  const auto is_cheap = [](const Format& f) {
    return f.rotation.kind != RotationKind::dense && f.residual.projection.kind != RotationKind::dense;
  };
  plan.rotates_queries = problem.fuse && problem.k.is_transformed() && is_cheap(problem.k);
  plan.rotates_output = problem.fuse && problem.v.is_transformed() && is_cheap(problem.v);
  plan.finishes = problem.fuse;
  plan.out_type = problem.v.is_transformed() && !plan.rotates_output ? Element::f32 : problem.out_type;
  plan.q_type = problem.k.is_transformed() && !plan.rotates_queries ? Element::f32 : problem.q_type;
  plan.is_exact_query = !problem.k.is_transformed() && plan.q_type == Element::f16;
  const bool is_planar = problem.layout == Layout::planar;
  const bool by_integers = problem.arch.has("mma_m16n8k32_s8");
  KV_TRY(k, plan_side(problem.k, problem.head_dim, is_planar, true, by_integers));
  KV_TRY(v, plan_side(problem.v, problem.head_dim, is_planar, false));
  plan.k = k;
  plan.v = v;
  for (const SidePlan* side : {&plan.k, &plan.v})
    if (side->inner_dim % 32 != 0)
      return fail(Code::unsupported, fmt::format("the decode family needs rows of a multiple of 32 values; {} has {}",
                                                 side->format.name, side->inner_dim));
  KV_TRY(teams, plan_teams(problem, plan.k, plan.v));
  KV_CHECK(choose_team(plan, teams));
  for (const SectionPlan& section : plan.k.sections) order_keys(section, plan.key_order);
  for (int share = 0; share < plan.value_share; ++share)
    for (const SectionPlan& section : plan.v.sections) order_values(section, share, plan.value_order);
  for (const auto& [what, side] : {std::pair{"k", &plan.k}, std::pair{"v", &plan.v}})
    for (const SectionPlan& section : side->sections)
      plan.decisions.push_back(
          {what,
           side->format.name,
           fmt::format("{}; {}-byte loads, pitch {} of {}{}, {} shared-memory wavefronts each", reader(section),
                       section.is_masked ? 1 : section.run.planes[0].unit, side->pitch, side->row_bytes,
                       side->swizzle > 0 ? " swizzled" : "", side->sections[0].run.bank_cost),
           {}});
  // A fragment read from shared memory for every 16 tokens costs as much as looking up the codes of K does. Formats with several
  // scale groups a row are bound by arithmetic instead, and gain more from a loop that compiles soon.
  // The sum leaves room below the register limit of the block (65,536 over its threads) for what is in flight.
  const int held = plan.has_integer_keys ? plan.k.inner_dim / 8 * plan.column_blocks
                                         : plan.k.inner_dim / 16 * plan.column_blocks * plan.query_parts * 2;
  int value_scales = 0, key_groups = 1;
  for (const SectionPlan& section : plan.v.sections)
    if (section.use == ScaleUse::by_group) value_scales += section.run.groups * plan.subtiles * 2;
  for (const SectionPlan& section : plan.k.sections) key_groups = std::max(key_groups, section.run.groups);
  plan.hold_queries = key_groups == 1 && held + plan.sums() + value_scales <= (plan.warps > 8 ? 72 : 144);
  plan.decisions.push_back(
      {"queries",
       plan.has_integer_keys
           ? fmt::format("16-bit integers in {}", plan.hold_queries ? "registers" : "shared memory")
           : fmt::format("{} fp16 part(s) in {}", plan.query_parts, plan.hold_queries ? "registers" : "shared memory"),
       plan.has_integer_keys   ? "two signed bytes, in a unit that the largest query gives"
       : plan.is_exact_query   ? "f16 queries are exact"
       : plan.query_parts == 1 ? "f32 queries rounded: 2^-12 of each"
                               : "f32 queries as high and low halves",
       {}});
  const auto where = [](bool is_transformed, bool is_fused) {
    return !is_transformed ? "none" : is_fused ? "fused" : "a launch of its own";
  };
  plan.decisions.push_back(
      {"launches",
       fmt::format("rotation of Q {}, merge {}, rotation of the output {}",
                   where(problem.k.is_transformed(), plan.rotates_queries), where(true, plan.finishes),
                   where(problem.v.is_transformed(), plan.rotates_output)),
       problem.fuse ? "what is dense is rotated once for all blocks" : "fuse = false",
       {}});
  return plan;
}

}  // namespace kvjit
