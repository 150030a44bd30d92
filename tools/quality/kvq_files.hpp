// Keys, values and queries as the verbs take them: .npy of [heads, rows, head_dim], f16 or f32, finite.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

struct Heads {
  long long heads = 0, rows = 0, dim = 0;
  std::vector<float> values;  // [heads][rows][dim]

  std::vector<float> last(long long take) const;  // the last `take` rows of each head
};

// meaning: what the file should hold, for messages: "K [kv_heads, tokens, head_dim]".
Result<Heads> read_heads(const std::string& file, const char* meaning);

// want_heads 0: any number. why: what the expectation comes from.
Result<void> expect_shape(const std::string& file, const Heads& heads, long long want_heads, long long want_rows,
                          long long dim, const char* why);

}  // namespace kvjit
