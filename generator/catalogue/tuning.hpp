// Tuning files: measured block shapes of decode (specs/tuning/<arch>.toml, which `kvjit bench --tune` writes). A shape
// changes speed, never results. generator/kernels/decode/tuned_shape.hpp finds the row that serves a problem.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {

class Registry;

// The shape of a block of decode.
struct BlockShape {
  int warps = 0, stages = 0, tile = 0;  // warps; stages of the ring; tokens of a tile
  int copies = 1;                       // copies of each table entry in shared memory
  std::optional<int> subtiles;          // subtiles of 16 tokens that are scored together; absent: the planner chooses
  std::optional<bool> hold_queries;     // fragments of Q stay in registers; absent: the planner chooses
  bool operator==(const BlockShape&) const = default;
};
std::string to_string(const BlockShape& shape);

// A measured shape. The row states in full what it was measured for, in the words of a spec.
struct TuningRow {
  Where where;
  std::string device;  // "NVIDIA H200"
  SideSpec k, v;       // formats; calibrations do not matter
  int head_dim = 128, rows = 1;
  Layout layout = Layout::planar;
  BlockShape shape;
  std::vector<std::string> measured;  // text for readers: what was timed, and how it compares
  // Derived from the sides: names of the formats, and bytes of a head.
  std::string k_name, v_name;
  long long k_bytes = 0, v_bytes = 0;

  bool is_for_same(const TuningRow& other) const;
};

// Reads a file of specs/tuning; the stem of its name is the arch. Fails with bad_input, at the key: unknown names,
// shapes out of range, two rows for the same problem and device.
Result<std::vector<TuningRow>> parse_tuning(std::string_view toml_text, const std::string& file,
                                            const Registry& registry);
// The text of a tuning file, as parse_tuning reads it.
std::string tuning_text(const std::string& arch, const std::vector<TuningRow>& rows);

}  // namespace kvjit
