// safetensors files: 8 bytes with the length of the header (little-endian), a JSON header, then the bytes of the
// tensors. open_safetensors reads the header only. write_changed copies a file and replaces the bytes of some tensors,
// so that every other byte stays.
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
  std::uint64_t begin = 0;  // offset of its first byte in the file
  std::uint64_t end = 0;    // offset behind its last byte

  std::uint64_t bytes() const { return end - begin; }
  std::string shape_text() const;  // "[256, 1024]"
};

struct Safetensors {
  std::string file;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  Result<const Tensor*> tensor(const std::string& name) const;  // an unknown name fails with similar ones
};

// Fails with Code::bad_input if there is no such file; if the header's length is beyond the file or 100 MB; if the
// header is not an object of tensors or has a name twice; if offsets leave the file, overlap or do not fit the shape;
// or if bytes belong to no tensor.
Result<Safetensors> open_safetensors(const std::string& file);

Result<std::vector<std::uint8_t>> read_tensor(const Safetensors& from, const Tensor& tensor);

// Writes the file to `out` with other bytes for the named tensors, as many as before. It writes to a file beside `out`
// and renames that file.
Result<void> write_changed(const Safetensors& from, const std::map<std::string, std::vector<std::uint8_t>>& changed,
                           const std::string& out);

}  // namespace kvjit
