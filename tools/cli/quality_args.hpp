// What the two halves of the verb quality share.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/cli.hpp"

namespace kvjit {

struct QualityArgs {
  std::vector<std::string> specs, formats;
  std::string k, v, q, html;
  int head_dim = 0;
  long long queries = 0;
  bool is_causal = false;
  std::string calibrate, out_dir, rotation;
  bool is_profile = false;
  std::string method = "inner_q";
  std::optional<double> strength;
  std::optional<int> outliers;
};

Result<int> calibrate_channels(const Cli& cli, const QualityArgs& args);
Result<int> profile_channels(const Cli& cli, const QualityArgs& args);

}  // namespace kvjit
