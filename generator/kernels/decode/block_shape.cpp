// choose_block: chooses the warp team that adds up the output of a decode block, and the block's shape (warps, stages,
// tile, copies of tables). A shape is possible if its shared memory (layout_shared) and its registers (most_warps)
// fit. shapes_of ranks the possible shapes; a measured shape (tuned_shape.hpp) goes first.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

int round_up(int v, int to) { return (v + to - 1) / to * to; }

constexpr int kSlack = 16;  // bytes that a lane read, if it starts inside a byte, may read behind the last row

// Entries of a section's fp16 table; 0 if it has none.
int table_entries(const SectionPlan& s) {
  if (s.codes.is_vector()) return kVectorEntries;
  if (s.is_masked || s.codes.kind != CodeKind::table || s.integers.kind != IntegerKind::none) return 0;
  if (s.codes.is_trellis()) return 1 << (s.codes.bits + (s.at_once - 1) * s.codes.step_bits);
  return s.code_lane_bits > 0 ? 256 : s.codes.bits <= 4 ? 1 << 2 * s.codes.bits : 1 << s.codes.bits;
}

bool has_tables(const DecodePlan& plan) {
  const auto is_table = [](const SectionPlan& s) { return table_entries(s) > 0; };
  return std::any_of(plan.k.sections.begin(), plan.k.sections.end(), is_table) ||
         std::any_of(plan.v.sections.begin(), plan.v.sections.end(), is_table);
}

// Bits of a table's index that one code takes.
int index_bits(const SectionPlan& s) { return s.code_lane_bits > 0 ? s.code_lane_bits : s.codes.bits; }
bool is_same_table(const SectionPlan& a, const SectionPlan& b) {
  return a.halves == b.halves && index_bits(a) == index_bits(b) && table_entries(a) == table_entries(b);
}

// Places the tables of all sections, with `copies` copies of each entry. Sections with the same entries share a table.
// Returns the bytes used.
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

// Whether a side has blocks that store a mask. Their code is long and takes many registers.
bool is_masked(const DecodePlan& plan) { return plan.k.sections[0].is_masked || plan.v.sections[0].is_masked; }

// Lays out the shared memory of a block, and returns its size in bytes:
//
//   tables        tables of fp16 entries
//   scheduler     the tile scheduler's state, 48 bytes, saved during the loop
//   order         value_order, two bytes a dimension of V; then the integer table of K
//   reference     reference maxima, for teams that share them; then the rows of features; then the barriers of copies
//   queries       fragments of Q; then Q's sums over the scale groups of K; then the units of the rows
//   teams         row_max of each warp, and probabilities
//   ring          the stages
//
// At the end of a KV split the warps merge in the space from `queries` on, because the loop over tiles no longer needs
// it.
int layout_shared(DecodePlan& plan, const BlockShape& shape, int probability_buffers) {
  plan.probability_buffers = probability_buffers;
  plan.warps = shape.warps, plan.stages = shape.stages, plan.tile = shape.tile;
  if (plan.heads > 1) place_token_heads(plan.k, true, shape.tile), place_token_heads(plan.v, false, shape.tile);
  size_stage(plan.k, shape.tile);
  size_stage(plan.v, shape.tile);
  if (plan.v.in_keys) plan.v.stage_bytes = std::exchange(plan.k.stage_bytes, 0);
  if (plan.heads > 1) plan.k.stage_bytes = plan.v.stage_bytes = std::max(plan.k.stage_bytes, plan.v.stage_bytes);
  const int tables = place_tables(plan, shape.copies);
  plan.scheduler_at = round_up(tables, 128);
  plan.row_count_at = plan.scheduler_at + 48;
  plan.order_at = plan.row_count_at + (plan.varlen ? 16 : 0);
  plan.integer_table_at = plan.order_at + plan.v.rotated_dim * 2;
  plan.reference_max_at = round_up(plan.integer_table_at + (int(plan.k.sections[0].integers.table.size()) + 1) * 4,
                                   16);  // the warps read it while they merge, so it is before what that overwrites
  plan.feature_rows_at =
      round_up(plan.reference_max_at + (plan.shares_reference_max ? shape.warps * plan.column_blocks * 32 : 0), 16);
  const int feature_rows =
      plan.features.any() ? plan.heads * plan.column_blocks * 8 * feature_row_bytes(plan.features.has_hook()) + 16 : 0;
  plan.barriers_at = round_up(plan.feature_rows_at + feature_rows, 16);  // of copies; unused while the warps merge
  const int of_stream = plan.heads > 1 || plan.k.by_bulk ? shape.stages * 16 + (plan.k.by_bulk ? 32 : 0) : 0;
  plan.queries_at = round_up(plan.barriers_at + plan.streams() * of_stream, 128);
  const SectionPlan& keys = plan.k.sections[0];
  const int columns = plan.column_blocks * plan.heads * 8, rows = plan.rows * plan.heads;
  plan.sums_at = plan.queries_at + plan.k.rotated_dim * columns * (plan.has_integer_keys ? 2 : 2 * plan.query_terms);
  plan.sum_groups = keys.adds_minima || keys.integers.sum_factor != 0 ? keys.reads.groups : 0;
  plan.units_at = round_up(plan.sums_at + plan.sum_groups * columns * 4, 16);
  plan.row_max_at = round_up(plan.units_at + (plan.scales_queries ? columns * 4 : 0), 16);
  plan.probabilities_at = plan.ring_at = plan.row_max_at;
  if (plan.team > 1) {
    plan.probabilities_at = round_up(plan.row_max_at + shape.warps * (columns + 1) * 4, 128);
    plan.ring_at = plan.probabilities_at + probability_buffers * shape.warps * shape.tile * columns * 2;
  }
  plan.ring_at = round_up(plan.ring_at, kLine);
  plan.stage_bytes = plan.k.stage_bytes + plan.v.stage_bytes;
  const int ring_end =
      plan.ring_at + shape.stages * plan.streams() * plan.stage_bytes / (plan.heads > 1 ? 2 : 1) + kSlack;
  plan.epilogue_at = plan.queries_at;  // behind the tables, which the block's next KV split needs
  const int epilogue_end = plan.epilogue_at + (plan.fuses_merge ? plan.rows * plan.v.rotated_dim * 4 : 0) +
                           round_up(shape.warps * plan.rows * 8, 16) +
                           plan.streams() / plan.team * rows * (plan.v.rotated_dim + 4) * 4;
  const int append_end = plan.ring_at + shape.warps * plan.append_bytes;  // before the first stage is asked for
  plan.shared_bytes = std::max({ring_end, append_end, epilogue_end});
  return plan.shared_bytes;
}

// The same with two buffers of probabilities, if they fit.
int layout_shared(DecodePlan& plan, const BlockShape& shape) {
  if (plan.by_warpgroups && layout_shared(plan, shape, 2) <= plan.arch.shared_bytes_per_block) return plan.shared_bytes;
  return layout_shared(plan, shape, 1);
}

// The most warps whose registers suffice. An SM has 65,536: 255 a thread for 8 warps, 168 for 12, 128 for 16. A lane of
// a team holds, besides addresses, the sums of the output; by warpgroups also scores (twice where K has scale groups),
// denominators and codes of K; else 12 registers for each block of columns and subtile.
int most_warps(const DecodePlan& plan, int tile) {
  const SectionPlan &k = plan.k.sections[0], &v = plan.v.sections[0];
  if (is_masked(plan) || (plan.team > 1 && plan.features.any())) return 8;
  if (plan.by_warpgroups) {
    const bool has_groups = k.reads.groups > 1 || plan.k.sections.size() > 1 || !plan.scales_probabilities;
    const int registers = plan.sums() + plan.column_blocks * (has_groups ? 14 : 6) + k.reads.codes;
    return registers <= 88 ? 16 : registers <= 104 ? 12 : 8;
  }
  if (plan.team > 1) return plan.sums() + plan.column_blocks * 12 * tile / 16 > 104 ? 8 : 12;
  // V without codes is loaded by 16 bytes. With a K of several scale groups a row, 168 registers do not hold that.
  const bool is_wide = v.codes.is_wide() && !k.codes.is_wide() && k.reads.groups > 1;
  if (plan.heads > 1) return plan.sums() > 32 ? 8 : 16;
  return plan.sums() > 32 || is_wide ? 8 : 12;
}

// The reason why a block cannot have a shape, or "" if it can.
std::string misfit(DecodePlan& plan, const BlockShape& shape) {
  if (const int most = most_warps(plan, shape.tile); shape.warps > most)
    return fmt::format("{} warps leave too few registers a thread for {} query rows over {} values: at most {}",
                       shape.warps, plan.rows, plan.v.rotated_dim, most);
  if (shape.warps % plan.heads != 0)
    return fmt::format("{} warps are not as many for each of the {} heads of a token", shape.warps, plan.heads);
  if (plan.heads > 1 && shape.subtiles && *shape.subtiles * 16 != shape.tile)
    return fmt::format("heads of a token take a tile at once, so {} subtile(s) of a tile of {} are not possible",
                       *shape.subtiles, shape.tile);
  if (shape.warps % plan.team != 0)
    return fmt::format("{} warps are no whole teams of {}, which {} query rows take", shape.warps, plan.team,
                       plan.rows);
  if (plan.team > 1 && shape.tile == 32 && (plan.by_warpgroups || plan.column_blocks > 2))
    return fmt::format("teams score tiles at once, and for {} query rows those are of 16 tokens", plan.rows);
  if (plan.team > 1 && shape.subtiles && *shape.subtiles * 16 != shape.tile)
    return fmt::format("teams take a tile at once, so {} subtile(s) of a tile of {} are not possible", *shape.subtiles,
                       shape.tile);
  if (!has_tables(plan) && shape.copies > 1)
    return fmt::format("{} copies of tables that {} and {} do not have", shape.copies, plan.k.format.name,
                       plan.v.format.name);
  if (const int bytes = layout_shared(plan, shape); bytes > plan.arch.shared_bytes_per_block)
    return fmt::format("{} take {} bytes of shared memory, {} has {}", to_string(shape), bytes, plan.arch.name,
                       plan.arch.shared_bytes_per_block);
  return "";
}

// Whether the L1 helps unaligned rows. Rows that are copied by chunks and not by whole sectors (SidePlan::slot_align
// 16) touch the same sectors and lines of memory. The L1 has the shared memory that the block leaves free, and holds a
// line between the copies that touch it. If the L1 is too small, lines are evicted before, and it only costs time.
bool leaves_l1_cache(const DecodePlan& plan) { return plan.shared_bytes <= 0.6 * plan.arch.shared_bytes_per_block; }

// Numbers of stages to try. A stage of token-major heads holds one side of a tile, K or V, and one stage is empty at
// any time (templates/kernels/decode/token_heads.cuh).
std::vector<int> stage_counts(const DecodePlan& plan) {
  return plan.heads > 1 ? std::vector<int>{5, 6, 4} : std::vector<int>{4, 3, 2};
}
// Bytes that a block has asked for and not received yet.
int bytes_in_flight(const DecodePlan& plan) {
  return plan.streams() *
         (plan.heads > 1 ? (plan.stages - 2) * plan.k.stage_bytes : (plan.stages - 1) * plan.stage_bytes);
}
std::vector<int> warp_counts(const DecodePlan& plan) {
  constexpr int kMost = 16;
  if (plan.heads == 1) return {16, 12, 8, 6, 4, 2, 1};
  std::vector<int> counts;
  for (int warps = kMost / plan.heads * plan.heads; warps > 0; warps -= plan.heads) counts.push_back(warps);
  return counts;
}

// The shapes that fit, the best first: with many bytes in flight, many warps, and tables without bank conflicts.
std::vector<BlockShape> shapes_of(DecodePlan plan) {
  const double enough_in_flight = plan.arch.timing.bytes_in_flight;
  const bool by_chunks = plan.heads == 1 && (plan.k.is_misaligned || plan.v.is_misaligned);
  const bool by_lines = by_chunks && (plan.page_tokens > 0 || plan.k.slot_align == 16 || plan.v.slot_align == 16);
  std::vector<std::pair<double, BlockShape>> scored;
  for (int copies : has_tables(plan) ? std::vector<int>{32, 8, 4, 2, 1} : std::vector<int>{1})
    for (int tile : {32, 16})
      for (int warps : warp_counts(plan))
        for (int stages : stage_counts(plan)) {
          const BlockShape shape{warps, stages, tile, copies, {}, {}};
          if (!misfit(plan, shape).empty()) continue;
          const double in_flight = bytes_in_flight(plan);
          const double too_many = by_chunks ? std::max(in_flight / enough_in_flight - 2, 0.0) : 0;
          const double score = 4 * std::min(in_flight / enough_in_flight, 1.0) - too_many +
                               (by_lines && leaves_l1_cache(plan) ? 1.5 : 0) + 3.0 * std::min(warps, 8) / 8 +
                               3.0 * warps / 12 +
                               (copies == 32  ? 2
                                : copies == 8 ? 1
                                              : copies / 16.0) +
                               (tile == 32 ? 0.5 : 0) - (plan.heads > 1 ? std::abs(stages - 5) : stages) * 0.01;
          scored.emplace_back(score, shape);
        }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<BlockShape> shapes;
  for (const auto& [score, shape] : scored) shapes.push_back(shape);
  return shapes;
}

// Lets one look-up find the states of `at_once` neighbouring codes of a trellis. False if there is no trellis that is
// small enough for two: tables have 1024 entries at most.
bool look_up_states(DecodePlan& plan, int at_once) {
  constexpr int kMostBits = 10;
  bool is_possible = false;
  for (SidePlan* side : {&plan.k, &plan.v})
    for (SectionPlan& section : side->sections)
      if (section.codes.is_trellis() && section.codes.bits + section.codes.step_bits <= kMostBits)
        section.at_once = at_once, is_possible = true;
  return is_possible;
}
// Looks up two states at once where each lane can have a copy of the larger table, and the block as many warps as with
// the smaller one: with fewer copies bank conflicts cost what that saves.
void choose_states_at_once(DecodePlan& plan, const BlockShape& shape) {
  constexpr int kCopies = 32;
  if (!look_up_states(plan, 1)) return;
  const int warps = shape.warps == 0 ? shapes_of(plan).front().warps : shape.warps;
  look_up_states(plan, 2);
  const std::vector<BlockShape> shapes = shape.warps == 0 ? shapes_of(plan) : std::vector<BlockShape>{};
  const BlockShape& chosen = shapes.empty() ? shape : shapes.front();
  if (chosen.copies != kCopies || chosen.warps < warps || !misfit(plan, chosen).empty()) look_up_states(plan, 1);
}

// Takes the measured shape, or the planner's own. A shape that was measured for this very problem, or that the caller
// asked for, must fit.
Result<BlockShape> choose_shape(DecodePlan& plan, const Tuning& tuning) {
  using Match = Tuning::Match;
  Decision decision{"tuning", to_string(tuning.match), tuning.why, {}};
  BlockShape chosen = tuning.shape;
  choose_states_at_once(plan, chosen);
  // Shapes were measured without features, which need some shared memory.
  const bool is_featured = plan.features.any() && tuning.match != Match::none && tuning.match != Match::requested;
  const bool is_own = (tuning.is_same_shape && !is_featured) || tuning.match == Match::requested;
  if (is_featured) decision.why += ", without features";
  std::string why = tuning.match == Match::none ? "" : misfit(plan, chosen);
  if (!is_own && chosen.copies == 1 && has_tables(plan)) why = "it was measured without tables";
  if (chosen.warps > 0 && !why.empty()) {
    if (is_own)
      return fail(tuning.match == Match::requested ? Code::unsupported : Code::bad_input,
                  "this shape of blocks does not fit: " + why, tuning.where,
                  {"`kvjit bench --tune` measures the shapes that do"});
    const char* const what = is_featured && tuning.is_same_shape ? "the measured shape does not fit beside the features"
                                                                 : "the nearest measured shape does not fit";
    decision = {"tuning", to_string(Match::none), what, {decision.why + ": " + why}};
    chosen = {};
  }
  if (chosen.warps == 0) {
    const std::vector<BlockShape> shapes = shapes_of(plan);  // choose_team has seen to it that there are some
    chosen = shapes.front();
  }
  layout_shared(plan, chosen);
  // Two subtiles at once have more independent instructions, if there are registers for them.
  const int most_sums = plan.warps > 8 ? 32 : 64;
  plan.subtiles = plan.tile == 32 && !is_masked(plan) && plan.sums() <= most_sums ? 2 : 1;
  plan.subtiles = plan.team > 1 || plan.heads > 1 ? plan.tile / 16 : chosen.subtiles.value_or(plan.subtiles);
  for (SidePlan* side : {&plan.k, &plan.v}) {
    align_slots(*side, plan.page_tokens);
    side->caches_in_l1 = side->slot_align == 16 && plan.heads == 1 && leaves_l1_cache(plan);
  }
  plan.decisions.push_back(decision);
  plan.decisions.push_back({"block",
                            fmt::format("{} warps x {} stages x {} tokens", chosen.warps, chosen.stages, chosen.tile),
                            fmt::format("{} bytes in flight, {} of {} bytes of shared memory", bytes_in_flight(plan),
                                        plan.shared_bytes, plan.arch.shared_bytes_per_block),
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

// Whether K's entries are rounded to fp16 once, and no scale is multiplied to them in fp16. Then Q may be rounded to
// fp16 too.
bool is_rounded_once(const SidePlan& keys) {
  return std::all_of(keys.sections.begin(), keys.sections.end(), [](const SectionPlan& s) {
    return s.codes.kind == CodeKind::table && s.use != ScaleUse::by_value;
  });
}

// Does each token of V have one scale?
bool has_token_scales(const SidePlan& v) {
  const SectionPlan& section = v.sections[0];
  return v.sections.size() == 1 && section.use == ScaleUse::by_group && section.reads.groups == 1 &&
         section.reads.blocks == 1 && !v.format.scale.renormalise;
}

// Sets the team of a plan, and what follows from it: how Q is split and scaled, and where V's scales are applied.
void take_team(DecodePlan& plan, const TeamPlan& team) {
  plan.team = team.warps, plan.value_share = team.value_share, plan.column_blocks = team.column_blocks;
  plan.by_warpgroups = plan.shares_reference_max = team.by_warpgroups;
  plan.k = team.k, plan.v = team.v;
  plan.scales_probabilities = plan.team > 1 && has_token_scales(plan.v);
  const SectionPlan& keys = plan.k.sections[0];
  plan.has_integer_keys = keys.integers.kind != IntegerKind::none;
  // If K's entries are rounded to fp16, the rounding of Q adds an error of the same order, and a second fp16 number
  // for each element of Q would double the products. For many query rows that costs too much, unless K is exact.
  const bool is_half = !plan.k.format.is_transformed() && plan.q_type == Element::f16;
  // Queries of bf16 have 8 bits, and a rounding to 11 bits adds little to theirs.
  const bool is_coarse =
      plan.k.format.has_segments() && !plan.k.format.is_transformed() && plan.q_type == Element::bf16;
  const bool are_many = plan.by_warpgroups || (plan.team > 1 && (keys.codes.kind != CodeKind::plain || is_coarse));
  const int halves = is_half || are_many || is_rounded_once(plan.k) ? 1 : 2;
  // Bfloats have 8 bits, f16 has 11 and f32 24. For many query rows two are enough, as one fp16 number is.
  const Element of_queries = plan.k.format.is_transformed() ? Element::f32 : plan.q_type;
  const int bfloats = of_queries == Element::bf16 ? 1 : of_queries == Element::f16 || plan.by_warpgroups ? 2 : 3;
  plan.query_terms = 1, plan.scales_queries = plan.has_integer_keys;
  for (SectionPlan& section : plan.k.sections) {
    const bool leaves_halves = section.is_wide() && section.use != ScaleUse::by_value;
    section.as_bfloats = leaves_halves && plan.arch.has("bf16");
    section.divides_elements = leaves_halves && !section.as_bfloats;
    section.query_terms = section.as_bfloats ? bfloats : halves;
    plan.query_terms = std::max(plan.query_terms, section.query_terms);
    plan.scales_queries |= !section.as_bfloats && !is_half;
  }
}

Decision decision_of(const DecodePlan& plan) {
  return {"team",
          plan.by_warpgroups ? "4 warps, as a warpgroup (wgmma)" : fmt::format("{} warps", plan.team),
          fmt::format("they share {}: {} sums of the output a lane",
                      plan.value_share > 1 ? "the dimensions of V" : "the query rows", plan.sums()),
          {}};
}

}  // namespace

void size_stage(SidePlan& side, int tile, int line) {
  if (side.heads > 1) {  // unaligned loads may read two chunks of 16 bytes behind the last row
    side.scales_at = 0, side.stage_bytes = round_up(side.eighth_at(8) + 2 * kSlack, line);
    return;
  }
  const int rows = round_up(tile * side.pitch, line);
  side.scales_at = side.is_planar ? rows : 0;
  side.stage_bytes = rows + (side.is_planar ? round_up(tile * side.scale_row_bytes, line) : 0);
}

namespace {

// Chooses the most query rows at once for which a team has a block shape, and the first such team. The query rows of a
// KV head are divided into equal query chunks.
Result<void> choose_team(DecodePlan& plan, const Problem& problem) {
  constexpr int kMostRows = 64;
  TeamSides sides(problem, plan.k, plan.v);
  const int all = plan.query_rows();
  std::optional<Error> refusal;
  int least = 1 << 30;  // bytes of shared memory
  if (plan.heads > 1) {
    plan.rows = all;
    take_team(plan, {1, 1, 1, false, sides.k, sides.v});
    if (!shapes_of(plan).empty()) return {};
    const int most = most_warps(plan, 16);
    const std::string why = plan.heads > most ? "each head takes a warp"
                                              : fmt::format("the smallest takes {} bytes",
                                                            layout_shared(plan, {plan.heads, 4, 16, 1, {}, {}}));
    return fail(
        Code::unsupported,
        fmt::format("{} heads of a token leave no block shape in {} warps and {} bytes of shared memory on {}: {}",
                    plan.heads, most, plan.arch.shared_bytes_per_block, plan.arch.name, why),
        {}, {"leave cache.token_heads out: heads are read one by one then"});
  }
  for (int rows = std::min(all, kMostRows); rows > 0; rows = (rows - 1) / 8 * 8) {
    plan.query_chunks = (all + rows - 1) / rows;
    plan.rows =
        plan.query_chunks == 1 ? rows : std::min(rows, round_up((all + plan.query_chunks - 1) / plan.query_chunks, 8));
    const auto is_taken = offer_teams(sides, plan.rows, [&](const TeamPlan& team) {
      take_team(plan, team);
      if (!shapes_of(plan).empty()) return true;
      least = std::min(least, layout_shared(plan, {plan.team, 2, 16, 1, {}, {}}));
      return false;
    });
    if (is_taken && *is_taken) return {};
    if (!is_taken && !refusal) refusal = is_taken.error();
  }
  if (refusal) return tl::unexpected(*refusal);
  return fail(
      Code::unsupported,
      fmt::format("no block shape of the decode family fits {} bytes of shared memory on {}: the smallest takes {}",
                  plan.arch.shared_bytes_per_block, plan.arch.name, least),
      {}, {"a smaller attention.head_dim or fewer bits need less"});
}

}  // namespace

Result<BlockShape> choose_block(DecodePlan& plan, const Problem& problem, const Tuning& tuning) {
  KV_CHECK(choose_team(plan, problem));
  plan.decisions.push_back({"family",
                            "decode",
                            fmt::format("{} query rows fill {} block(s) of 8 columns", plan.rows, (plan.rows + 7) / 8),
                            {}});
  if (plan.query_chunks > 1)
    plan.decisions.push_back({"query chunks",
                              fmt::format("{} of {} query rows", plan.query_chunks, plan.rows),
                              fmt::format("{} do not fit a block; each chunk reads the cache", plan.query_rows()),
                              {}});
  if (plan.team > 1) plan.decisions.push_back(decision_of(plan));
  return choose_shape(plan, tuning);
}

Result<std::vector<BlockShape>> fitting_shapes(DecodePlan plan, const Problem& problem) {
  KV_CHECK(choose_team(plan, problem));
  return shapes_of(plan);
}

}  // namespace kvjit
