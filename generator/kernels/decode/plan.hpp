// DecodePlan: everything that the decode family decided for one problem, with the reasons as Decisions. A plan holds
// numbers, the formats of both sides and the arch; emit.cpp writes it as text. plan_decode makes it. The other
// functions are its steps, which are public for their tests.
//
// Three words recur. A lane read is the bytes of a staged row that one lane loads and unpacks at once. A row lane is
// the number of a lane among those that share a staged row. A code lane is a bit field of a word with space for one
// code; its number in the word is called its slot.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/catalogue/arch.hpp"
#include "generator/formats/e8.hpp"
#include "generator/formats/format.hpp"
#include "generator/kernels/decode/tuned_shape.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// One term of an unpacked word: (shift >= 0 ? w[word] >> shift : w[word] << -shift) & mask. w are the loaded words, and
// behind them the helper words (LaneReads::helpers).
struct UnpackTerm {
  int word = 0, shift = 0;
  std::uint32_t mask = 0;
};
using UnpackWord = std::vector<UnpackTerm>;  // the bitwise or of its terms

// The code lanes of a word, to which codes are spread.
struct CodeLanes {
  int bits = 8,          // of a code lane: 2, 4 or 8; or 3: two code lanes a byte, at bits 0 and 3
      offset = 0;        // bits below the code in its code lane
  bool is_clean = true;  // bits above the code in its code lane are zero; else they may have any value
  int per_word() const { return bits == 3 ? 8 : 32 / bits; }
  int place(int slot) const { return bits == 3 ? slot / 2 * 8 + slot % 2 * 3 : slot * bits; }
  int width(int slot) const { return bits == 3 && slot % 2 ? 5 : bits; }
};

// A lane loads these bytes from one field of codes (a plane) for one lane read. In stored block
//   group * blocks + row_lane / lanes_per_block
// the bits of (group, read, row_lane) begin at bit
//   lane_bits * (row_lane % lanes_per_block) + read_bits * read
// of the field.
struct FieldRead {
  int at = 0;         // bytes from the start of a stored block to the field
  int lane_bits = 0;  // from lane to lane; if no multiple of 8, reads start inside a byte and are shifted into place
  int read_bits = 0;  // from lane read to lane read; a multiple of 8, unless there is one read
  // Lane i of a block loads the bytes of lane i % wrap and shifts them right by i / wrap * wrap_bits bits. 0: each lane
  // has bytes of its own.
  int wrap = 0, wrap_bits = 0;
  // Lanes i and i + shared of each 2 * shared lanes load the same bytes, and lane i + shared shifts them right by
  // shared_bits. lane_bits is then the distance from one such pair to the next. 0: no lanes share bytes.
  int shared = 0, shared_bits = 0;
  int lanes_before(int lane) const {  // how many pairs of lanes, or lanes with bytes of their own, come before
    return wrap > 0 ? lane % wrap : shared > 0 ? lane / (2 * shared) * shared + lane % shared : lane;
  }
  // The field is a circle. Behind the bytes of a lane read the first byte of the next one is loaded, or each lane loads
  // the whole field and turns it.
  bool is_circular = false;
  bool loads_whole_field = false;  // each lane loads the whole field (at most a word) and shifts
  int load_bytes = 0,              // bytes of the field that one lane read needs
      words = 0,                   // words that hold them
      first_word = 0;              // number of the first among the words of all planes
  int unit = 1;  // bytes of one load; where a lane's bytes begin inside a unit, the loaded words are shifted into place
  bool is_unaligned = false;  // the bytes begin at any address: aligned loads around them, shifted into place
};

// How the lanes of a warp read the codes of one section of a staged row. A row has `groups` groups of stored blocks.
// Each lane of a row has `reads_per_group` lane reads in every group, and each lane read holds `codes` codes.
struct LaneReads {
  int lanes_per_row = 0,  // K: 4; V: 8 for each warp that shares the row
      groups = 1, reads_per_group = 1, codes = 0;
  int blocks = 1;                 // stored blocks of a group
  int lanes_per_block = 0;        // lanes that share a stored block
  int block_stride = 0;           // bytes from one stored block of a staged row to the next
  int words = 0;                  // loaded words of a lane read, of all planes
  std::vector<FieldRead> planes;  // one for each field of codes of the section
  // The unpack sequence: helper words, numbered from `words` on, and then the words of code lanes.
  std::vector<UnpackWord> helpers, unpack;
  std::vector<int> lane_order;  // the code (by position in the lane read) in slot j of word m, at [m * per_word + j]
  // The rotated-domain dimension of code k of (group, read, row_lane), at
  // [((group * reads_per_group + read) * lanes_per_row + row_lane) * codes + k].
  std::vector<int> elements;
  bool is_joined = false;  // V: a lane read is half a word, and `unpack` takes those of tokens t and t + 8 as one word
  int bank_cost = 0;       // shared-memory wavefronts of the warp's first load; ideal is one for every 128 bytes
};

// How K's codes become 8-bit integers (templates/kernels/decode/unpack_int8.cuh).
enum class IntegerKind {
  none,      // they do not become integers, and K is multiplied as fp16
  plain,     // codes are integers already
  table8,    // up to 8 entries
  mirrored,  // 16 entries; entry i + 8 is the negative of entry i
  table16    // up to 16 entries
};
// value = unit * (y + half) for entries of one byte y, or unit * (y + z / 256) for entries of two bytes y and z.
struct IntegerPlan {
  IntegerKind kind = IntegerKind::none;
  int code_terms = 1;             // bytes of an entry, 1 or 2
  double sum_factor = 0;          // is added to each code, by way of the sum of Q
  bool counts_from_zero = false;  // plain: codes count from a zero point of the token, which is added in this way, too
  CodeLanes slots;                // to which codes are unpacked
  bool flips = false;             // plain: the top bit of each byte is flipped
  std::vector<std::uint32_t> table;  // y of codes 0..15, four a word; then z of codes 0..15
  double unit = 1;
};

// How codes of up to four bits become halves by permutes of registers (templates/kernels/prefill/unpack_permutes.cuh).
enum class PermuteKind {
  none,     // they do not: codes are computed, or looked up in shared memory
  eight,    // up to 8 entries
  pairs,    // 16 entries in opposite pairs
  sixteen,  // any 16 entries
};
struct PermutePlan {
  PermuteKind kind = PermuteKind::none;
  // pairs: the codes whose bit 3 is this have the entries of the table, and the others have their opposites.
  bool positive = false;
  bool descends = false;             // pairs: codes of the other half have their entries in descending order
  std::vector<std::uint32_t> table;  // low bytes of entries 0..15, four a word; then the high bytes
  int at = 0;                        // bytes from the start of shared memory
  int words() const { return kind == PermuteKind::sixteen ? 4 : 2; }
};

// Where in the pipeline a section's scale meets its codes.
enum class ScaleUse {
  none,
  by_group,  // K: times the score of a group; V: times the probabilities
  by_value,  // times each unpacked value, in fp16: blocks below 32 values or of several scale groups; V with a minimum
};

// One section of one side of the decode family.
struct SectionPlan {
  Section codes;           // of blocks with a stored mask: the section of the narrow codes
  bool is_masked = false;  // each block stores the mask of its outliers
  IntegerPlan integers;    // K only
  PermutePlan permutes;    // sides whose rows become halves in shared memory (SidePlan::to_halves)
  // V with a table of up to four bits: bits of the code lanes, such that the codes of two tokens come to lie side by
  // side in a byte. With 3 and 4 one look-up gives a half2 (two tokens of a channel), with 2 the half2 of two channels.
  // 0: codes are not looked up like this.
  int code_lane_bits = 0;
  // Segments of K in E4M3 only: halves keep the order of the stored bytes, because Q's dimensions may be in any order.
  bool keeps_order = false;
  // K in bf16 or f32 on an arch with products of bf16: values are multiplied as bfloats (one for bf16, three for f32),
  // which have the exponents of f32. On other archs each token's elements are divided by a power of two.
  bool as_bfloats = false, divides_elements = false;
  int query_terms = 1;  // K: numbers that an element of Q is split into for this section, as fp16 or as bfloats
  LaneReads reads;
  ScaleUse use = ScaleUse::none;
  bool adds_minima = false;  // K by group: the minimum times the sum of the query over the group is added to the score
  bool subtracts_zeros = false;  // V by group, and rows of prefill: the zero point is subtracted from codes, in fp16
  int first = 0, dim = 0;        // first dimension and number of dimensions of the section, as the kernel numbers them
  bool owns_table = false;       // its table is not that of a section before
  int table_at = 0;              // bytes from the start of shared memory
  std::vector<std::uint16_t> halves;  // table: the bits of value / unit as fp16
  int at_once = 1;                    // trellis: the states of neighbouring codes that one look-up finds, 1 or 2
  double unit = 1;                    // value = unit * the unpacked number
  double factor = 1;                  // scale = factor * the stored scale
  // A segment has a format of its own. Field::plane_at counts from the start of the row here, or from the start of the
  // row's scales. If the format stores no scale, the scale is 1. scale_stride is the number of bytes from the scales of
  // one block of the segment to those of the next.
  std::optional<Format> own;
  int scale_stride = 0;
  bool has_aligned_scales = false;  // scales that are stored as f32 stand at multiples of four bytes
  bool is_wide() const {            // elements of bf16 or f32
    return codes.kind == CodeKind::plain && (codes.element == Element::bf16 || codes.element == Element::f32);
  }
  // The largest magnitude of the halves that codes are unpacked to.
  double largest_code() const;
};

// Bytes of shared memory that features may use for a query row (templates/kernels/decode/features.cuh).
constexpr int feature_row_bytes(bool has_hook) { return has_hook ? 88 : 64; }

struct SidePlan {
  Format format;
  bool is_planar = true;
  int widest_read = 16;          // bytes of a lane read, at most
  bool to_halves = false;        // rows become halves in shared memory (the family prefill), not operands in registers
  int rotated_dim = 0;           // values of a row in the rotated domain
  int row_bytes = 0, pitch = 0;  // bytes of a staged row (codes, or whole blocks), and from row to row
  int pad_bytes = 0;             // zeros behind a staged row, where a head does not fill the lanes of a warp
  int swizzle = 0;               // of 16-byte chunks: kSwizzle of templates/kernels/decode/stage_tile.cuh
  // Unaligned rows (templates/kernels/decode/unaligned_rows.cuh): aligned chunks are copied, so a staged row starts 0
  // to 30 bytes into its slot, at the same offset modulo slot_align bytes as in memory.
  bool is_misaligned = false;
  int slot_align = 32;
  // Long rows (templates/kernels/decode/rare/record_rows.cuh). keeps_sectors: a staged row starts 0 or 16 bytes
  // into its slot, at the same offset modulo 32 bytes as in memory.
  bool is_record = false, keeps_sectors = false;
  // Long rows come by bulk copies (templates/kernels/decode/rare/bulk_rows.cuh). They keep no sectors.
  bool by_bulk = false;
  bool has_even_odd_order = false;  // of each eight rows, the even ones are staged before the odd ones
  bool caches_in_l1 = false;        // copies pass through the L1, where those of one line meet
  bool in_keys = false;             // V is read from K's staged rows
  // V: eight lanes' codes of a token are a chunk of 16 bytes, and those of eight tokens a matrix that the hardware
  // transposes (templates/kernels/decode/warp_team_ldmatrix.cuh).
  bool by_matrices = false;
  // Token-major heads (templates/kernels/decode/stage_token_heads.cuh): heads that are staged together; tokens of the
  // tile that the places are for; bytes of an eighth of a tile; eighths in one copy; bytes of the gap behind a copy.
  int heads = 1, placed_tile = 0, eighth_bytes = 0, copy_eighths = 8, copy_gap = 0;
  int eighth_at(int eighth) const { return eighth * eighth_bytes + eighth / copy_eighths * copy_gap; }
  int block_stride = 0;  // bytes from one stored block of a staged row to the next; segments have their own
  // Scales: bytes of a row in layout planar; bytes from the start of a stage; from row to row; from block to block.
  int scale_row_bytes = 0, scales_at = 0, scale_pitch = 0, scale_stride = 0;
  int stage_bytes = 0;                     // bytes of this side in a stage
  int table_stride = 4, table_copies = 1;  // bytes from entry to entry of a table, and copies of each entry
  double unit = 1;  // of the first section's unpacked numbers; multiplied into the softmax scale (K) or the output (V)
  // V: values, or the scales that multiply probabilities, may leave fp16's range (templates/kernels/decode/rare/
  // wide_values.cuh, half_scales.cuh).
  bool is_wide = false;
  bool has_half_scales = false;  // values may leave it by stored halves that multiply them, and by minima; K, too
  // Whether a value is a number unless its scale is none, or what is looked at beside scales (is_wide).
  bool codes_are_numbers() const;
  std::vector<SectionPlan> sections;
};

// The shape is that of the kernel's own call. q_type is what the kernel reads: f32 if rotate_q wrote it. out_type is
// what a kernel that merges writes: f32 if rotate_out reads it.
struct DecodePlan : AttentionShape {
  std::string name;
  Arch arch;
  int column_blocks = 1;          // blocks of 8 columns of the tensor cores, a query row each, which hold `rows`
  int rows = 1,                   // query rows that a block takes at once
      query_chunks = 1;           // chunks of so many rows that make up all query rows of a KV head
  int query_terms = 1;            // numbers that an element of Q is split into, at most: those of the sections
  bool scales_queries = false;    // each row of Q is in a unit of its own
  bool hold_queries = false;      // fragments of Q stay in registers, else in shared memory
  bool has_integer_keys = false;  // K is multiplied as 8-bit integers
  // The steps of the launch beside attention: Q into K's rotated domain before; the fused merge; the output out of V's
  // rotated domain after. KV splits that it does not merge are left for `merge`, which then rotates the output.
  bool rotates_queries = false, fuses_merge = false, rotates_output = false;
  int warps = 0, stages = 0, tile = 0;  // of a block: warps, stages of the ring, tokens of a tile
  int subtiles = 1;                     // subtiles of 16 tokens that a warp scores together
  // Warp teams (templates/kernels/decode/warp_team.cuh): warps that take their tiles together, so that each needs sums
  // for less of the output. value_share warps have different dimensions of V; the others of a team have different
  // blocks of columns.
  int team = 1, value_share = 1;
  bool scales_probabilities = false;  // V's scale of a token multiplies its probability in the warp that scored it
  int probability_buffers = 1;        // with two of them a round of a team has one barrier
  bool shares_reference_max = false;  // reference maxima of the softmax are in shared memory, not in registers
  bool by_warpgroups = false;         // wgmma: templates/kernels/decode/warp_team_wgmma.cuh
  // Shared memory of a block, in bytes from its start (layout_shared of block_shape.cpp). sum_groups is the number of
  // scale groups of K over which Q is summed; stage_bytes is the size of a stage (K and V).
  int feature_rows_at = 0;  // the numbers that features have for each query row
  int scheduler_at = 0, row_count_at = 0, order_at = 0, integer_table_at = 0, queries_at = 0, sums_at = 0,
      sum_groups = 0, units_at = 0, row_max_at = 0, reference_max_at = 0, probabilities_at = 0, ring_at = 0,
      stage_bytes = 0, epilogue_at = 0, shared_bytes = 0;
  int append_bytes = 0;  // of a warp, in which it packs new rows (append), from ring_at on
  // Token-major heads: KV heads that a block takes together, and where the barriers of its copies are. q_heads_per_kv
  // and rows are those of one head.
  int heads = 1, barriers_at = 0;
  SidePlan k, v;
  std::vector<int> key_order, value_order;  // order_keys and order_values of plan.cpp say how they are indexed
  std::vector<Decision> decisions;
  int threads() const { return warps * 32; }
  // Steps of a warp in the fused merge. A step merges 128 sums of a row, over kSplitsAtOnce KV splits at a time.
  int merge_steps() const { return (rows + warps - 1) / warps * ((v.rotated_dim + 127) / 128); }
  bool may_need_merge_kernel() const { return !fuses_merge || merge_steps() > 1; }
  int streams() const { return warps / heads; }  // streams of tiles, each with a ring of stages
  int own_blocks() const { return column_blocks / (team / value_share); }  // blocks of columns of one warp
  // Registers a lane for the sums of the output.
  int sums() const { return own_blocks() * v.rotated_dim / value_share / 4; }
};

// A way to divide the output of a decode block among warps: one warp alone has all of it, or a team divides it.
struct TeamPlan {
  int warps = 1, value_share = 1, column_blocks = 1;
  bool by_warpgroups = false;
  SidePlan k, v;  // as the team reads them
};
// The sides of teams, each planned when a team first asks for it. They do not depend on the query rows.
class TeamSides {
  const Problem& problem_;
  std::map<int, Result<SidePlan>> shared_values_;                   // by the warps that share V's dimensions
  std::optional<Result<std::pair<SidePlan, SidePlan>>> warpgroup_;  // K and V

 public:
  const SidePlan k, v;  // as one warp reads them
  TeamSides(const Problem& problem, SidePlan keys, SidePlan values)
      : problem_(problem), k(std::move(keys)), v(std::move(values)) {}
  const Problem& problem() const { return problem_; }
  const Result<SidePlan>& shared_values(int warps);
  const Result<std::pair<SidePlan, SidePlan>>& warpgroup();
};
// Offers the teams whose sums fit the registers, the best first, until `takes` returns true: whether one was taken. A
// team is planned when it is offered. Fails with unsupported if there are none.
Result<bool> offer_teams(TeamSides& sides, int rows, const std::function<bool(const TeamPlan&)>& takes);
// Chooses the most query rows at once for which a team has a block shape, the best such team, and the shape: the
// measured one, or the planner's own.
Result<BlockShape> choose_block(DecodePlan& plan, const Problem& problem, const Tuning& tuning);
// All shapes that blocks of that team can have, the best first.
Result<std::vector<BlockShape>> fitting_shapes(DecodePlan plan, const Problem& problem);

// Fails with unsupported; the error has each reason and the TOML key to change. tuning: a measured shape. If it was
// measured for this very problem it must fit; if another does not fit, the planner takes its own.
Result<DecodePlan> plan_decode(const Problem& problem, const Tuning& tuning = {});
// All shapes that plan_decode chooses from; the first is the planner's own.
Result<std::vector<BlockShape>> decode_shapes(const Problem& problem);

// Plans the staged rows of one side and how lanes read them. by_integers: K's codes become 8-bit integers where the
// format allows. value_share: warps that share a row of V. widest_read: bytes of a lane read, at most. by_matrices: V
// is loaded by ldmatrix where its layout allows.
Result<SidePlan> plan_side(const Format& format, int head_dim, bool is_planar, bool is_key, bool by_integers = false,
                           int value_share = 1, int widest_read = 16, bool by_matrices = false);

// Chooses where the staged rows of a side are and by which loads lanes read them: the fewest bank conflicts, then the
// least memory.
void place_rows(SidePlan& side, bool is_key);
// Keeps the offset of unaligned rows modulo 16 bytes alone, if they are in pages: pages may lie 16 bytes apart.
void align_slots(SidePlan& side, int page_tokens);
// The same for long rows (SidePlan::is_record): those of records of 16 modulo 32 bytes, and if by_bulk says so all that
// bulk copies can bring. Does nothing with other rows.
void place_records(SidePlan& side, const Problem& problem, bool is_key, bool by_bulk);
// The same for V whose rows are the first channels of K's: they are where K's are.
void put_in_keys(SidePlan& v, const SidePlan& k);
// The same for records, where K's are not placed for good: both are placed for the loads of both.
void place_together(SidePlan& k, SidePlan& v);
// The same for token-major heads, in tiles of `tile` tokens.
void place_token_heads(SidePlan& side, bool is_key, int tile);

// Fails with unsupported, and the reason, if token-major heads cannot be served by a plan of one head.
Result<void> check_token_heads(const DecodePlan& plan, const Problem& problem);

// Entries of the table of vectors, of two words each: a root for each byte, and the radii.
inline constexpr int kVectorEntries = 256 + kE8Radii;

// Whether codes are spread to code lanes, and their values change places. Else a lane's registers hold values in the
// order of the stored row.
inline bool is_spread(const Section& codes) { return !codes.is_wide() && !codes.is_trellis() && !codes.is_vector(); }
inline bool is_direct(const SectionPlan& section) {
  return section.is_masked || section.keeps_order || !is_spread(section.codes);
}

// How K's codes become integers: exactly, or closer than fp16 numbers are. Of kind none where that is not possible, or
// slower than fp16.
IntegerPlan plan_integers(const Format& format, ScaleUse use);

// The lane reads of one section for `lanes_per_row` lanes a row. side: its geometry (block_stride, layout).
// is_by_value: a lane read must not cross scale groups. slots: the code lanes of the unpack sequence.
Result<LaneReads> plan_lane_reads(const SidePlan& side, int section, int head_dim, int lanes_per_row, bool is_by_value,
                                  const CodeLanes& slots = {});

// Bytes of a line of shared memory, at which copied rows and scales begin. A copy asks the L2 twice for a sector (32
// bytes) that goes to two sectors of shared memory.
constexpr int kLine = 128;
// Sets the size of one side in a stage of `tile` tokens, and where its scales begin: at a multiple of `line` bytes.
void size_stage(SidePlan& side, int tile, int line = kLine);

// Neighbouring bits of a code: bits low .. low + bits - 1 of the code are at bit `at` of the loaded words.
struct CodePiece {
  int at = 0, bits = 0, low = 0;
};
using CodePieces = std::vector<std::vector<CodePiece>>;  // of each code, the widest first
// Plans the shifts and masks that spread codes to words of code lanes, and the slot of each code. Codes that need the
// same shift share a term, so the terms are few.
void plan_unpack(CodePieces codes, LaneReads& reads, const CodeLanes& slots = {});

// Shared-memory wavefronts of one load of `unit` bytes a lane. addresses: the byte address of each lane.
int bank_wavefronts(const std::vector<int>& addresses, int unit);

}  // namespace kvjit
