// plan_decode: plans both sides (staged_side.cpp), then the team and the shape of a block (block_shape.cpp), then the
// orders in which Q is read and O is written, and gives the reasons of all as Decisions.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "generator/emit/writer.hpp"
#include "generator/formats/reference_codec.hpp"

namespace kvjit {
namespace {

// Appends the rotated-domain dimension of each element of Q's fragments: at [(step * 4 + c) * 4 + i] of element i of
// lane c in one step of the contraction; of integers at [(step * 4 + c) * 8 + i].
void order_keys(const SectionPlan& section, std::vector<int>& order) {
  const LaneReads& reads = section.reads;
  if (section.integers.kind != IntegerKind::none) {
    for (int gr = 0; gr < reads.groups * reads.reads_per_group; ++gr)
      for (int step = 0; step < reads.codes / 8; ++step)
        for (int c = 0; c < 4; ++c)
          for (int i = 0; i < 8; ++i)
            order.push_back(
                reads.elements[(gr * reads.lanes_per_row + c) * reads.codes + reads.lane_order[step * 8 + i]]);
    return;
  }
  for (int gr = 0; gr < reads.groups * reads.reads_per_group; ++gr)
    for (int step = 0; step < reads.codes / 4; ++step)
      for (int c = 0; c < 4; ++c)
        for (int i = 0; i < 4; ++i) {
          const int pair = 2 * step + i / 2;  // the half2 register of the fragment; i % 2: its low or high half
          const int code =
              is_direct(section) ? 2 * pair + i % 2 : reads.lane_order[(pair / 4 * 2 + i % 2) * 4 + pair % 4];
          order.push_back(reads.elements[(gr * reads.lanes_per_row + c) * reads.codes + code]);
        }
}

// The slot of the code whose values are in a register of V: look-ups give the values of the even slots of a word first,
// and then those of the odd slots.
int slot_of(const SectionPlan& section, int register_) {
  if (section.code_lane_bits == 0) return register_;
  const int per_word = CodeLanes{section.code_lane_bits}.per_word() / (section.reads.is_joined ? 2 : 1),
            word = register_ / per_word * per_word, at = register_ % per_word;
  return word + at % (per_word / 2) * 2 + at / (per_word / 2);
}

// Appends the rotated-domain dimension of each row of O^T, eight (g) for each register of a lane read. warp: which of
// the value_share warps of a team the rows belong to.
void order_values(const SectionPlan& section, int warp, std::vector<int>& order) {
  const LaneReads& reads = section.reads;
  for (int gr = 0; gr < reads.groups * reads.reads_per_group; ++gr)
    for (int register_ = 0; register_ < reads.codes; ++register_)
      for (int g = 0; g < 8; ++g) {
        const int code = is_direct(section) ? register_ : reads.lane_order[slot_of(section, register_)];
        order.push_back(reads.elements[(gr * reads.lanes_per_row + warp * 8 + g) * reads.codes + code]);
      }
}

// How codes become operands of the tensor cores, as text of a Decision.
std::string reader(const SectionPlan& section) {
  std::string text;
  if (section.is_masked) return "codes found by the mask of each block";
  constexpr const char* kIntegers[] = {"", "codes as 8-bit integers", "8-bit integers by one permute for four codes",
                                       "8-bit integers by one permute for four codes and their signs",
                                       "8-bit integers by two permutes for four codes"};
  if (section.integers.kind != IntegerKind::none)
    return fmt::format("{}{}", kIntegers[int(section.integers.kind)],
                       section.integers.code_terms == 2 ? ", in two terms" : "");
  switch (section.codes.kind) {
    case CodeKind::plain:
      text = section.codes.element == Element::f16 ? "as stored"
             : section.divides_elements
                 ? fmt::format("{} divided by a power of two a token, rounded to f16", to_string(section.codes.element))
             : !section.as_bfloats ? fmt::format("{} rounded to f16", to_string(section.codes.element))
             : section.codes.element == Element::bf16 ? "as stored"
                                                      : "f32 as three bf16 terms";
      break;
    case CodeKind::uniform:
      text = "integers to halves by exponent";
      break;
    case CodeKind::vector:
      text = "eight values by the table of a lattice";
      break;
    case CodeKind::table:
      text = section.codes.is_trellis()
                 ? section.at_once == 2 ? "pairs of states of a trellis by table" : "states of a trellis by table"
             : section.code_lane_bits == 2 ? "two pairs of codes by table"
             : section.codes.bits <= 4     ? "pairs of codes by table"
                                           : "single codes by table";
      break;
  }
  return text + (section.use == ScaleUse::by_value ? ", each times its scale" : "");
}

// What the terms of Q are, as text of a Decision.
const char* query_numbers(const DecodePlan& plan) {
  const auto are = [&](bool as_bfloats) {
    return std::any_of(plan.k.sections.begin(), plan.k.sections.end(),
                       [&](const SectionPlan& section) { return section.as_bfloats == as_bfloats; });
  };
  return !are(true) ? "fp16" : are(false) ? "fp16 or bf16" : "bf16";
}

// How rows are staged, as text of a Decision.
std::string place(const SidePlan& side) {
  if (side.heads > 1) return fmt::format("{} heads a tile, in {} range(s)", side.heads, 8 / side.copy_eighths);
  return fmt::format("pitch {} of {}{}{}", side.pitch, side.row_bytes, side.swizzle != 0 ? " swizzled" : "",
                     side.caches_in_l1 ? " by way of the L1" : "") +
         (side.by_bulk         ? ", by bulk copies"
          : side.keeps_sectors ? ", whole sectors"
                               : "") +
         (side.is_record && side.has_even_odd_order ? ", even rows first" : "");
}

int power_of_two_in(int v, int most) {  // the largest power of two <= most that divides v
  int unit = most;
  while (unit > 1 && v % unit != 0) unit /= 2;
  return unit;
}

// The numbers of a tile's pages are read one tile early. A row is copied in units of the largest power of two, up to 16
// bytes, that divides its size.
Decision page_decision(const DecodePlan& plan) {
  const int pages = std::max(plan.tile / plan.page_tokens, 1);
  const auto copies = [](const SidePlan& side) {
    const int bytes = power_of_two_in(side.row_bytes, 16);
    return side.is_misaligned || bytes == 16 ? std::string("16 bytes")
           : bytes >= 4                      ? fmt::format("{} bytes", bytes)
                                             : fmt::format("{} bytes, which the warp waits for", bytes);
  };
  return {"pages",
          fmt::format("{} tokens, {} page(s) a tile", plan.page_tokens, pages),
          fmt::format("numbers of the next tile's pages are read while this one is taken; copies of {} (k), {} (v)",
                      copies(plan.k), copies(plan.v)),
          {}};
}

// Sets SectionPlan::has_aligned_scales of the sections of a side.
void find_aligned_scales(SidePlan& side) {
  for (SectionPlan& section : side.sections) {
    const Format& f = section.own ? *section.own : side.format;
    const Field* const scale = f.field(FieldKind::scale);
    if (!scale || f.scale.type != ScaleType::f32 || side.is_misaligned || side.heads > 1) continue;
    const int at = side.is_planar || section.own ? scale->plane_at : scale->at,
              stride = section.own ? section.scale_stride : side.scale_stride;
    section.has_aligned_scales = at % 4 == 0 && stride % 4 == 0 && side.scale_pitch % 4 == 0;
  }
}

// The plan without the shape of a block and what depends on it. by_bulk: rows of records come by bulk copies.
Result<DecodePlan> begin_plan(const Problem& problem, bool by_bulk) {
  DecodePlan plan;
  plan.arch = problem.arch;
  static_cast<AttentionShape&>(plan) = problem;
  plan.head_dim_v = problem.v_dim();
  // Kernels of their own multiply by a dense matrix, once for all blocks. The other rotations cost a block less than a
  // launch does.
  const auto is_cheap = [](const Format& f) {
    return f.rotation.kind != RotationKind::dense && f.residual.projection.kind != RotationKind::dense;
  };
  plan.rotates_queries = problem.fuse && problem.k.is_transformed() && is_cheap(problem.k);
  plan.rotates_output = problem.fuse && problem.v.is_transformed() && is_cheap(problem.v);
  plan.fuses_merge = problem.fuse;
  plan.out_type = problem.v.is_transformed() && !plan.rotates_output ? Element::f32 : problem.out_type;
  plan.q_type = problem.k.is_transformed() && !plan.rotates_queries ? Element::f32 : problem.q_type;
  if (plan.append)
    plan.append_bytes =
        std::max(emit::writer_bytes(problem.k, plan.head_dim), emit::writer_bytes(problem.v, plan.head_dim_v));
  const bool is_planar = problem.is_planar();
  const bool by_integers = problem.arch.has("mma_m16n8k32_s8");
  KV_TRY(k, plan_side(problem.k, problem.head_dim, is_planar, true, by_integers));
  KV_TRY(v, plan_side(problem.v, problem.v_dim(), is_planar, false));
  place_records(k, problem, true, by_bulk), place_records(v, problem, false, by_bulk);
  if (problem.values_in_keys && k.is_record) place_together(k, v);
  if (problem.values_in_keys) put_in_keys(v, k);
  plan.k = k;
  plan.v = v;
  if (problem.token_heads > 0) {
    KV_CHECK(check_token_heads(plan, problem));
    plan.heads = plan.k.heads = plan.v.heads = problem.token_heads;
    plan.fuses_merge = false;  // every block has KV splits of all heads, which are too many for one block to merge
  }
  for (const SidePlan* side : {&plan.k, &plan.v})
    if (side->rotated_dim % 32 != 0)
      return fail(Code::unsupported, fmt::format("the decode family needs rows of a multiple of 32 values; {} has {}",
                                                 side->format.name, side->rotated_dim));
  return plan;
}

// Whether bulk copies can bring rows that have V in K's rows, each tile from one page. Two caches gain nothing from
// them (NOTES.md).
bool may_copy_in_bulk(const Problem& problem) {
  constexpr int kMostTile = 32;
  return problem.arch.has("bulk_copy") && problem.page_tokens % kMostTile == 0 && problem.values_in_keys;
}

// The plan with its team and the shape of a block. Teams alone wait for bulk copies.
Result<std::pair<DecodePlan, BlockShape>> plan_block(const Problem& problem, const Tuning& tuning) {
  if (may_copy_in_bulk(problem)) {
    KV_TRY(plan, begin_plan(problem, true));
    if (const auto shape = choose_block(plan, problem, tuning); shape && plan.team > 1)
      return std::pair(std::move(plan), *shape);
  }
  KV_TRY(plan, begin_plan(problem, false));
  KV_TRY(shape, choose_block(plan, problem, tuning));
  return std::pair(std::move(plan), shape);
}

}  // namespace

Result<std::vector<BlockShape>> decode_shapes(const Problem& problem) {
  KV_TRY(own, plan_block(problem, {}));
  KV_TRY(plan, begin_plan(problem, own.first.k.by_bulk));
  return fitting_shapes(std::move(plan), problem);
}

Result<DecodePlan> plan_decode(const Problem& problem, const Tuning& tuning) {
  KV_TRY(begun, plan_block(problem, tuning));
  auto& [plan, shape] = begun;
  if (plan.team > 1 && plan.sparse_v > 0)
    return fail(
        Code::unsupported,
        fmt::format("attention.sparse_v is served by one warp alone, {} query rows over {} values take a team of {}",
                    plan.rows, plan.v.rotated_dim, plan.team),
        {}, {"16 query rows at head_dim 128 take one warp", "leave sparse_v out"});
  find_aligned_scales(plan.k), find_aligned_scales(plan.v);
  for (const SectionPlan& section : plan.k.sections) order_keys(section, plan.key_order);
  for (int warp = 0; warp < plan.value_share; ++warp)
    for (const SectionPlan& section : plan.v.sections) order_values(section, warp, plan.value_order);
  for (const auto& [what, side] : {std::pair{"k", &plan.k}, std::pair{"v", &plan.v}})
    for (const SectionPlan& section : side->sections)
      plan.decisions.push_back({what,
                                side->format.name,
                                fmt::format("{}; {}-byte loads, {}, {} shared-memory wavefronts each", reader(section),
                                            section.is_masked ? 1 : section.reads.planes[0].unit, place(*side),
                                            side->sections[0].reads.bank_cost),
                                {}});
  // To load a fragment of Q from shared memory for every 16 tokens costs as much as to look up the codes of K. Formats
  // with several scale groups a row are bound by arithmetic instead, and gain more from a loop that compiles soon. The
  // bounds leave registers free for loads in flight: a thread has 65,536 over the threads of the block.
  const int query_registers = plan.has_integer_keys
                                  ? plan.k.rotated_dim / 8 * plan.column_blocks
                                  : plan.k.rotated_dim / 16 * plan.column_blocks * plan.query_terms * 2;
  int value_scales = 0, key_groups = 1;
  for (const SectionPlan& section : plan.v.sections)
    if (section.use == ScaleUse::by_group) value_scales += section.reads.groups * plan.subtiles * 2;
  for (const SectionPlan& section : plan.k.sections) key_groups = std::max(key_groups, section.reads.groups);
  plan.hold_queries = key_groups == 1 && query_registers + plan.sums() + value_scales <= (plan.warps > 8 ? 72 : 144);
  plan.hold_queries = shape.hold_queries.value_or(plan.hold_queries);
  plan.decisions.push_back(
      {"queries",
       plan.has_integer_keys ? fmt::format("16-bit integers in {}", plan.hold_queries ? "registers" : "shared memory")
                             : fmt::format("{} {} term(s) in {}", plan.query_terms, query_numbers(plan),
                                           plan.hold_queries ? "registers" : "shared memory"),
       plan.has_integer_keys   ? "two signed bytes, in a unit that the largest element of the row gives"
       : !plan.scales_queries  ? plan.q_type == Element::f32 && plan.by_warpgroups
                                     ? "f32 queries to 2^-17"
                                     : fmt::format("{} queries are exact", to_string(plan.q_type))
        : plan.query_terms == 1 ? "rounded, in a unit that the largest element of the row gives"
                               : "high and low halves, in a unit that the largest element of the row gives",
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
  if (plan.page_tokens > 0) plan.decisions.push_back(page_decision(plan));
  if (plan.append)
    plan.decisions.push_back({"append",
                              fmt::format("the new {} token(s)", plan.query_length),
                              "stored by the block that has their tile, before it reads it; lengths count them",
                              {}});
  const auto where = [](bool is_transformed, bool is_fused, const char* fused = "fused") {
    return !is_transformed ? "none" : is_fused ? fused : "a launch of its own";
  };
  plan.decisions.push_back(
      {"launches",
       fmt::format(
           "rotation of Q {}, merge {}, rotation of the output {}",
           where(problem.k.is_transformed(), plan.rotates_queries), where(true, plan.fuses_merge),
           where(problem.v.is_transformed(), plan.rotates_output, plan.fuses_merge ? "fused" : "with the merge")),
       problem.fuse ? "what is dense is rotated once for all blocks" : "fuse = false",
       {}});
  if (plan.fuses_merge && plan.may_need_merge_kernel())
    plan.decisions.push_back({"merge",
                              "fused, or a launch of its own",
                              fmt::format("splits of a batch-head are merged by the last block that has one, each warp "
                                          "in {} steps or more; by a launch of its own where that takes longer",
                                          plan.merge_steps()),
                              {}});
  return plan;
}

}  // namespace kvjit
