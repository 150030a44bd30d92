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

constexpr int kProbabilityBias =
    8;  // plain V: p <= 2^(8 + slack of 6) stays far from 65504, small p far from subnormals

int round_up(int v, int to) { return (v + to - 1) / to * to; }

void size_stage(SidePlan& side, int tile) {
  constexpr int kSlack = 16;  // a run that starts inside a byte may read past the last row
  const int rows = round_up(tile * side.pitch + kSlack, 16);
  side.scales_at = side.is_planar ? rows : 0;
  side.stage_bytes = rows + (side.is_planar ? round_up(tile * side.scale_row_bytes, 16) : 0);
}

int table_entries(const SectionPlan& s) {
  if (s.is_masked || s.codes.kind != CodeKind::table || s.integers.kind != IntegerKind::none) return 0;
  return s.slot_bits > 0 ? 256 : s.codes.bits <= 4 ? 1 << 2 * s.codes.bits : 1 << s.codes.bits;
}

bool has_tables(const DecodePlan& plan) {
  const auto is_table = [](const SectionPlan& s) { return table_entries(s) > 0; };
  return std::any_of(plan.k.sections.begin(), plan.k.sections.end(), is_table) ||
         std::any_of(plan.v.sections.begin(), plan.v.sections.end(), is_table);
}

// The bits of an index that a code takes up.
int index_bits(const SectionPlan& s) { return s.slot_bits > 0 ? s.slot_bits : s.codes.bits; }
bool is_same_table(const SectionPlan& a, const SectionPlan& b) {
  return a.halves == b.halves && index_bits(a) == index_bits(b) && table_entries(a) == table_entries(b);
}

// Tables of all sections with `copies` copies an entry; sections with the same entries share one. Returns the bytes used.
int place_tables(DecodePlan& plan, int copies) {
  std::vector<SectionPlan*> owners;
  int end = 0;
  for (SidePlan* side : {&plan.k, &plan.v}) {
    side->table_copies = copies, side->table_stride = std::max(copies * 4, 8);  // an entry may have two words
    for (SectionPlan& section : side->sections) {
      section.owns_table = false, section.table_at = 0;
      if (table_entries(section) == 0) continue;
      const auto same = std::find_if(owners.begin(), owners.end(),
                                     [&](const SectionPlan* other) { return is_same_table(*other, section); });
      section.owns_table = same == owners.end();
      section.table_at = section.owns_table ? end : (*same)->table_at;
      if (!section.owns_table) continue;
      owners.push_back(&section);
      end += table_entries(section) * side->table_stride;
    }
  }
  return end;
}

// Blocks with masks of their own: long code, many registers.
bool is_masked(const DecodePlan& plan) { return plan.k.sections[0].is_masked || plan.v.sections[0].is_masked; }

int layout_shared(DecodePlan& plan, const BlockShape& shape) {
  plan.warps = shape.warps, plan.stages = shape.stages, plan.tile = shape.tile;
  size_stage(plan.k, shape.tile);
  size_stage(plan.v, shape.tile);
  const int tables = place_tables(plan, shape.copies);
  plan.order_at = round_up(tables, 128);
  plan.integer_table_at = plan.order_at + plan.v.inner_dim * 2;
  plan.queries_at = round_up(plan.integer_table_at + (int(plan.k.sections[0].integers.table.size()) + 1) * 4, 128);
  const SectionPlan& keys = plan.k.sections[0];
  const int columns = plan.column_blocks * 8;
  plan.sums_at = plan.queries_at + plan.k.inner_dim * columns * (plan.has_integer_keys ? 2 : 2 * plan.query_parts);
  plan.sum_groups = keys.adds_minima || keys.integers.has_half ? keys.run.groups : 0;
  plan.largest_at = round_up(plan.sums_at + plan.sum_groups * columns * 4, 16);
  plan.ring_at = round_up(plan.largest_at + (plan.scales_queries ? columns * 4 : 0), 16);
  plan.stage_bytes = plan.k.stage_bytes + plan.v.stage_bytes;
  const int ring_end = plan.ring_at + shape.stages * shape.warps * plan.stage_bytes;
  plan.epilogue_at = plan.queries_at;  // behind the tables, which the next part needs
  const int epilogue_end = plan.epilogue_at + (plan.finishes ? plan.rows * plan.v.inner_dim * 4 : 0) +
                           round_up(shape.warps * plan.rows * 8, 16) +
                           shape.warps * plan.rows * (plan.v.inner_dim + 4) * 4;
  plan.shared_bytes = std::max(ring_end, epilogue_end);
  return plan.shared_bytes;
}

int most_warps(const DecodePlan& plan) {  // 65,536 registers a block: 255 or 168 a thread
  // V that lies as it is comes in loads of 16 bytes, and beside K of several scales a row 168 do not hold them.
  const SectionPlan &k = plan.k.sections[0], &v = plan.v.sections[0];
  const bool is_wide = v.codes.bits > 8 && k.codes.bits <= 8 && k.run.groups > 1;
  return plan.column_blocks * plan.v.inner_dim / 4 > 32 || is_masked(plan) || is_wide ? 8 : 12;
}

// Why a block cannot have a shape; "" if it can.
std::string misfit(DecodePlan& plan, const BlockShape& shape) {
  if (shape.warps > most_warps(plan))
    return fmt::format("{} warps leave too few registers a thread for {} query rows over {} values: at most {}",
                       shape.warps, plan.rows, plan.v.inner_dim, most_warps(plan));
  if (!has_tables(plan) && shape.copies > 1)
    return fmt::format("{} copies of tables that {} and {} do not have", shape.copies, plan.k.format.name,
                       plan.v.format.name);
  if (const int bytes = layout_shared(plan, shape); bytes > plan.arch.shared_bytes_per_block)
    return fmt::format("{} take {} bytes of shared memory, {} has {}", to_string(shape), bytes, plan.arch.name,
                       plan.arch.shared_bytes_per_block);
  return "";
}

// Rows copied by chunks meet in lines of memory. What the block leaves of shared memory is the L1, where lines stay between the
// copies that touch them: with too little of it they are gone by then, and the way through it only costs.
bool leaves_room(const DecodePlan& plan) { return plan.shared_bytes <= 0.6 * plan.arch.shared_bytes_per_block; }

// As many bytes in flight and as many warps as fit, tables without bank conflicts if they can be had: the best first.
std::vector<BlockShape> fitting_shapes(DecodePlan plan) {
  // Bytes an SM should have under way: its share of the bandwidth, times the latency. More waits in queues, where some SMs are served
  // before others: on an H200 calls took 2 to 3 % longer with twice as much, at any size.
  constexpr double kEnoughInFlight = 24 * 1024;
  const bool by_chunks = plan.k.is_skewed || plan.v.is_skewed;
  std::vector<std::pair<double, BlockShape>> scored;
  for (int copies : has_tables(plan) ? std::vector<int>{32, 8, 4, 2, 1} : std::vector<int>{1})
    for (int tile : {32, 16})
      for (int warps : {12, 8, 6, 4, 2, 1})
        for (int stages : {4, 3, 2}) {
          const BlockShape shape{warps, stages, tile, copies, {}, {}};
          if (!misfit(plan, shape).empty()) continue;
          const double in_flight = double(warps) * (stages - 1) * plan.stage_bytes;
          const double score = 4 * std::min(in_flight / kEnoughInFlight, 1.0) +
                               (by_chunks && leaves_room(plan) ? 1.5 : 0) + 3.0 * std::min(warps, 8) / 8 +
                               3.0 * warps / 12 +
                               (copies == 32  ? 2
                                : copies == 8 ? 1
                                              : copies / 16.0) +
                               (tile == 32 ? 0.5 : 0) - stages * 0.01;
          scored.emplace_back(score, shape);
        }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<BlockShape> shapes;
  for (const auto& [score, shape] : scored) shapes.push_back(shape);
  return shapes;
}

// The measured shape, or the planner's own. One that was measured for this very problem, or asked for, must fit.
Result<BlockShape> choose_shape(DecodePlan& plan, const Tuning& tuning) {
  using Match = Tuning::Match;
  Decision decision{"tuning", to_string(tuning.match), tuning.why, {}};
  BlockShape chosen = tuning.shape;
  const bool is_own = tuning.is_same_shape || tuning.match == Match::asked;
  std::string why = tuning.match == Match::none ? "" : misfit(plan, chosen);
  if (!is_own && chosen.copies == 1 && has_tables(plan)) why = "it was measured without tables";
  if (chosen.warps > 0 && !why.empty()) {
    if (is_own)
      return fail(tuning.match == Match::asked ? Code::unsupported : Code::bad_input,
                  "this shape of blocks does not fit: " + why, tuning.where,
                  {"`kvjit bench --tune` measures the shapes that do"});
    decision = {"tuning", to_string(Match::none), "the nearest measured shape does not fit", {tuning.why + ": " + why}};
    chosen = {};
  }
  if (chosen.warps == 0) {
    const std::vector<BlockShape> shapes = fitting_shapes(plan);
    if (shapes.empty())
      return fail(Code::unsupported,
                  fmt::format("no block shape of the decode family fits {} bytes of shared memory on {}",
                              plan.arch.shared_bytes_per_block, plan.arch.name),
                  {}, {"a smaller attention.head_dim or fewer bits need less"});
    chosen = shapes.front();
  }
  layout_shared(plan, chosen);
  plan.decisions.push_back(decision);
  plan.decisions.push_back({"block",
                            fmt::format("{} warps x {} stages x {} tokens", chosen.warps, chosen.stages, chosen.tile),
                            fmt::format("{} bytes in flight, {} of {} bytes of shared memory",
                                        chosen.warps * (chosen.stages - 1) * plan.stage_bytes, plan.shared_bytes,
                                        plan.arch.shared_bytes_per_block),
                            {}});
  if (has_tables(plan))
    plan.decisions.push_back({"tables",
                              fmt::format("{} copies of an entry", chosen.copies),
                              chosen.copies == 32                         ? "every lane has its own bank"
                              : decision.choice == to_string(Match::none) ? "shared memory is short: lanes share banks"
                                                                          : "lanes share banks",
                              {}});
  return chosen;
}

// Whether a lane's registers hold numbers in the order they lie, not codes that were unpacked.
bool is_direct(const SectionPlan& section) { return section.is_masked || section.codes.bits > 8; }

// Whether K's products have one rounding, that of its entries to halves: then there is room for that of Q.
bool is_rounded_once(const SidePlan& keys) {
  return std::all_of(keys.sections.begin(), keys.sections.end(), [](const SectionPlan& s) {
    return s.codes.kind == CodeKind::table && s.use != ScaleUse::by_value;
  });
}

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

// The slot whose values stand in a register of V: look-ups give those of even slots of a word, then those of odd ones.
int slot_of(const SectionPlan& section, int register_) {
  if (section.slot_bits == 0) return register_;
  const int per_word = Slots{section.slot_bits}.per_word(), word = register_ / per_word * per_word,
            at = register_ % per_word;
  return word + at % (per_word / 2) * 2 + at / (per_word / 2);
}

// Inner dimension that row (tile, half, g) of O holds: [tile * 16 + half * 8 + g].
void order_values(const SectionPlan& section, std::vector<int>& order) {
  const RunPlan& run = section.run;
  for (int gr = 0; gr < run.groups * run.runs; ++gr)
    for (int register_ = 0; register_ < run.codes; ++register_)
      for (int g = 0; g < 8; ++g) {
        const int code = is_direct(section) ? register_ : run.slots[slot_of(section, register_)];
        order.push_back(run.elements[(gr * run.parts + g) * run.codes + code]);
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
      text = section.slot_bits == 2    ? "two pairs of codes by table"
             : section.codes.bits <= 4 ? "pairs of codes by table"
                                       : "single codes by table";
      break;
  }
  return text + (section.use == ScaleUse::by_value ? ", each times its scale" : "");
}

// Everything but the shape of a block and what depends on it.
Result<DecodePlan> begin_plan(const Problem& problem) {
  DecodePlan plan;
  plan.arch = problem.arch;
  plan.head_dim = problem.head_dim;
  plan.group = problem.q_heads_per_kv;
  plan.query_length = problem.query_length;
  plan.rows = plan.group * plan.query_length;
  plan.column_blocks = (plan.rows + 7) / 8;
  plan.causal = problem.causal;
  plan.sparse_v = problem.sparse_v;
  plan.appends = problem.append;
  // A dense matrix is multiplied once for all blocks, by kernels of its own; the other maps cost a block less than a launch.
  const auto is_cheap = [](const Format& f) {
    return f.rotation.kind != RotationKind::dense && f.residual.projection.kind != RotationKind::dense;
  };
  plan.rotates_queries = problem.fuse && problem.k.is_transformed() && is_cheap(problem.k);
  plan.rotates_output = problem.fuse && problem.v.is_transformed() && is_cheap(problem.v);
  plan.finishes = problem.fuse;
  plan.out_type = problem.v.is_transformed() && !plan.rotates_output ? Element::f32 : problem.out_type;
  plan.q_type = problem.k.is_transformed() && !plan.rotates_queries ? Element::f32 : problem.q_type;
  const bool is_planar = problem.layout == Layout::planar;
  const bool by_integers = problem.arch.has("mma_m16n8k32_s8");
  KV_TRY(k, plan_side(problem.k, problem.head_dim, is_planar, true, by_integers));
  KV_TRY(v, plan_side(problem.v, problem.head_dim, is_planar, false));
  plan.k = k;
  plan.v = v;
  plan.has_integer_keys = plan.k.sections[0].integers.kind != IntegerKind::none;
  // A query that is rounded to halves as the entries are adds no error of another order; a second part of it would double the
  // products.
  const bool is_half = !problem.k.is_transformed() && plan.q_type == Element::f16;
  plan.query_parts = is_half || is_rounded_once(plan.k) ? 1 : 2;
  plan.scales_queries = plan.has_integer_keys || (plan.query_parts == 1 && !is_half);
  for (const SidePlan* side : {&plan.k, &plan.v})
    if (side->inner_dim % 32 != 0)
      return fail(Code::unsupported, fmt::format("the decode family needs rows of a multiple of 32 values; {} has {}",
                                                 side->format.name, side->inner_dim));
  // Output sums live in registers: a quarter of the inner dimension for every 8 rows; at most 64, or 128 for a single block of rows.
  const int most_blocks = plan.v.inner_dim > 256 ? 128 * 4 / plan.v.inner_dim : 64 * 4 / plan.v.inner_dim;
  if (plan.rows > most_blocks * 8)
    return fail(
        Code::unsupported,
        fmt::format("the decode family serves at most {} query rows over {} values a row of {}; q_heads_per_kv "
                    "{} x query_length {} is {}",
                    most_blocks * 8, plan.v.inner_dim, problem.v.name, plan.group, plan.query_length, plan.rows),
        {}, {most_blocks == 0 ? "head_dim up to 512 works" : "lower attention.query_length"});
  plan.decisions.push_back({"family",
                            "decode",
                            fmt::format("{} query rows fill {} block(s) of 8 columns", plan.rows, plan.column_blocks),
                            {}});
  return plan;
}

}  // namespace

Result<std::vector<BlockShape>> decode_shapes(const Problem& problem) {
  KV_TRY(plan, begin_plan(problem));
  return fitting_shapes(plan);
}

Result<DecodePlan> plan_decode(const Problem& problem, const Tuning& tuning) {
  KV_TRY(plan, begin_plan(problem));
  KV_TRY(shape, choose_shape(plan, tuning));
  for (SidePlan* side : {&plan.k, &plan.v}) side->keeps_lines = side->is_skewed && leaves_room(plan);
  // Two subtiles together keep more independent work in flight, where registers allow.
  const int most_sums = plan.warps > 8 ? 32 : 64;
  plan.subtiles = plan.tile == 32 && !is_masked(plan) && plan.column_blocks * plan.v.inner_dim / 4 <= most_sums ? 2 : 1;
  plan.subtiles = shape.subtiles.value_or(plan.subtiles);
  for (const SectionPlan& section : plan.k.sections) order_keys(section, plan.key_order);
  for (const SectionPlan& section : plan.v.sections) order_values(section, plan.value_order);
  for (const auto& [what, side] : {std::pair{"k", &plan.k}, std::pair{"v", &plan.v}})
    for (const SectionPlan& section : side->sections)
      plan.decisions.push_back(
          {what,
           side->format.name,
           fmt::format("{}; {}-byte loads, pitch {} of {}{}{}, {} shared-memory wavefronts each", reader(section),
                       section.is_masked ? 1 : section.run.planes[0].unit, side->pitch, side->row_bytes,
                       side->swizzle > 0 ? " swizzled" : "", side->keeps_lines ? " by way of the L1" : "",
                       side->sections[0].run.bank_cost),
           {}});
  // A fragment read from shared memory for every 16 tokens costs as much as looking up the codes of K does. Formats with several
  // scale groups a row are bound by arithmetic instead, and gain more from a loop that compiles soon.
  // The sum leaves room below the register limit of the block (65,536 over its threads) for what is in flight.
  const int held = plan.has_integer_keys ? plan.k.inner_dim / 8 * plan.column_blocks
                                         : plan.k.inner_dim / 16 * plan.column_blocks * plan.query_parts * 2;
  const int sums = plan.column_blocks * plan.v.inner_dim / 4;
  int value_scales = 0, key_groups = 1;
  for (const SectionPlan& section : plan.v.sections)
    if (section.use == ScaleUse::by_group) value_scales += section.run.groups * plan.subtiles * 2;
  for (const SectionPlan& section : plan.k.sections) key_groups = std::max(key_groups, section.run.groups);
  plan.hold_queries = key_groups == 1 && held + sums + value_scales <= (plan.warps > 8 ? 72 : 144);
  plan.hold_queries = shape.hold_queries.value_or(plan.hold_queries);
  plan.decisions.push_back(
      {"queries",
       plan.has_integer_keys
           ? fmt::format("16-bit integers in {}", plan.hold_queries ? "registers" : "shared memory")
           : fmt::format("{} fp16 part(s) in {}", plan.query_parts, plan.hold_queries ? "registers" : "shared memory"),
       plan.has_integer_keys   ? "two signed bytes, in a unit that the largest query gives"
       : plan.scales_queries   ? "rounded as the entries of K's table are, in a unit that the largest query gives"
       : plan.query_parts == 1 ? "f16 queries are exact"
                               : "f32 queries as high and low halves",
       {}});
  if (plan.sparse_v > 0)
    plan.decisions.push_back(
        {"sparse v",
         fmt::format("below {} of the largest", plan.sparse_v),
         fmt::format(
             "V of {} tokens is passed over where every row gives each of them less; error at most their weight, which "
             "stays in the denominator, times their largest V",
             16 * plan.subtiles),
         {}});
  if (plan.appends)
    plan.decisions.push_back({"append",
                              fmt::format("the newest {} token(s)", plan.query_length),
                              "stored by the block that has their tile, before it reads it; lengths count them",
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
