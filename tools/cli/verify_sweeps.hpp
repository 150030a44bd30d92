// `kvjit verify` without spec files: the cases of ggml's test matrix (verify_ggml.cpp) and random specs
// (verify_fuzz.cpp).
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <thread>

#include "runtime/launch/calls.hpp"
#include "tools/cli/cli.hpp"
#include "tools/verify/inputs/inputs.hpp"

namespace kvjit {

struct SweepArgs {
  std::string matrix;                     // --matrix: "ggml"; empty: no matrix
  std::size_t sample = 0;                 // --sample: cases of the matrix to run; 0: all
  ManyRows many_rows = ManyRows::chosen;  // --kernel: cases of the matrix whose program has it take it
  bool shares_programs = false;           // --share: one program serves several cases
  std::size_t fuzz = 0;                   // --fuzz: random specs to run; 0: none
  std::uint64_t seed = 1;                 // --seed: seed of the sample, or of the first random spec
  std::vector<std::string> inputs;        // --inputs: names of classes; empty: all
  std::size_t skip = 0;                   // --skip: specs that are left out at the begin
  unsigned threads = 0;                   // -j; 0: as many as there are processors
};

inline unsigned threads_of(const SweepArgs& args) {
  return args.threads ? args.threads : std::max(1u, std::thread::hardware_concurrency());
}

Result<int> verify_matrix(const Cli& cli, const SweepArgs& args);
Result<int> verify_fuzz(const Cli& cli, const SweepArgs& args);

}  // namespace kvjit
