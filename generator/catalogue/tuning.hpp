// Tuning files: block shapes of decode that were measured (specs/tuning/<arch>.toml, written by `kvjit bench --tune`).
// A shape affects speed, never results. generator/kernels/decode/tuned_shape.hpp finds the row that serves a problem.
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

// How a block of the decode family is made.
struct BlockShape {
  int warps = 0, stages = 0, tile = 0;
  int copies = 1;               // of a table's entry
  std::optional<int> subtiles;  // of a tile taken together; else the planner's own choice, as below
  std::optional<bool> hold_queries;
  bool operator==(const BlockShape&) const = default;
};
std::string to_string(const BlockShape& shape);

// A measured shape. What was measured is named as specs name it, so a row says what it is for in full.
struct TuningRow {
  Where where;
  std::string device;  // "NVIDIA H200"
  SideSpec k, v;       // formats; calibrations do not matter
  int head_dim = 128, rows = 1;
  Layout layout = Layout::planar;
  BlockShape shape;
  std::vector<std::string> measured;  // for readers: what was timed, and how it compares
  // Derived: names of the formats, and the bytes of a head.
  std::string k_name, v_name;
  long long k_bytes = 0, v_bytes = 0;

  bool is_for_same(const TuningRow& other) const;
};

// A file of specs/tuning: its stem is the arch. Fails with bad_input, at the key: names nobody knows, shapes that no
// block has, two rows for the same.
Result<std::vector<TuningRow>> parse_tuning(std::string_view toml_text, const std::string& file,
                                            const Registry& registry);
// What parse_tuning reads.
std::string tuning_text(const std::string& arch, const std::vector<TuningRow>& rows);

}  // namespace kvjit
