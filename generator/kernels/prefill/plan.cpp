// plan_prefill: which problems prefill serves, how codes become halves, and the shared memory of a block.
// SPDX-License-Identifier: MIT
#include "generator/kernels/prefill/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>

#include "args/half_range.cuh"
#include "generator/base/minifloat.hpp"

namespace kvjit {
namespace {

constexpr int kSector = 32;     // bytes; copied rows begin at a sector (templates/kernels/decode/unaligned_rows.cuh)
constexpr int kReadSlack = 16;  // bytes that a lane read may take behind the last staged row
constexpr int kBarrierBytes = 64;
constexpr int kLeastSharedRows = 33, kSharedRows = 64;  // that are one block for both consumers
constexpr int kFewRows = 128;                           // that are one block for each consumer
constexpr int kMostMmaSums = 128;                       // dimensions of V: 64 sums a lane, beside 64 scores
// From this number of rows on it is faster than decode (NOTES.md): by wgmma, with heads of more than 256 dimensions, by
// mma.sync.
constexpr int kLeastChosenRows = 512, kLeastChosenWideRows = 256, kLeastChosenMmaRows = 2048;
constexpr int kTokens = 128, kWideTokens = 64;      // of a tile; of one of heads of more than 256 dimensions
constexpr int kScoreScaleBytes = kTokens * 4;       // of a stage of K
constexpr int kExchangeBytes = 2 * 64 * 4 + 2 * 8;  // of consumers that share rows: maxima, and two barriers
constexpr int kPostBytes = 4 * (13 * 4 + 2 * 8);    // of four rounds: work tiles, and two barriers each
constexpr int kLeastCopiedDim = 64, kMostDim = 256, kMostWideKeyDim = 576, kMostWideValueDim = 512;
constexpr int kOnesBytes = 16;  // factors of scores that are scaled

int round_up(int v, int to) { return (v + to - 1) / to * to; }

// Whether a feature changes scores, beyond hiding tokens outside a range: kChangesScores of its fragment.
bool changes_scores(const FeatureSet& features) {
  return features.softcap > 0 || features.has_hook() || features.alibi || features.mask || features.packed_mask;
}

// Which tokens of a tile a row may not see, beyond those behind the end of the sequence, which are zeros.
void set_hidden(PrefillPlan& plan) {
  const FeatureSet& features = plan.features;
  plan.hides_first = features.window_left >= 0 || features.token_ranges;
  plan.hides_last = plan.causal || features.window_right >= 0 || features.token_ranges;
  plan.hides_by_score = features.mask || features.packed_mask || features.has_hook();
}

int half_of(double x) { return f16_from_float(float(x)); }

// The largest number that is unpacked, in the unit of the section.
double largest_code(const SectionPlan& section) {
  const Section& codes = section.codes;
  double largest = 0;
  for (const std::uint16_t half : section.halves) largest = std::max(largest, std::abs(double(float_from_f16(half))));
  if (codes.kind == CodeKind::uniform) {
    const int most = (1 << codes.bits) - 1;
    largest = section.subtracts_zeros ? most : std::max(codes.offset, most - codes.offset);
  } else if (codes.kind == CodeKind::plain) {
    largest = codes.element == Element::e5m2 ? 57344 : 448;
  } else if (codes.kind == CodeKind::vector) {
    largest = *std::max_element(codes.values.begin(), codes.values.end()) / section.unit;
  }
  return largest;
}

}  // namespace

FittingRange fitting_range(const SidePlan& side) {
  using kv::kLeastExponent, kv::kMostExponent;
  const SectionPlan& section = side.sections[0];
  const Scale& scale = side.format.scale;
  const auto bfloat = [](int exponent) { return (exponent + 127) << 7; };
  FittingRange range;
  const bool is_bf16 = section.codes.kind == CodeKind::plain && section.codes.element == Element::bf16;
  if (is_bf16 || section.use == ScaleUse::none || scale.renormalise) {
    range.is_wide = is_bf16 || (scale.renormalise && scale.type != ScaleType::f16);
    range.least = bfloat(kLeastExponent), range.most = bfloat(kMostExponent) - 1;
    return range;
  }
  range.largest_code = largest_code(section);
  const bool is_of_halves = scale.type == ScaleType::f16,
             is_small = !(bytes_of(scale.type) > 1 || scale.type == ScaleType::e8m0);
  range.is_wide = is_of_halves ? range.largest_code * section.factor > 1 : !is_small;
  const bool has_minimum = section.adds_minima || side.format.stores_minimum();
  const double most = std::ldexp(1, has_minimum ? kMostExponent - 1 : kMostExponent);
  range.rounds_scales = !is_of_halves && scale.type != ScaleType::e8m0;
  const double least_scale = range.rounds_scales ? std::ldexp(1, kv::kLeastNormalExponent) : 0;
  range.least = std::max(1, int(half_of(std::max(least_scale, std::ldexp(1, kLeastExponent) / range.largest_code))));
  range.most = half_of(std::min(65504., most / range.largest_code));
  range.most_minimum = half_of(most);
  return range;
}

namespace {

// Byte `shift / 8` of four halves as a word.
std::uint32_t bytes_of(const std::vector<std::uint16_t>& halves, std::size_t first, int shift) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i)
    if (first + i < halves.size()) word |= std::uint32_t(halves[first + i] >> shift & 255) << 8 * i;
  return word;
}

// How the entries of a codebook are looked up in registers. The opposite of a half differs in its top bit.
PermutePlan plan_permutes(const SectionPlan& section) {
  PermutePlan plan;
  if (section.is_masked || section.codes.kind != CodeKind::table || section.codes.bits > 4 ||
      section.codes.twos_complement)
    return plan;
  std::vector<std::uint16_t> entries = section.halves;
  if (entries.size() > 8) {
    const auto opposes = [&](std::size_t i, std::size_t j) { return (entries[i] ^ entries[j]) == 0x8000; };
    bool ascends = entries.size() == 16, descends = ascends;
    for (std::size_t i = 0; i < 8 && i + 8 < entries.size(); ++i)
      ascends = ascends && opposes(i, i + 8), descends = descends && opposes(i, 15 - i);
    plan.kind = ascends || descends ? PermuteKind::pairs : PermuteKind::sixteen;
    if (ascends || descends) {
      plan.positive = plan.descends = !ascends;
      entries.erase(ascends ? entries.begin() + 8 : entries.begin(), ascends ? entries.end() : entries.begin() + 8);
    }
  } else {
    plan.kind = PermuteKind::eight;
  }
  for (const int shift : {0, 8})
    for (std::size_t i = 0; i < 16; i += 4) plan.table.push_back(bytes_of(entries, i, shift));
  return plan;
}

// Halves of a table are below 2 in their unit. Below 1 their products with a scale of fp16 stay in its range. A scale
// that multiplies scores is no factor of halves.
void keep_products_small(SidePlan& side, bool is_key) {
  SectionPlan& section = side.sections[0];
  const bool multiplies_scores =
      is_key && section.use == ScaleUse::by_group && section.reads.groups * section.reads.blocks == 1;
  if (section.use == ScaleUse::none || section.codes.kind != CodeKind::table || side.unit != section.unit ||
      side.format.scale.type != ScaleType::f16 || side.format.scale.renormalise || multiplies_scores)
    return;
  for (std::uint16_t& half : section.halves) half = f16_from_float(float_from_f16(half) / 2);
  section.unit *= 2, side.unit *= 2;
}

// Plans one side: as decode reads K, but codes of up to four bits are spread to nibbles for the permutes.
Result<SidePlan> plan_halves(const Format& format, int head_dim, bool is_planar, const char* name,
                             std::span<const int> dims, bool is_copied) {
  KV_TRY(side, plan_side(format, head_dim, is_planar, true));
  side.to_halves = true;
  if (is_copied) {  // to operands, so no row is padded
    side.rotated_dim = format.stored_dim(head_dim), side.pad_bytes = 0;
    return side;
  }
  if (format.has_segments())
    return fail(Code::unsupported,
                fmt::format("{} ({}) has segments, which one pass does not convert", name, format.name), {},
                {"decode serves it, and prefill in two passes"});
  // A half has 11 bits. The zero point times the scale loses too many of them: on random rows the error is 1.3e-3,
  // above the 1e-3 that every kernel keeps. Subtracted from the codes it is exact.
  if (format.has_zero_point() && side.sections[0].use != ScaleUse::by_group)
    return fail(Code::unsupported,
                fmt::format("{} ({}) has zero points of less than whole blocks of 32 values or more, which halves do "
                            "not hold exactly enough",
                            name, format.name),
                {}, {"decode serves it, and prefill in two passes"});
  const bool is_served = std::count(dims.begin(), dims.end(), side.rotated_dim) > 0;
  if (side.sections.size() != 1 || !is_served || side.pad_bytes > 0)
    return fail(Code::unsupported,
                fmt::format("{} ({}) has rows of {} values in {} section(s); prefill serves rows of {} values in one",
                            name, format.name, side.rotated_dim, side.sections.size(), fmt::join(dims, ", ")));
  SectionPlan& section = side.sections[0];
  if (format.has_zero_point()) section.adds_minima = false, section.subtracts_zeros = true;
  keep_products_small(side, std::string_view(name) == "k");
  section.permutes = plan_permutes(section);
  if (section.permutes.kind != PermuteKind::none) {
    KV_TRY(reads, plan_lane_reads(side, 0, head_dim, 4, section.use == ScaleUse::by_value, {4, 0, true}));
    section.reads = reads;
    place_rows(side, true);
  }
  if (section.reads.codes % 8 != 0)
    return fail(Code::unsupported, fmt::format("{} ({}): a lane reads {} values at once; prefill takes multiples of 8",
                                               name, format.name, section.reads.codes));
  if (format.scale.renormalise && section.reads.groups * section.reads.reads_per_group > 1)
    return fail(Code::unsupported,
                fmt::format("{} ({}) needs the length of a row, which takes several reads", name, format.name));
  return side;
}

// The dimension of each half that lanes store, as its place in a row of an operand (chunk_place of producer.cuh).
std::vector<int> columns_of(const SidePlan& side) {
  std::vector<int> columns(std::size_t(side.rotated_dim), 0);
  const SectionPlan& section = side.sections[0];
  const LaneReads& reads = section.reads;
  for (int read = 0; read < reads.groups * reads.reads_per_group; ++read)
    for (int c = 0; c < reads.lanes_per_row; ++c)
      for (int i = 0; i < reads.codes; ++i) {
        const int q = read * (reads.codes / 8) + i / 8, place = q / 2 * 8 + 2 * c + q % 2;
        const int pair = i / 2, half = i % 2;  // the half2 register, and its low or high half
        const int code = is_direct(section) ? i
                         : section.permutes.kind != PermuteKind::none
                             ? reads.lane_order[std::size_t(i)]
                             : reads.lane_order[std::size_t((pair / 4 * 2 + half) * 4 + pair % 4)];
        const int element = reads.elements[std::size_t((read * reads.lanes_per_row + c) * reads.codes + code)];
        columns[std::size_t(element)] = place * 8 + i % 8;
      }
  return columns;
}

// Places the entries of a side's codebook at `end`, and returns where they end.
int place_entries(SidePlan& side, int end) {
  SectionPlan& section = side.sections[0];
  side.table_copies = 1, side.table_stride = section.codes.is_vector() ? 8 : 4;
  if (section.permutes.kind != PermuteKind::none) {
    section.permutes.at = end;
    return end + round_up((2 * section.permutes.words() + 1) * 4, 16);
  }
  const bool is_vector = section.codes.is_vector();
  if (section.is_masked || (section.codes.kind != CodeKind::table && !is_vector)) return end;
  section.owns_table = true, section.table_at = end;
  return end + (is_vector ? kVectorEntries * side.table_stride : 4 << section.codes.bits);
}

std::vector<int> in_order(int count) {
  std::vector<int> columns(std::size_t(count), 0);
  std::iota(columns.begin(), columns.end(), 0);
  return columns;
}

// Dimensions of V as an operand. The products have 64, 128 or 256 columns, or 256 for each of two consumers.
int value_dim(int stored) {
  for (const int dim : {64, 128, 256})
    if (stored <= dim) return dim;
  return kMostWideValueDim;
}

// How codes become halves, as text of a Decision.
std::string converter(const PrefillPlan& plan, const SectionPlan& section) {
  if (plan.copies_rows) return "copied as stored";
  constexpr const char* kPermutes[] = {"", "halves by permutes of 8 entries",
                                       "halves by permutes of 8 entries and a sign",
                                       "halves by permutes of 16 entries"};
  if (section.permutes.kind != PermuteKind::none) return kPermutes[int(section.permutes.kind)];
  if (section.is_masked) return "codes found by the mask of each block";
  if (section.codes.is_trellis()) return "states of a trellis by table";
  if (section.codes.is_vector()) return "eight values by the table of a lattice";
  if (section.codes.is_wide()) return "rounded to f16";
  return section.codes.kind == CodeKind::table ? "single codes by table" : "codes computed to halves";
}

// Chooses the largest stages of packed rows that fit beside the operands, and two of them if two fit. Returns the bytes
// of the rings of all warps.
Result<int> size_ring(PrefillPlan& plan) {
  const int left = plan.arch.shared_bytes_per_block - plan.ring_at;
  int bytes = 0;
  const int warps = plan.by_mma ? 8 : plan.producer_warps;  // that bring tokens
  for (const int tokens : {32, 16, 8}) {
    if (tokens > plan.tokens / warps) continue;
    plan.stage_tokens = tokens;
    for (SidePlan* side : {&plan.k, &plan.v}) size_stage(*side, tokens, kSector), align_slots(*side, plan.page_tokens);
    if (plan.copies_rows) return 0;
    bytes = plan.producer_warps * plan.stage_bytes() + kReadSlack;
    plan.ring = 2 * bytes <= left ? 2 : 1;
    if (bytes <= left) return plan.ring * bytes;
  }
  return fail(Code::unsupported,
              fmt::format("{} bytes of packed rows for {} tokens, and {} are left of the shared memory of {}", bytes,
                          plan.producer_warps * plan.stage_tokens, left, plan.arch.name));
}

// A thread is launched with 65,536 / threads registers, rounded down to a multiple of 8. The roles share what that
// makes for a block, and no more.
void set_registers(PrefillPlan& plan) {
  if (plan.by_mma) return;  // every thread has what it was launched with
  if (plan.producer_warps == 8)
    plan.producer_registers = 72, plan.consumer_registers = 184;
  else if (plan.copies_rows)
    plan.producer_registers = 40, plan.consumer_registers = 232;
  else
    plan.producer_registers = 56, plan.consumer_registers = 224;
}

Result<void> check_problem(const Problem& problem) {
  const auto refuse = [](std::string text) { return fail(Code::unsupported, std::move(text)); };
  if (!problem.arch.has("wgmma") && !(problem.arch.has("mma_m16n8k16_f16") && problem.arch.has("cp_async")))
    return refuse(fmt::format("{} has no wgmma, and no mma of 16 x 8 x 16 beside cp.async", problem.arch.name));
  if (!has_prefill_rows(problem))
    return refuse(fmt::format("{} query rows of a KV head; decode takes them at once", problem.query_rows()));
  if (problem.sparse_v > 0) return refuse("it skips no values");
  if (problem.token_heads > 0) return refuse("it reads one head at a time, not token-major heads");
  return {};
}

// Rows of f16 are copied to operands of whole panels.
Result<void> check_copied_dims(const Problem& problem) {
  const int k = problem.head_dim, v = problem.v_dim();
  const bool is_served = k % 16 == 0 && v % 16 == 0 && k >= kLeastCopiedDim && v >= kLeastCopiedDim;
  if (is_served && std::max(k, v) <= kMostDim) return {};
  if (is_served && v > kMostDim && v <= kMostWideValueDim && k <= kMostWideKeyDim) return {};
  return fail(
      Code::unsupported,
      fmt::format("heads of {} dimensions of K and {} of V; prefill serves multiples of 16 from {} to {}, and up "
                  "to {} of K beside {} to {} of V",
                  k, v, kLeastCopiedDim, kMostDim, kMostWideKeyDim, kMostDim + 16, kMostWideValueDim));
}

// Which calls take prefill, as measured (NOTES.md). With 65 to 511 rows it is faster than decode where it has blocks
// for most of the device. What was measured are planar caches, heads of 128 dimensions, and no feature that hides or
// changes scores. Up to 64 rows it gains over decode where that is slow: with codes of up to 8 bits and without a
// rotation, or up to 3 bits with one.
bool gains_up_to_64_rows(const SidePlan& side) {
  const int bits = side.sections[0].codes.bits;
  return bits <= 8 && (!side.format.is_transformed() || bits <= 3);
}
int least_chosen_rows(const PrefillPlan& plan) {
  return plan.by_mma ? kLeastChosenMmaRows : plan.shares_rows ? kLeastChosenWideRows : kLeastChosenRows;
}
PrefillChoice choose(const PrefillPlan& plan, const Problem& problem) {
  if (problem.features.mask) return PrefillChoice::never;
  if (problem.query_rows() >= least_chosen_rows(plan)) return PrefillChoice::always;
  const bool is_measured = !plan.by_mma && problem.is_planar() && problem.page_tokens == 0 &&
                           plan.k.rotated_dim == 128 && plan.v.rotated_dim == 128 && !problem.features.has_window() &&
                           !changes_scores(problem.features) && !problem.varlen &&
                           (!plan.alternates || (gains_up_to_64_rows(plan.k) && gains_up_to_64_rows(plan.v)));
  return is_measured ? PrefillChoice::if_full : PrefillChoice::never;
}
std::string choice_text(const PrefillPlan& plan, const Problem& problem) {
  switch (plan.choice) {
    case PrefillChoice::always:
      return plan.varlen ? fmt::format("on a GPU sequences of {} queries and more take it", plan.least_queries)
                         : "calls on a GPU take it";
    case PrefillChoice::if_full:
      return "calls that have blocks for three quarters of a GPU take it, the others decode";
    case PrefillChoice::never:
      break;
  }
  return problem.features.mask ? "calls take decode, which is faster where each score loads an element of a mask"
                               : fmt::format("calls take decode below {} rows", least_chosen_rows(plan));
}

// Who does what in a block.
std::string roles_text(const PrefillPlan& plan) {
  if (plan.by_mma)
    return fmt::format(
        "8 warps copy f16 rows and multiply by mma.sync; {} FLOP and {} bytes of shared memory read for a tile and row",
        2 * plan.tokens * (plan.k.rotated_dim + plan.v.rotated_dim),
        plan.tokens * (plan.k.rotated_dim + plan.v.rotated_dim) * 2 / 16);
  return fmt::format("{} warps produce ({} registers, ring of {} stages of {} tokens a warp), 8 consume ({} registers)",
                     plan.producer_warps, plan.producer_registers, plan.ring, plan.stage_tokens,
                     plan.consumer_registers);
}

}  // namespace

// Up to 64 rows a batch of short sequences fills the device, so splits are long. Tiles of heads of more than 256
// dimensions have half of the tokens and take longer.
ProgramSource::PrefillSplits PrefillPlan::splits() const {
  const int least_tiles = shares_rows ? 16 : alternates ? 128 : 32, consumer_lanes = 256;
  return {tokens, least_tiles, alternates, consumer_lanes * blocks * value_dim / (shares_rows ? 4 : 2),
          consumer_lanes * blocks * 4};
}

bool has_prefill_rows(const Problem& problem) {
  const bool alternates = problem.arch.has("wgmma") && !problem.varlen;
  return problem.query_rows() >= (alternates ? kLeastSharedRows : kSharedRows + 1);
}

Result<PrefillPlan> plan_prefill(const Problem& problem, std::optional<ChunkRows> chunk) {
  KV_CHECK(check_problem(problem));
  PrefillPlan plan;
  plan.arch = problem.arch;
  static_cast<AttentionShape&>(plan) = problem;
  plan.head_dim_v = problem.v_dim();
  const auto is_cheap = [](const Format& f) { return f.rotation.kind != RotationKind::dense; };
  plan.rotates_queries = problem.fuse && problem.k.is_transformed() && is_cheap(problem.k);
  plan.rotates_output = problem.fuse && problem.v.is_transformed() && is_cheap(problem.v);
  plan.out_type = problem.v.is_transformed() && !plan.rotates_output ? Element::f32 : problem.out_type;
  plan.q_type = problem.k.is_transformed() && !plan.rotates_queries ? Element::f32 : problem.q_type;
  const auto is_f16 = [](const Format& format) {
    const Section& codes = format.codes();
    return codes.kind == CodeKind::plain && codes.element == Element::f16 && !format.has_scale();
  };
  plan.copies_rows = is_f16(problem.k) && is_f16(problem.v) && problem.page_tokens == 0;
  plan.by_mma = !problem.arch.has("wgmma");
  if (plan.copies_rows) KV_CHECK(check_copied_dims(problem));
  KV_TRY(k, plan_halves(problem.k, problem.head_dim, problem.is_planar(), "k", kPrefillKeyDims, plan.copies_rows));
  KV_TRY(v, plan_halves(problem.v, problem.v_dim(), problem.is_planar(), "v", kPrefillValueDims, plan.copies_rows));
  plan.k = k, plan.v = v;
  if (plan.by_mma && !plan.copies_rows)
    return fail(Code::unsupported,
                fmt::format("{} has no wgmma: there one pass serves f16 rows alone", problem.arch.name));
  const int dim_k = round_up(plan.k.rotated_dim, 64), dim_v = value_dim(plan.v.rotated_dim);
  const bool is_wide = std::max(dim_k, dim_v) > 128;
  plan.value_dim = dim_v;
  plan.shares_rows = std::max(dim_k, dim_v) > kMostDim;
  if (plan.shares_rows) plan.tokens = kWideTokens;
  plan.key_columns = plan.copies_rows ? in_order(plan.k.rotated_dim) : columns_of(plan.k);
  plan.value_columns = plan.copies_rows ? in_order(plan.shares_rows ? dim_v / 2 : dim_v) : columns_of(plan.v);
  if (plan.by_mma && dim_v > kMostMmaSums)
    return fail(Code::unsupported,
                fmt::format("{} has no wgmma: there a warp has the sums of {} dimensions of V at most",
                            problem.arch.name, kMostMmaSums));
  if (is_wide || plan.by_mma) plan.blocks = plan.stages = 1;
  if (problem.query_rows() <= kFewRows && !is_wide) plan.blocks = 1, plan.producer_warps = 8;
  plan.alternates = problem.query_rows() <= kSharedRows && !is_wide && !plan.by_mma;
  if (plan.by_mma) plan.producer_warps = 0;
  // Queries are halves. Output passes through as floats: a block of 64 rows at once if there is room, else half of it.
  const int columns = plan.shares_rows ? dim_v / 2 : dim_v;  // of the output of a consumer
  plan.query_bytes = std::max(plan.blocks * 64 * dim_k * 2 / (plan.shares_rows ? 2 : 1), 32 * columns * 4);
  plan.output_passes = plan.query_bytes >= 64 * columns * 4 ? 1 : 2;
  plan.keys_at = plan.queries_at + 2 * plan.query_bytes;
  plan.values_at = plan.keys_at + plan.stages * plan.tokens * dim_k * 2;
  plan.probabilities_at = plan.values_at + plan.stages * plan.tokens * dim_v * 2;
  plan.barriers_at = plan.probabilities_at + (plan.shares_rows ? 64 * plan.tokens * 2 : 0);
  const SectionPlan& keys = plan.k.sections[0];
  // Rounded to fp16, a float32 scale would be off by the same for all values of a row.
  const bool is_wide_scale = plan.k.format.scale.type == ScaleType::f32 && !plan.k.format.scale.renormalise;
  plan.scales_scores = !plan.copies_rows && keys.use == ScaleUse::by_group &&
                       keys.reads.groups * keys.reads.blocks == 1 && !keys.adds_minima &&
                       (keys.reads.reads_per_group == 1 || is_wide_scale);
  plan.tracks_maximum = plan.stages == 1 || changes_scores(problem.features) || problem.k.has_head_scales();
  plan.exchange_at = plan.barriers_at + kBarrierBytes;
  plan.posts_at = plan.exchange_at + (plan.shares_rows ? kExchangeBytes : 0);
  set_hidden(plan);
  plan.cleared_at = plan.posts_at + (plan.posts_work() ? kPostBytes : 0);
  plan.score_scales_at = plan.cleared_at + (plan.hides_tokens() ? round_up(plan.stages * plan.tokens / 8, 16) : 0);
  plan.ones_at = plan.score_scales_at + (plan.scales_scores ? plan.stages * kScoreScaleBytes : 0);
  plan.over_context_chunks = chunk.has_value();
  if (chunk) {
    plan.is_one_of_two = chunk->has_other;
    plan.key_range.is_wide = chunk->k_powers, plan.value_range.is_wide = chunk->v_powers;
  } else if (!plan.copies_rows) {
    if (!plan.scales_scores) plan.key_range = fitting_range(plan.k);
    plan.value_range = fitting_range(plan.v);
  }
  plan.exponents_at = plan.ones_at + (plan.scales_scores ? kOnesBytes : 0);
  const int wide_sides = int(plan.key_range.is_wide) + int(plan.value_range.is_wide);
  plan.query_factors_at = plan.exponents_at + wide_sides * plan.exponent_places() * plan.tokens;
  int end = plan.query_factors_at + (plan.has_query_factors() ? 2 * plan.blocks * 64 * int(sizeof(float)) : 0);
  if (!plan.copies_rows) end = place_entries(plan.v, place_entries(plan.k, end));
  plan.ring_at = round_up(end, kSector);
  KV_TRY(ring_bytes, size_ring(plan));
  plan.shared_bytes = plan.ring_at + ring_bytes;
  if (plan.shared_bytes > plan.arch.shared_bytes_per_block)
    return fail(Code::unsupported, fmt::format("{} bytes of shared memory for queries, K and V, and {} has {}",
                                               plan.shared_bytes, plan.arch.name, plan.arch.shared_bytes_per_block));
  set_registers(plan);

  const SidePlan* const sides[] = {&plan.k, &plan.v};
  for (int i = 0; i < 2; ++i)
    plan.decisions.push_back({i == 0 ? "k" : "v",
                              sides[i]->format.name,
                              fmt::format("prefill: {}{}, {} bytes of shared memory a stage and warp",
                                          converter(plan, sides[i]->sections[0]),
                                          i == 0 && plan.scales_scores ? ", scales times scores" : "",
                                          plan.copies_rows ? 0 : sides[i]->stage_bytes),
                              {}});
  plan.least_queries = (least_chosen_rows(plan) + plan.q_heads_per_kv - 1) / plan.q_heads_per_kv;
  plan.choice = choose(plan, problem);
  plan.decisions.push_back({"prefill",
                            fmt::format("{} rows a block", plan.rows()),
                            roles_text(plan) + "; " + choice_text(plan, problem),
                            {}});
  return plan;
}

}  // namespace kvjit
