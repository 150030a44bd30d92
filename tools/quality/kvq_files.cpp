// Reads K, V and Q from .npy files: see kvq_files.hpp.
// SPDX-License-Identifier: MIT
#include "tools/quality/kvq_files.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tools/io/npy.hpp"

namespace kvjit {

std::vector<float> KvqFile::last(long long take) const {
  std::vector<float> cut;
  cut.reserve(static_cast<std::size_t>(heads * take * dim));
  for (long long h = 0; h < heads; ++h) {
    const auto end = values.begin() + (h + 1) * rows * dim;
    cut.insert(cut.end(), end - take * dim, end);
  }
  return cut;
}

Result<KvqFile> read_kvq(const std::string& file, const char* meaning) {
  KV_TRY(npy, read_npy(file));
  if (npy.type != NpyType::f16 && npy.type != NpyType::f32)
    return fail(Code::bad_input,
                fmt::format("{}: has elements of type {}; {} is f16 or f32", file, to_string(npy.type), meaning));
  if (npy.shape.size() != 3 || npy.count() == 0)
    return fail(Code::bad_input, fmt::format("{}: has shape {}; {} is three dimensions, none of them empty", file,
                                             npy.shape_text(), meaning));
  KvqFile heads{npy.shape[0], npy.shape[1], npy.shape[2], npy.floats()};
  for (std::size_t i = 0; i < heads.values.size(); ++i)
    if (!std::isfinite(heads.values[i]))
      return fail(Code::bad_input,
                  fmt::format("{}: element {} is {}; attention needs finite numbers", file, i, heads.values[i]));
  return heads;
}

Result<void> expect_shape(const std::string& file, const KvqFile& heads, long long want_heads, long long want_rows,
                          long long dim, const char* why) {
  if ((want_heads == 0 || heads.heads == want_heads) && heads.rows >= want_rows && heads.dim == dim) return {};
  return fail(Code::bad_input,
              fmt::format("{}: has shape [{}, {}, {}]; expected [{}, {} or more, {}]", file, heads.heads, heads.rows,
                          heads.dim, want_heads ? std::to_string(want_heads) : "heads", want_rows, dim),
              {}, {why});
}

}  // namespace kvjit
