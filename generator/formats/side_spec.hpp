// SideSpec: how a spec asks for the format of one side of the cache, by a name or by the numbers of one.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

// One side of the cache: the name of a format, or the numbers of one ("inline").
struct SideSpec {
  Where where;                             // of the table [k] or [v]
  std::string format;                      // name or alias; empty when inline
  std::optional<int> bits, block;          // inline only: 1..8; values that share one scale
  std::optional<std::string> codebook;     // of kInlineCodebooks; default: "lloyd_max"
  std::optional<std::string> scale;        // of kInlineScales; default: "corrected_norm", or "amax" if uniform
  std::optional<std::string> rotation;     // "none" (default), or a name of specs/rotations
  std::optional<std::string> calibration;  // a name of specs/calibrations
  bool swizzles_scales = false;            // pages of planes: scales stand in pieces of four tokens
  bool in_keys = false;                    // V only: its rows are the first channels of K's rows, in K's memory
  std::map<std::string, Where> key_where;  // where each key stands, for diagnostics of later stages
};

inline const std::vector<std::string> kInlineCodebooks = {"lloyd_max", "uniform"};
inline const std::vector<std::string> kInlineScales = {"corrected_norm", "least_squares", "raw_norm", "amax"};

}  // namespace kvjit
