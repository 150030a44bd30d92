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

int power_of_two_in(int v, int most) {  // the largest power of two <= most that divides v
  int unit = most;
  while (unit > 1 && v % unit != 0) unit /= 2;
  return unit;
}

// Addresses of the 32 lanes for one load of a run: K reads rows g = lane / 4 (part lane % 4), V rows 2 (lane
// % 4) (part lane / 4).
std::vector<int> lane_addresses(const SidePlan& side, bool is_key, int pitch) {
  std::vector<int> addresses(32);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, c = lane % 4, row = is_key ? g : 2 * c, part = is_key ? c : g;
    addresses[lane] = side.codes_at + row * pitch + part * side.run.part_bits / 8;
  }
  return addresses;
}

// Where staged rows stand: the pitch with the widest loads, then the fewest bank conflicts, then the least memory.
void place_rows(SidePlan& side, bool is_key) {
  // stage_padded moves 512 bytes a step: whole rows, or whole parts of a row.
  const bool can_pad =
      !side.is_planar || (side.row_bytes % 16 == 0 && (512 % side.row_bytes == 0 || side.row_bytes % 512 == 0));
  const int step = side.is_planar ? 16 : std::max(side.row_unit, 4);
  const int shortest = side.is_planar ? side.row_bytes : round_up(side.row_bytes + (side.is_skewed ? 2 : 0), step);
  int widest = side.run.part_bits % 8 == 0 ? power_of_two_in(side.run.part_bits / 8, 16) : 1;
  widest = std::min(widest, power_of_two_in(side.codes_at, side.is_skewed ? 2 : 16));
  if (side.run.groups > 1) widest = std::min(widest, power_of_two_in(side.group_stride, 16));
  side.run.unit = 0;
  for (int pitch = shortest; pitch <= shortest + (can_pad ? 112 : 0); pitch += step) {
    const int unit = std::min(widest, power_of_two_in(pitch, 16));
    const int cost = bank_wavefronts(lane_addresses(side, is_key, pitch), unit);
    if (unit > side.run.unit || (unit == side.run.unit && cost < side.run.bank_cost)) {
      side.run.unit = unit;
      side.run.bank_cost = cost;
      side.pitch = pitch;
    }
  }
}

// Halves that represent the centroids best: the unit is free (it joins another factor), so the one whose
// rounding errors are smallest in sum of squares is taken among 2048 candidates; the largest centroid lies in
// [1, 2).
void choose_halves(SidePlan& side) {
  const std::vector<double>& values = side.format.codes().values;
  double largest = 0;
  for (double v : values) largest = std::max(largest, std::fabs(v));
  double best_error = 1e300, best_factor = 1;
  for (int i = 0; i < 2048; ++i) {
    const double factor = (1 + i / 2048.0) / largest;
    double error = 0;
    for (double v : values) {
      const double exact = v * factor, off = float_from_f16(f16_from_float(float(exact))) - exact;
      error += off * off / (exact * exact + 1e-30) * v * v;
    }
    if (error < best_error) best_error = error, best_factor = factor;
  }
  side.unit = 1 / best_factor;
  for (double v : values) side.halves.push_back(f16_from_float(float(v * best_factor)));
}

Result<SidePlan> plan_side(const Format& format, const Problem& problem, bool is_key) {
  SidePlan side;
  side.format = format;
  side.is_planar = problem.layout == Layout::planar;
  KV_TRY(run, plan_run(format, problem.head_dim, is_key ? 4 : 8));
  side.run = run;
  const int blocks = problem.head_dim / format.block;
  side.row_bytes = side.is_planar ? blocks * format.code_bytes : blocks * format.block_bytes;
  side.row_unit = side.is_planar ? 16 : power_of_two_in(side.row_bytes, 16);
  if (side.row_unit < 2)
    return fail(Code::unsupported,
                fmt::format("layout 'rows' needs rows of an even number of bytes; {} has {} at head_dim {}",
                            format.name, side.row_bytes, problem.head_dim),
                {}, {"layout 'planar' works"});
  side.is_skewed = side.row_unit == 2;
  side.group_stride = side.is_planar ? format.code_bytes : format.block_bytes;
  side.codes_at = side.is_planar ? 0 : format.field(FieldKind::codes)->at;
  place_rows(side, is_key);
  if (format.has_scale()) {
    side.scale_row_bytes = side.is_planar ? 2 * blocks : 0;
    side.scale_pitch = side.is_planar ? side.scale_row_bytes : side.pitch;
    side.scale_stride = side.is_planar ? 2 : format.block_bytes;
  }
  if (format.codes().kind == CodeKind::table) choose_halves(side);
  return side;
}

void size_stage(SidePlan& side, int tile) {
  constexpr int kSlack = 16;  // a run that starts inside a byte may read past the last row
  const int rows = round_up(tile * side.pitch + kSlack, 16);
  side.scales_at = side.is_planar ? rows : (side.format.has_scale() ? side.format.field(FieldKind::scale)->at : 0);
  side.stage_bytes = rows + (side.is_planar ? round_up(tile * side.scale_row_bytes, 16) : 0);
}

int table_entries(const Format& f) {
  return f.codes().kind != CodeKind::table ? 0 : f.codes().bits <= 4 ? 1 << 2 * f.codes().bits : 1 << f.codes().bits;
}

// Tables of both sides with `copies` copies an entry. Two full tables share 256-byte entries (K in the low
// half), so that an entry's address is one permute; equal formats share one table. Returns the bytes used.
int place_tables(SidePlan& k, SidePlan& v, int copies) {
  const int k_entries = table_entries(k.format), v_entries = table_entries(v.format);
  const bool shared = k_entries > 0 && v_entries > 0 && k.format.name == v.format.name;
  for (SidePlan* side : {&k, &v})
    side->owns_table = false, side->table_copies = 1, side->table_stride = 4, side->table_at = 0;
  if (k_entries + v_entries == 0) return 0;
  const int stride = copies == 32 ? 256 : copies * 4;
  int bytes = 0;
  if (k_entries > 0) k.owns_table = true, k.table_copies = copies, k.table_stride = stride, bytes = k_entries * stride;
  if (v_entries > 0) {
    v.owns_table = !shared, v.table_copies = copies, v.table_stride = stride;
    if (!shared) {
      v.table_at = copies == 32 ? 128 : bytes;
      bytes = copies == 32 ? std::max(bytes, v_entries * stride) : bytes + v_entries * stride;
    }
  }
  return bytes;
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
  const int tables = place_tables(plan.k, plan.v, shape.copies);
  plan.queries_at = round_up(tables, 128);
  plan.ring_at = plan.queries_at + plan.head_dim / 16 * plan.column_blocks * 32 * plan.query_parts * 8;
  plan.stage_bytes = plan.k.stage_bytes + plan.v.stage_bytes;
  const int ring_end = plan.ring_at + shape.warps * shape.stages * plan.stage_bytes;
  const int epilogue = shape.warps * plan.rows * (plan.head_dim + 4 + 2) * 4;
  plan.shared_bytes = std::max(ring_end, epilogue);
  return plan.shared_bytes;
}

Result<void> choose_shape(DecodePlan& plan) {
  constexpr double kEnoughInFlight = 48 * 1024;  // bytes an SM must have under way to cover about 1 us of latency
  const bool has_tables = table_entries(plan.k.format) + table_entries(plan.v.format) > 0;
  const int accumulators = plan.column_blocks * plan.head_dim / 4;
  const int most_warps = accumulators > 32 ? 8 : 12;  // 65,536 registers a block: 168 or 255 a thread
  Shape best;
  for (int copies : has_tables ? std::vector<int>{32, 8, 4, 2, 1} : std::vector<int>{1})
    for (int tile : {32, 16})
      for (int warps : {12, 8, 6, 4, 2, 1})
        for (int stages : {4, 3, 2}) {
          Shape shape{warps, stages, tile, copies, 0};
          if (warps > most_warps || layout_shared(plan, shape) > plan.arch.shared_bytes_per_block) continue;
          const double in_flight = double(warps) * (stages - 1) * plan.stage_bytes;
          shape.score = 4 * std::min(in_flight, kEnoughInFlight) / kEnoughInFlight + 3.0 * std::min(warps, 8) / 8 +
                        1.0 * warps / 12 +
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
  layout_shared(plan, best);
  plan.decisions.push_back({"block",
                            fmt::format("{} warps x {} stages x {} tokens", best.warps, best.stages, best.tile),
                            fmt::format("{} bytes in flight, {} of {} bytes of shared memory",
                                        best.warps * (best.stages - 1) * plan.stage_bytes, plan.shared_bytes,
                                        plan.arch.shared_bytes_per_block),
                            {}});
  if (has_tables)
    plan.decisions.push_back(
        {"tables",
         fmt::format("{} copies of an entry", best.copies),
         best.copies == 32 ? "every lane has its own bank" : "shared memory is short: lanes share banks",
         {}});
  return {};
}

// Dimension that each contraction slot of Q holds: [(step * 4 + c) * 4 + i].
std::vector<int> order_of_keys(const SidePlan& side) {
  const RunPlan& run = side.run;
  std::vector<int> order;
  for (int gr = 0; gr < run.groups * run.runs; ++gr)
    for (int step = 0; step < run.codes / 4; ++step)
      for (int c = 0; c < 4; ++c)
        for (int i = 0; i < 4; ++i) {
          const int pair = 2 * step + i / 2;  // register of the fragment; i % 2: its low or high half
          const int code =
              side.format.codes().kind == CodeKind::plain ? 2 * pair + i % 2 : run.slots[(pair / 4 * 2 + i % 2) * 4 + pair % 4];
          order.push_back(run.elements[(gr * run.parts + c) * run.codes + code]);
        }
  return order;
}

// Dimension that row (tile, half, g) of O holds: [tile * 16 + half * 8 + g].
std::vector<int> order_of_values(const SidePlan& side) {
  const RunPlan& run = side.run;
  std::vector<int> order;
  for (int gr = 0; gr < run.groups * run.runs; ++gr)
    for (int register_ = 0; register_ < run.codes; ++register_)
      for (int g = 0; g < 8; ++g) {
        const int code = side.format.codes().kind == CodeKind::plain ? register_ : run.slots[register_];
        order.push_back(run.elements[(gr * run.parts + g) * run.codes + code]);
      }
  return order;
}

std::string reader(const SidePlan& side) {
  switch (side.format.codes().kind) {
    case CodeKind::plain:
      return side.format.codes().element == Element::f16 ? "as stored" : "bf16 rounded to f16";
    case CodeKind::uniform:
      return "integers to halves by exponent";
    case CodeKind::table:
      return side.format.codes().bits <= 4 ? "pairs of codes by table" : "single codes by table";
  }
  return "";
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
  plan.q_type = problem.k.rotation.is_identity() ? problem.q_type : Element::f32;
  plan.query_parts = plan.q_type == Element::f16 ? 1 : 2;
  if (problem.head_dim % 32 != 0)
    return fail(Code::unsupported,
                fmt::format("the decode family needs a head_dim that is a multiple of 32, not {}", problem.head_dim));
  // Output sums live in registers: head_dim / 4 of them for every 8 rows, at most 64.
  const int most_rows = 64 * 4 / problem.head_dim * 8;
  if (plan.rows > most_rows)
    return fail(Code::unsupported,
                fmt::format("the decode family serves at most {} query rows at head_dim {}; q_heads_per_kv "
                            "{} x query_length {} is {}",
                            most_rows, problem.head_dim, plan.group, plan.query_length, plan.rows),
                {}, {most_rows == 0 ? "head_dim up to 256 works" : "lower attention.query_length"});
  KV_TRY(k, plan_side(problem.k, problem, true));
  KV_TRY(v, plan_side(problem.v, problem, false));
  plan.k = k;
  plan.v = v;
  plan.decisions.push_back({"family",
                            "decode",
                            fmt::format("{} query rows fill {} block(s) of 8 columns", plan.rows, plan.column_blocks),
                            {}});
  KV_CHECK(choose_shape(plan));
  // Two subtiles together keep more independent work in flight, where registers allow.
  plan.subtiles = plan.tile == 32 && plan.column_blocks * plan.head_dim / 4 <= 32 ? 2 : 1;
  plan.key_order = order_of_keys(plan.k);
  plan.value_order = order_of_values(plan.v);
  for (const auto& [what, side] : {std::pair{"k", &plan.k}, std::pair{"v", &plan.v}})
    plan.decisions.push_back(
        {what,
         side->format.name,
         fmt::format("{}; {}-byte loads, pitch {} of {}, {} shared-memory wavefronts each", reader(*side),
                     side->run.unit, side->pitch, side->row_bytes, side->run.bank_cost),
         {}});
  // A fragment read from shared memory for every 16 tokens costs as much as looking up the codes of K does. Formats with several
  // scale groups a row are bound by arithmetic instead, and gain more from a loop that compiles soon.
  // The sum leaves room below the register limit of the block (65,536 over its threads) for what is in flight.
  const int held = plan.head_dim / 16 * plan.column_blocks * plan.query_parts * 2;
  const int sums = plan.column_blocks * plan.head_dim / 4;
  const int value_scales = problem.v.has_scale() ? plan.v.run.groups * plan.subtiles * 2 : 0;
  plan.hold_queries = plan.k.run.groups == 1 && held + sums + value_scales <= (plan.warps > 8 ? 72 : 144);
  plan.decisions.push_back(
      {"queries",
       fmt::format("{} fp16 part(s) in {}", plan.query_parts, plan.hold_queries ? "registers" : "shared memory"),
       plan.query_parts == 1 ? "f16 queries are exact" : "f32 queries as high and low halves",
       {}});
  return plan;
}

}  // namespace kvjit
