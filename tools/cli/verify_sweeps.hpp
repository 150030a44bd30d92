// `kvjit verify` without spec files: over ggml's case matrix, and over random specs.
// SPDX-License-Identifier: MIT
#pragma once
#include "tools/cli/cli.hpp"

namespace kvjit {

struct SweepArgs {
  std::string matrix;      // "ggml"
  std::size_t sample = 0;  // cases of it; 0: all
  bool shares_programs = false;
  std::size_t fuzz = 0;  // random specs
  std::uint64_t seed = 1;
  unsigned threads = 0;  // 0: as many as there are processors
};

Result<int> verify_matrix(const Cli& cli, const SweepArgs& args);
Result<int> verify_fuzz(const Cli& cli, const SweepArgs& args);

}  // namespace kvjit
