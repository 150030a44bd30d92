// safetensors files: 8 bytes of header length (little-endian), a JSON header, the bytes of the tensors. Read for their
// header; written by changing the bytes of some tensors in a copy, so that everything else stays as it was, byte for
// byte.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

struct Tensor {
  std::string dtype;  // "F16", "BF16", "F32", ...
  std::vector<long long> shape;
  std::uint64_t begin = 0, end = 0;  // in the file

  std::uint64_t bytes() const { return end - begin; }
  std::string shape_text() const;  // "[256, 1024]"
};

struct Safetensors {
  std::string file;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  Result<const Tensor*> tensor(const std::string& name) const;  // unknown: did-you-mean
};

// Fails with bad_input: no such file, a length beyond the file or 100 MB, a header that is not an object of tensors, a
// name twice, offsets that leave the file, overlap or do not hold the shape, or bytes that belong to no tensor.
Result<Safetensors> open_safetensors(const std::string& file);

Result<std::vector<std::uint8_t>> read_tensor(const Safetensors& from, const Tensor& tensor);

// out = the file with the bytes of some tensors replaced (by name, as many bytes as before). Written beside `out` and
// renamed.
Result<void> write_changed(const Safetensors& from, const std::map<std::string, std::vector<std::uint8_t>>& changed,
                           const std::string& out);

}  // namespace kvjit
