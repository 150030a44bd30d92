// Images of published writers: tests/data/published.json has rows, and what the code of other projects makes of them.
// Bytes must be equal, but for those that hang on the order of float32 additions (`near`) and for the last bits of
// float32 scales.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "generator/base/minifloat.hpp"
#include "generator/formats/format.hpp"
#include "tests/support/project_files.hpp"

namespace kvjit::test::published {

using Json = nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

constexpr int kScaleUlp = 2;  // Triton divides with an error of 2 units in the last place

inline const Json& file() {
  static const Json all = Json::parse(text_of(project_root() / "tests/data/published.json"));
  return all;
}

// The heads of a row. Rows have 256 values. A head of 512 takes two rows, and one of 576 also the beginning of the next
// row, or of the first behind the last.
inline std::vector<std::vector<float>> heads_of(const Json& image, int row) {
  const int dim = image["head_dim"], rows = std::max(dim / 256, 1);
  std::vector<float> values;
  const Json& inputs = file()["inputs"];
  for (int r = row * rows; r < (row + 1) * rows; ++r)
    for (const Json& v : inputs[std::size_t(r)]) values.push_back(v.get<float>());
  const Json& next = inputs[std::size_t((row + 1) * rows) % inputs.size()];
  for (int i = 0; dim > 256 && i < dim % 256; ++i) values.push_back(next[std::size_t(i)].get<float>());
  if (image["bf16"].get<bool>())
    for (float& v : values) v = float_from_bf16(bf16_from_float(v));
  std::vector<std::vector<float>> heads;
  for (std::size_t first = 0; first < values.size(); first += std::size_t(dim))
    heads.emplace_back(values.begin() + std::ptrdiff_t(first), values.begin() + std::ptrdiff_t(first) + dim);
  return heads;
}

// The caller's scale of a head: that of the tensor, times one of the head.
inline float scale_of(const Json& image, int head) {
  const float scale = image["tensor_scale"];
  return image.contains("head_scales") ? scale * image["head_scales"][std::size_t(head)].get<float>() : scale;
}

// For each byte of the image of a head, its place in our row of blocks. In planes the codes of all blocks come first,
// then the scales of all blocks.
inline std::vector<std::size_t> places_of(const Json& image, const Format& f) {
  std::vector<std::size_t> places;
  const auto add = [&](int block, int at, int bytes) {
    for (int i = 0; i < bytes; ++i) places.push_back(std::size_t(block * f.block_bytes + at + i));
  };
  const int blocks = image["head_dim"].get<int>() / f.block;
  if (!image["planes"].get<bool>()) {
    add(0, 0, blocks * f.block_bytes);
    return places;
  }
  for (const bool is_code : {true, false})
    for (int block = 0; block < blocks; ++block)
      for (const Field& field : f.fields)
        if (field.is_code() == is_code) add(block, field.at, field.bytes);
  return places;
}

inline Bytes bytes_from(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(std::uint8_t(std::strtoul(hex.substr(i, 2).c_str(), nullptr, 16)));
  return bytes;
}

// How many bytes of a row differ from the image, beyond what may.
inline int wrong_bytes(const Json& image, int row, const Bytes& got) {
  const Bytes want = bytes_from(image["rows"][std::size_t(row)].get<std::string>());
  if (got.size() != want.size()) return int(std::max(got.size(), want.size()));
  const auto word_at = [](const Bytes& bytes, std::size_t at) {
    std::int64_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) word |= std::int64_t(bytes[at + i]) << 8 * i;
    return word;
  };
  std::set<std::size_t> near;
  for (const Json& entry : image.value("near", Json::array()))
    if (entry[0] == row)
      for (const Json& at : entry[1]) near.insert(at.get<std::size_t>());
  for (const Json& at : image.value("f32_scales", Json::array())) {
    const auto first = at.get<std::size_t>();
    // The low bits may be a zero point, which is exact; an ulp then is one of what is above them.
    const int zero_bits = image.value("zero_bits", 0);
    const std::int64_t ours = word_at(got, first), theirs = word_at(want, first);
    if (zero_bits > 0 && (ours ^ theirs) & ((1 << zero_bits) - 1)) continue;
    if (std::abs((ours >> zero_bits) - (theirs >> zero_bits)) <= (zero_bits > 0 ? 1 : kScaleUlp))
      for (std::size_t i = 0; i < 4; ++i) near.insert(first + i);
  }
  int wrong = 0;
  for (std::size_t i = 0; i < want.size(); ++i) wrong += got[i] != want[i] && !near.contains(i);
  return wrong;
}

}  // namespace kvjit::test::published
