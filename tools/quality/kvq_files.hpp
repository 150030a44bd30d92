// KvqFile: K, V or Q from a file, for the verbs: a .npy array of [heads, rows, head_dim], f16 or f32, of finite
// numbers.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

struct KvqFile {
  long long heads = 0;
  long long rows = 0;         // tokens or queries of a head
  long long dim = 0;          // channels
  std::vector<float> values;  // [heads][rows][dim]

  std::vector<float> last(long long take) const;  // the last `take` rows of each head
};

// Fails with Code::bad_input if the file is not such an array. `meaning` describes the expected content in messages: "K
// [kv_heads, tokens, head_dim]".
Result<KvqFile> read_kvq(const std::string& file, const char* meaning);

// Fails with Code::bad_input unless there are want_heads heads (0: any number) of want_rows rows or more with `dim`
// channels. `why` says in the message where the expectation comes from.
Result<void> expect_shape(const std::string& file, const KvqFile& heads, long long want_heads, long long want_rows,
                          long long dim, const char* why);

}  // namespace kvjit
