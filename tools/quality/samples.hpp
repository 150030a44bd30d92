// Samples: the keys, values and queries that quality is measured on, from files or from seeded generators.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "tools/quality/kvq_files.hpp"

namespace kvjit {

struct Sample {
  std::string name, description;
  Heads k, v, q;           // query head h reads KV head h / (q.heads / k.heads)
  bool is_causal = false;  // the last query stands at the last token
};

// Three kinds of numbers that caches meet, rounded to f16, the same on every machine: gaussian, heavy-tailed (Student's
// t, 4 degrees of freedom), and outlier channels (4 channels ten times the rest). Queries are gaussian.
std::vector<Sample> generated_samples(int head_dim);

// queries: how many of each head are used, the last ones; 0: all. Fails with bad_input when the shapes do not fit each
// other.
Result<Sample> read_sample(const std::string& k_file, const std::string& v_file, const std::string& q_file,
                           long long queries, bool is_causal);

}  // namespace kvjit
