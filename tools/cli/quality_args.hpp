// The arguments of the verb quality. quality.cpp defines the options and measures formats; calibrate.cpp has the modes
// --calibrate and --profile.
// SPDX-License-Identifier: MIT
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/cli.hpp"

namespace kvjit {

struct QualityArgs {
  std::vector<std::string> specs;    // files
  std::vector<std::string> formats;  // --formats
  std::string k;                     // --k: .npy file; empty: generated numbers
  std::string v;                     // --v
  std::string q;                     // --q
  std::string html;                  // --html: file; empty: none
  int head_dim = 0;                  // --head-dim: head_dim of generated numbers; 0: the specs'
  long long queries = 0;             // --queries: the last ones of each head; 0: all
  std::size_t skip = 0;              // --skip: rows that are left out at the begin
  bool is_causal = false;            // --causal
  std::string calibrate;             // --calibrate: name; empty: no calibration
  std::string out_dir;               // -o: folder for --calibrate
  std::string rotation;              // --rotation: NAME:SIZE; empty: wht_signed over the head
  bool is_profile = false;           // --profile
  std::string method = "inner_q";    // --method: rule of the channel scales
  std::optional<double> strength;    // --strength: exponent of inner_q
  std::optional<int> outliers;       // --outliers: channels of the mask
};

Result<int> calibrate_channels(const Cli& cli, const QualityArgs& args);
Result<int> profile_channels(const Cli& cli, const QualityArgs& args);

}  // namespace kvjit
