// Plan: numbers only. What a family needs to know to be written, decided once, with the reasons kept as
// Decisions.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "generator/arch.hpp"
#include "generator/format.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// One term of an unpack sequence: (shift >= 0 ? w[word] >> shift : w[word] << -shift) & mask.
struct UnpackTerm {
  int word = 0, shift = 0;
  std::uint32_t mask = 0;
};

// How the lanes of a warp read a staged row. `parts` lanes share a row (K: 4, V: 8); each owns `runs` runs of
// consecutive bytes in every scale group, and each run holds `codes` codes.
struct RunPlan {
  int parts = 0, groups = 1, runs = 1, codes = 0;
  int words = 0, load_bytes = 0;  // of one run
  // Distance between the runs of neighbouring lanes; not a multiple of 8: runs start inside a byte.
  int part_bits = 0;
  int run_stride = 0;  // bytes between the runs of one lane
  int unit = 0;        // bytes of one load
  int bank_cost = 0;   // shared-memory wavefronts of one load of the warp (1 a 128 bytes is ideal)
  std::vector<std::vector<UnpackTerm>> unpack;  // per byte word
  std::vector<int> slots;                       // code (by position in the run) in byte j of byte word m, at [4m + j]
  // Dimension of code k of (group, run, part), at [((group * runs + run) * parts + part) * codes + k].
  std::vector<int> elements;
};

// One side of the decode family.
struct SidePlan {
  Format format;
  bool is_planar = true;
  int row_bytes = 0, row_unit = 16, pitch = 0;  // staged codes (or whole rows)
  bool is_skewed = false;              // rows of 2-byte alignment: a staged row starts 0 or 2 bytes into its slot
  int group_stride = 0, codes_at = 0;  // of a scale group inside a staged row
  int scale_row_bytes = 0, scales_at = 0, scale_pitch = 0, scale_stride = 0;
  int stage_bytes = 0;
  bool owns_table = false;
  int table_at = 0, table_stride = 4, table_copies = 1;
  std::vector<std::uint16_t> halves;  // table: centroid / unit as halves
  double unit = 1;                    // value = unit * what the pairs hold * scale
  RunPlan run;
};

struct DecodePlan {
  std::string name;
  Arch arch;
  int head_dim = 0, group = 1, query_length = 1, rows = 1, column_blocks = 1;
  bool causal = false;
  Element q_type = Element::f16;  // what the kernel reads: f32 when K is rotated
  int query_parts = 1;
  bool hold_queries = false;  // fragments of Q stay in registers
  int warps = 0, stages = 0, tile = 0;
  int subtiles = 1;  // of 16 tokens, taken together
  int queries_at = 0, ring_at = 0, stage_bytes = 0, shared_bytes = 0;
  SidePlan k, v;
  std::vector<int> key_order, value_order;
  std::vector<Decision> decisions;
  int threads() const { return warps * 32; }
};

// Fails with unsupported: each reason, with the TOML key to change.
Result<DecodePlan> plan_decode(const Problem& problem);

// The reads of one side, for a group of `parts` lanes a row; the building block of plan_decode, public for
// its test.
Result<RunPlan> plan_run(const Format& format, int head_dim, int parts);

// The sequence of shifts and masks that spreads codes at `positions` (bits from the start of the run) to byte
// words, and the slot each code lands in. Few terms: codes of equal shift share one.
void plan_unpack(const std::vector<int>& positions, int bits, RunPlan& run);

// Shared-memory wavefronts that one load of `unit` bytes a lane costs, given each lane's byte address.
int bank_wavefronts(const std::vector<int>& addresses, int unit);

}  // namespace kvjit
