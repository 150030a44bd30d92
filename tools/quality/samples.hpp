// Samples: the keys, values and queries on which `kvjit quality` measures formats. They come from files or from seeded
// generators.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "tools/quality/kvq_files.hpp"

namespace kvjit {

struct Sample {
  std::string name;
  std::string description;
  KvqFile k;
  KvqFile v;
  KvqFile q;               // query head h reads KV head h / (q.heads / k.heads)
  bool is_causal = false;  // the queries belong to the last tokens, and each sees the tokens up to its own
};

// Three samples with distributions as in caches, rounded to f16 and the same on every machine: gaussian, heavy-tailed
// (Student's t with 4 degrees of freedom), and outlier channels (4 channels ten times as large as the rest). Queries
// are gaussian.
std::vector<Sample> generated_samples(int head_dim);

// Reads a sample from .npy files, with the last `queries` queries of each head (0: all). Fails with Code::bad_input if
// the shapes do not fit each other.
Result<Sample> read_sample(const std::string& k_file, const std::string& v_file, const std::string& q_file,
                           long long queries, bool is_causal);

}  // namespace kvjit
