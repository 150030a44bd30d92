// The reference codec against images of published writers: their bytes, and the values that published readers decode.
// SPDX-License-Identifier: MIT
#include "tests/support/published.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "generator/formats/reference_codec.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;
using namespace kvjit::test::published;

namespace {

// Compares decoded values with those of the published reader, for the rows whose values the image has.
void check_decoded(const Json& image, int row, const std::vector<double>& decoded) {
  const auto values = image["decoded"].find(std::to_string(row));
  if (values == image["decoded"].end()) return;
  REQUIRE(values->size() == decoded.size());
  double most = 0, error = 0;
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    most = std::max(most, std::fabs((*values)[i].get<double>()));
    error = std::max(error, std::fabs((*values)[i].get<double>() - decoded[i]));
  }
  CHECK(error <= 1e-5 * most);
}

}  // namespace

TEST_CASE("formats write the bytes of published writers, and read what their readers read") {
  CHECK(file()["images"].size() >= 34);
  for (const Json& image : file()["images"]) {
    const std::string key = image["key"], name = image["format"], domain = image["domain"];
    const int dim = image["head_dim"];
    CAPTURE(key);
    CAPTURE(name);
    const Format f = test::must(test::registry().format_for(name, dim, {}));
    const std::vector<std::size_t> places = places_of(image, f);
    for (int row = 0; row < int(image["rows"].size()); ++row) {
      CAPTURE(row);
      Bytes got;
      std::vector<double> decoded;
      int number = 0;
      for (const std::vector<float>& head : heads_of(image, row)) {
        const float scale = scale_of(image, number++);
        const Bytes stored = encode_row(f, head, scale);
        for (const std::size_t place : places) got.push_back(stored[place]);
        const std::vector<double> values = decode_row(f, stored, dim, domain == "rotated", scale);
        decoded.insert(decoded.end(), values.begin(), values.end());
      }
      CHECK(wrong_bytes(image, row, got) == 0);
      check_decoded(image, row, decoded);
    }
  }
}

// rk4v4-e8 rounds to points of the lattice E8 and then to codes, which keeps nothing of the lattice: its bytes are read
// as those of ninfer_rk4, and no format writes them.
TEST_CASE("formats read bytes of writers that they do not have") {
  CHECK(file()["readings"].size() >= 1);
  for (const Json& image : file()["readings"]) {
    const int dim = image["head_dim"];
    const Format f = test::must(test::registry().format_for(image["format"], dim, {}));
    const std::vector<std::size_t> places = places_of(image, f);
    for (int row = 0; row < int(image["rows"].size()); ++row) {
      const Bytes bytes = bytes_from(image["rows"][std::size_t(row)].get<std::string>());
      REQUIRE(bytes.size() == places.size());  // one head
      Bytes stored(bytes.size());
      for (std::size_t i = 0; i < bytes.size(); ++i) stored[places[i]] = bytes[i];
      check_decoded(image, row, decode_row(f, stored, dim, false));
    }
  }
}
