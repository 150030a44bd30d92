// Formats against images of published writers: tests/data/published.json has rows, and what the code of other projects
// makes of them. Bytes must be equal, but for those that hang on the order of float32 additions (`near`) and for the
// last bits of float32 scales. Decoded values must be those of the published readers.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "generator/base/minifloat.hpp"
#include "generator/formats/reference_codec.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/project_files.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;

namespace {

using Json = nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

constexpr int kScaleUlp = 2;  // Triton divides with an error of 2 units in the last place

const Json& published() {
  static const Json all = Json::parse(test::text_of(test::project_root() / "tests/data/published.json"));
  return all;
}

// The heads of a row. Rows have 256 values; a head of 512 takes two rows.
std::vector<std::vector<float>> heads_of(const Json& image, int row) {
  const int dim = image["head_dim"];
  std::vector<float> values;
  for (int r = 0; r < std::max(dim / 256, 1); ++r)
    for (const Json& v : published()["inputs"][std::size_t(row * std::max(dim / 256, 1) + r)])
      values.push_back(v.get<float>());
  if (image["bf16"].get<bool>())
    for (float& v : values) v = float_from_bf16(bf16_from_float(v));
  std::vector<std::vector<float>> heads;
  for (std::size_t first = 0; first < values.size(); first += std::size_t(dim))
    heads.emplace_back(values.begin() + std::ptrdiff_t(first), values.begin() + std::ptrdiff_t(first) + dim);
  return heads;
}

// For each byte of the image of a head, its place in our row of blocks. In planes the codes of all blocks come first,
// then the scales of all blocks.
std::vector<std::size_t> places_of(const Format& f, int dim, bool is_planes) {
  std::vector<std::size_t> places;
  const auto add = [&](int block, int at, int bytes) {
    for (int i = 0; i < bytes; ++i) places.push_back(std::size_t(block * f.block_bytes + at + i));
  };
  const int blocks = dim / f.block;
  if (!is_planes) {
    add(0, 0, blocks * f.block_bytes);
    return places;
  }
  for (const bool is_code : {true, false})
    for (int block = 0; block < blocks; ++block)
      for (const Field& field : f.fields)
        if (field.is_code() == is_code) add(block, field.at, field.bytes);
  return places;
}

std::uint32_t word_at(const Bytes& bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) word |= std::uint32_t(bytes[at + i]) << 8 * i;
  return word;
}

Bytes bytes_from(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(std::uint8_t(std::strtoul(hex.substr(i, 2).c_str(), nullptr, 16)));
  return bytes;
}

// How many bytes of a row differ, beyond what may.
int wrong_bytes(const Json& image, int row, const Bytes& got, const Bytes& want) {
  std::set<std::size_t> near;
  for (const Json& entry : image.value("near", Json::array()))
    if (entry[0] == row)
      for (const Json& at : entry[1]) near.insert(at.get<std::size_t>());
  for (const Json& at : image.value("f32_scales", Json::array())) {
    const auto first = at.get<std::size_t>();
    if (std::abs(std::int64_t(word_at(got, first)) - std::int64_t(word_at(want, first))) <= kScaleUlp)
      for (std::size_t i = 0; i < 4; ++i) near.insert(first + i);
  }
  int wrong = 0;
  for (std::size_t i = 0; i < want.size(); ++i) wrong += got[i] != want[i] && !near.contains(i);
  return wrong;
}

}  // namespace

TEST_CASE("formats write the bytes of published writers, and read what their readers read") {
  CHECK(published()["images"].size() >= 34);
  for (const Json& image : published()["images"]) {
    const std::string key = image["key"], name = image["format"], domain = image["domain"];
    const int dim = image["head_dim"];
    const float scale = image["tensor_scale"];
    CAPTURE(key);
    CAPTURE(name);
    const Format f = test::registry().format_for(name, dim, {}).value();
    const std::vector<std::size_t> places = places_of(f, dim, image["planes"]);
    for (int row = 0; row < int(image["rows"].size()); ++row) {
      CAPTURE(row);
      Bytes got;
      std::vector<double> decoded;
      for (const std::vector<float>& head : heads_of(image, row)) {
        const Bytes stored = encode_row(f, head, scale);
        for (const std::size_t place : places) got.push_back(stored[place]);
        const std::vector<double> values = decode_row(f, stored, dim, domain == "rotated", scale);
        decoded.insert(decoded.end(), values.begin(), values.end());
      }
      const Bytes want = bytes_from(image["rows"][std::size_t(row)].get<std::string>());
      REQUIRE(got.size() == want.size());
      CHECK(wrong_bytes(image, row, got, want) == 0);
      const auto values = image["decoded"].find(std::to_string(row));
      if (values == image["decoded"].end()) continue;
      REQUIRE(values->size() == decoded.size());
      double most = 0, error = 0;
      for (std::size_t i = 0; i < decoded.size(); ++i) {
        most = std::max(most, std::fabs((*values)[i].get<double>()));
        error = std::max(error, std::fabs((*values)[i].get<double>() - decoded[i]));
      }
      CHECK(error <= 1e-5 * most);
    }
  }
}
