// DecodePlan: everything that the decode family decided for one problem, with the reasons as Decisions. A plan holds
// numbers, the formats of both sides and the arch; emit.cpp writes it as text. plan_decode makes it, in the order that
// plan.cpp says; the functions behind it are public for their tests.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/catalogue/arch.hpp"
#include "generator/formats/format.hpp"
#include "generator/kernels/decode/tuned_shape.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// One term of a word that is put together: (shift >= 0 ? w[word] >> shift : w[word] << -shift) & mask.
struct UnpackTerm {
  int word = 0, shift = 0;
  std::uint32_t mask = 0;
};
using UnpackWord = std::vector<UnpackTerm>;  // the terms, ored

// What a code is spread to: slots of `bits` bits (2, 4 or 8; or 3: two to a byte, the second at bit 3), in which it
// lies `offset` bits up.
struct CodeLanes {
  int bits = 8, offset = 0;
  bool is_clean = true;  // else what lies above a code in its slot may be anything
  int per_word() const { return bits == 3 ? 8 : 32 / bits; }
  int place(int slot) const { return bits == 3 ? slot / 2 * 8 + slot % 2 * 3 : slot * bits; }
  int width(int slot) const { return bits == 3 && slot % 2 ? 5 : bits; }
};

// Bytes that a lane loads from one field of codes for one run. The field's bits of (group, run, part) begin at bit
//   lane_bits * (part % lanes_per_block) + read_bits * run  of the field in block  group * blocks + part / lanes_per_block.
struct FieldRead {
  int at = 0;         // of the field in a block of the staged row
  int lane_bits = 0;  // not a multiple of 8: runs start inside a byte, and are shifted into place
  int read_bits = 0;  // a multiple of 8, unless there is one run
  // Parts from `wrap` on load what parts from 0 on do, and shift it right by wrap_bits. 0: they do not.
  int wrap = 0, wrap_bits = 0;
  bool loads_whole_field = false;                 // every lane loads the whole field (it is a word or less) and shifts
  int load_bytes = 0, words = 0, first_word = 0;  // of the load; where its words stand among those of all planes
  int unit =
      1;  // bytes of one load; where a part does not begin at a multiple, words from there on are shifted into place
  bool is_unaligned = false;  // from any byte on: aligned loads around it, shifted into place
};

// How the lanes of a warp read the codes of one section of a staged row. `lanes_per_row` lanes share a row (K: 4, V:
// 8); each owns `reads_per_group` runs of bytes in every group, and each run holds `codes` codes.
struct LaneReads {
  int lanes_per_row = 0, groups = 1, reads_per_group = 1, codes = 0;
  int blocks = 1;           // stored blocks a group
  int lanes_per_block = 0;  // lanes that share a block
  int words = 0;            // of all planes
  std::vector<FieldRead> planes;
  // The unpack sequence: words that are made on the way, numbered from `words` on, and then the words of slots.
  std::vector<UnpackWord> helpers, unpack;
  std::vector<int> lane_order;  // code (by position in the run) in slot j of word m, at [slots a word * m + j]
  // Inner dimension of code k of (group, run, part), at [((group * runs + run) * parts + part) * codes + k].
  std::vector<int> elements;
  // A run of V that is half a word: `unpack` takes the runs of tokens t and t + 8 together, as one word.
  bool is_joined = false;
  int bank_cost = 0;  // shared-memory wavefronts of the first load of the warp (1 a 128 bytes is ideal)
};

// K's codes as 8-bit integers (templates/kernels/decode/unpack_int8.cuh): value = unit * (y + half), or in two parts
// unit * (y + z / 256).
enum class IntegerKind { none, plain, table8, mirrored, table16 };
struct IntegerPlan {
  IntegerKind kind = IntegerKind::none;
  int code_parts = 1;
  bool has_half = false;  // half is 1/2, else 0
  CodeLanes slots;
  bool flips = false;                // plain: the top bit of each byte is turned over
  std::vector<std::uint32_t> table;  // bytes of codes 0..15 of the first part, then of the second
  double unit = 1;
};

// Where in the pipeline a section's scale meets its codes.
enum class ScaleUse {
  none,
  by_group,  // K: times the score of a group; V: times the probabilities
  by_value,  // times each decoded value, in fp16 (groups below 32, or a minimum to add)
};

// One section of one side of the decode family.
struct SectionPlan {
  Section codes;  // of a block with its own mask: the narrow ones
  bool is_masked = false;
  IntegerPlan integers;
  // V: a table of up to four bits whose codes are spread to slots of this many bits, those of two tokens next to each
  // other in a byte: with 3 and 4 a look-up gives a pair, with 2 the pairs of two channels. 0: any other way.
  int code_lane_bits = 0;
  LaneReads reads;
  ScaleUse use = ScaleUse::none;
  bool adds_minima = false;  // K by group: minimum times the sum of the query over the group joins the score
  int first = 0, dim = 0;    // its share of the inner dimension, as the kernel numbers it
  bool owns_table = false;
  int table_at = 0;
  std::vector<std::uint16_t> halves;  // table: value / unit as halves
  double unit = 1;                    // value = unit * what the pairs hold
  double factor = 1;                  // its scale is the stored one times this
};

// Bytes of shared memory that features may use for a row of queries (templates/kernels/decode/features.cuh).
constexpr int feature_row_bytes(bool has_hook) { return has_hook ? 88 : 64; }

struct SidePlan {
  Format format;
  bool is_planar = true;
  int widest_read = 16;  // bytes of codes that a lane takes at a time, at most
  int rotated_dim = 0;
  int row_bytes = 0, pitch = 0;  // staged codes (or whole rows)
  int pad_bytes = 0;             // zeros behind a staged row, where a head does not fill the lanes of a warp
  int swizzle = 0;  // of their 16-byte chunks (templates/kernels/decode/stage_tile.cuh); 0: none, < 0: of single ones
  bool is_misaligned = false;       // copied by aligned chunks: a staged row starts 0 to 30 bytes into its slot
  int slot_align = 32;              // ... where it does among so many bytes of memory
  bool has_even_odd_order = false;  // even rows of eight before odd ones
  bool caches_in_l1 = false;        // by way of the L1, where copies of one line meet
  // V: eight lanes' codes of a token are a chunk of 16 bytes, and those of eight tokens a matrix that the hardware
  // transposes (templates/kernels/decode/warp_team_ldmatrix.cuh).
  bool by_matrices = false;
  // Heads that are staged together (templates/kernels/decode/stage_token_heads.cuh), in tiles of how many tokens; bytes
  // of an eighth of a tile; how many of them are copied at once, and the gap behind.
  int heads = 1, placed_tile = 0, eighth_bytes = 0, copy_eighths = 8, copy_gap = 0;
  int eighth_at(int eighth) const { return eighth * eighth_bytes + eighth / copy_eighths * copy_gap; }
  int block_stride = 0;  // of a stored block inside a staged row
  int scale_row_bytes = 0, scales_at = 0, scale_pitch = 0, scale_stride = 0;
  int stage_bytes = 0;
  int table_stride = 4, table_copies = 1;
  double unit = 1;  // what the pairs of the first section still need; joins the softmax scale (K) or the output (V)
  std::vector<SectionPlan> sections;
};

// The shape is that of the kernel's own call. q_type is what the kernel reads: f32 if Q was transformed before.
// out_type is what it writes if it finishes: f32 if the output is transformed after.
struct DecodePlan : AttentionShape {
  std::string name;
  Arch arch;
  int column_blocks = 1;
  int rows = 1,
      query_chunks = 1;  // query rows that a block takes at once; times that it takes to serve all of a KV head
  int query_parts = 1;
  bool scales_queries = false;  // Q in a unit that its largest element gives
  bool hold_queries = false;    // fragments of Q stay in registers
  bool has_integer_keys = false;
  // One launch: queries into K's domain before, parts of a pair to rows of output after, and those out of V's domain.
  // What is not finished at once is left for `merge`, which then rotates.
  bool rotates_queries = false, fuses_merge = false, rotates_output = false;
  int warps = 0, stages = 0, tile = 0;
  int subtiles = 1;  // of 16 tokens, taken together
  // Warps that share their tiles, so that each needs sums for less of the output
  // (templates/kernels/decode/warp_team.cuh): value_share of them have other dimensions of V, the others of a team
  // other blocks of columns.
  int team = 1, value_share = 1;
  bool scales_probabilities = false;  // V's scale of a token, in the warp that has scored it
  int probability_buffers = 1;        // with two of them a round has one barrier
  bool shares_reference_max = false;  // bases of the softmax stand in shared memory
  bool by_warpgroups = false;         // its products as one: templates/kernels/decode/warp_team_wgmma.cuh
  int feature_rows_at = 0;            // of features, if there are any: what each row has of its own
  int scheduler_at = 0, order_at = 0, integer_table_at = 0, queries_at = 0, sums_at = 0, sum_groups = 0, largest_at = 0,
      row_max_at = 0, reference_max_at = 0, probabilities_at = 0, ring_at = 0, stage_bytes = 0, epilogue_at = 0,
      shared_bytes = 0;
  // KV heads that a block takes together, and where the barriers of its copies stand. q_heads_per_kv and rows are those
  // of one of them.
  int heads = 1, barriers_at = 0;
  SidePlan k, v;
  std::vector<int> key_order, value_order;
  std::vector<Decision> decisions;
  int threads() const { return warps * 32; }
  // Of 128 sums of a row, that a warp of a block takes to put the parts of a pair together, 16 at once.
  int merge_steps() const { return (rows + warps - 1) / warps * ((v.rotated_dim + 127) / 128); }
  bool may_need_merge_kernel() const { return !fuses_merge || merge_steps() > 1; }
  int streams() const { return warps / heads; }                            // of tiles, each with a ring of stages
  int own_blocks() const { return column_blocks / (team / value_share); }  // of columns, a warp
  int sums() const {
    return own_blocks() * v.rotated_dim / value_share / 4;
  }  // registers of a warp's share of the output
};

// Who adds up the output of a decode block: one warp alone, or a team.
struct TeamPlan {
  int warps = 1, value_share = 1, column_blocks = 1;
  bool by_warpgroups = false;
  SidePlan k, v;  // as that takes them
};
// Those whose sums fit their registers, the best first; k and v as one warp takes them. Fails with unsupported where
// there are none.
Result<std::vector<TeamPlan>> plan_teams(const Problem& problem, int rows, const SidePlan& k, const SidePlan& v);
// As many rows at once as any team has a shape of blocks for, the best such team; and that shape: measured, or the
// planner's own.
Result<BlockShape> choose_block(DecodePlan& plan, const Problem& problem, const Tuning& tuning);
// Every shape that blocks of that team can have, the best first.
Result<std::vector<BlockShape>> fitting_shapes(DecodePlan plan, const Problem& problem);

// Fails with unsupported: each reason, with the TOML key to change. tuning: a measured shape; one that was measured for
// this very problem must fit, another one that does not is left for the planner's own.
Result<DecodePlan> plan_decode(const Problem& problem, const Tuning& tuning = {});
// Every shape that plan_decode chooses from, the one it takes on its own first.
Result<std::vector<BlockShape>> decode_shapes(const Problem& problem);

// The geometry and the reads of one side; the building blocks of plan_decode, public for their tests. by_integers: K's
// codes as 8-bit integers where the format has them. value_share: warps that share a row of V. widest_read: bytes.
// by_matrices: V's codes as matrices, where they lie like that.
Result<SidePlan> plan_side(const Format& format, int head_dim, bool is_planar, bool is_key, bool by_integers = false,
                           int value_share = 1, int widest_read = 16, bool by_matrices = false);

// Where the staged rows of a side stand, and how lanes load their runs: few bank conflicts, then little memory.
void place_rows(SidePlan& side, bool is_key);
// The same for all heads of a token, in tiles of that many tokens.
void place_token_heads(SidePlan& side, bool is_key, int tile);

// Whether a plan of one head can be one of all heads of a token; else why not.
Result<void> check_token_heads(const DecodePlan& plan, const Problem& problem);

// Whether the codes of a side with one section are multiplied as integers faster than as halves, exactly or to 2^-15.
IntegerPlan plan_integers(const Format& format, ScaleUse use);

// The reads of one section for `lanes_per_row` lanes a row. side: its geometry (block_stride, layout). is_by_value: a
// run must not cross groups of scales. slots: what codes are spread to, if they are.
Result<LaneReads> plan_lane_reads(const SidePlan& side, int section, int head_dim, int lanes_per_row, bool is_by_value,
                                  const CodeLanes& slots = {});

// A piece of a code: `bits` bits at bit `at` of the loaded words, which are bits low .. of the code.
struct CodePiece {
  int at = 0, bits = 0, low = 0;
};
using CodePieces = std::vector<std::vector<CodePiece>>;  // of each code, the largest first
// The sequence of shifts and masks that spreads codes to words of slots, and the slot each code lands in: few terms, as
// pieces of equal shift share one.
void plan_unpack(CodePieces codes, LaneReads& reads, const CodeLanes& slots = {});

// Shared-memory wavefronts that one load of `unit` bytes a lane costs, given each lane's byte address.
int bank_wavefronts(const std::vector<int>& addresses, int unit);

}  // namespace kvjit
