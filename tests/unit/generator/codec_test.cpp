// Golden bytes per format, f16 conversion over every half, and the errors that formats promise.
// SPDX-License-Identifier: MIT
#include "generator/codec.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "generator/registry.hpp"
#include "tests/support/rng.hpp"

using namespace kvjit;

namespace {

const Registry& registry() {
  static const Registry loaded = Registry::load(embedded_files()).value();
  return loaded;
}

const Format& format(const std::string& name) { return *registry().format(name, {}).value(); }

std::string hex(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  for (const std::uint8_t b : bytes) text += "0123456789abcdef"[b >> 4], text += "0123456789abcdef"[b & 15];
  return text;
}

double relative_mse(const Format& f, int rows, int n) {
  test::Rng rng(7);
  double error = 0, total = 0;
  for (int row = 0; row < rows; ++row) {
    const std::vector<float> x = rng.normals(std::size_t(n));
    const std::vector<double> y = decode_row(f, encode_row(f, x), n, false);
    for (int i = 0; i < n; ++i) error += (y[i] - x[i]) * (y[i] - x[i]), total += double(x[i]) * x[i];
  }
  return error / total;
}

}  // namespace

TEST_CASE("golden bytes, made by compiling the projects that published the formats") {
  CHECK(hex(encode_row(format("tbq4_wht_dfirst_corr"), test::golden_input(128))) ==
        "1d4df768ca446a59c59837a55278ad667ce8ad867646932d8b84a9b727b8587a7c0887491794624c7699941769c25e2e956b"
        "8f657d714956"
        "cdcb55936ca388326935");
  CHECK(hex(encode_row(format("q4_0"), test::golden_input(32))) == "4036f258be1379df359bf147ac0268ce248a");
  CHECK(hex(encode_row(format("q8_0"), test::golden_input(32))) ==
        "4d269dfb59b61472d02e8be947a50361be1c7ad73593f14fac0a68c62481df3d9af8");
}

TEST_CASE("plain formats hold the golden input exactly") {
  const std::vector<float> x = test::golden_input(128);
  CHECK(hex(encode_row(format("f16"), std::vector<float>{1.0f, -2.5f})) == "003c00c1");
  CHECK(hex(encode_row(format("bf16"), std::vector<float>{1.0f, -2.5f})) == "803f20c0");
  for (const char* name : {"f16", "bf16"}) {
    const std::vector<double> y = decode_row(format(name), encode_row(format(name), x), 128, false);
    CHECK(y == std::vector<double>(x.begin(), x.end()));
  }
}

TEST_CASE("zero blocks") {
  CHECK(hex(encode_row(format("q4_0"), std::vector<float>(32))) == "0080" + std::string(32, '8'));
  CHECK(hex(encode_row(format("q8_0"), std::vector<float>(32))) == std::string(68, '0'));
  const Format& tbq4 = format("tbq4_0");
  for (const double v : decode_row(tbq4, encode_row(tbq4, std::vector<float>(128)), 128, false)) CHECK(v == 0);
}

TEST_CASE("rows of several blocks and rotation groups are independent of their neighbours") {
  const Format& f = format("tbq4_0");
  const std::vector<float> x = test::golden_input(384);
  const std::vector<std::uint8_t> row = encode_row(f, x);
  REQUIRE(row.size() == 3 * 66);
  const std::vector<std::uint8_t> last = encode_row(f, std::span(x).subspan(256));
  CHECK(std::equal(last.begin(), last.end(), row.begin() + 132));
}

TEST_CASE("rotated: the same values before the inverse rotation") {
  const Format& f = format("tbq4_0");
  const std::vector<std::uint8_t> row = encode_row(f, test::golden_input(256));
  std::vector<double> rotated = decode_row(f, row, 256, true);
  CHECK(rotated != decode_row(f, row, 256, false));
  rotate_inverse(f.rotation, rotated.data(), 256);
  CHECK(rotated == decode_row(f, row, 256, false));
}

TEST_CASE("every half survives the round trip, and floats round to the nearest even half") {
  for (int h = 0; h < 65536; ++h) {
    const float x = float_from_f16(std::uint16_t(h));
    if (std::isnan(x)) {
      CHECK(std::isnan(float_from_f16(f16_from_float(x))));
      continue;
    }
    REQUIRE(f16_from_float(x) == h);
    if ((h & 0x7FFF) >= 0x7BFF) continue;  // the largest half and beyond: no finite neighbour
    const float next = float_from_f16(std::uint16_t(h + 1)), middle = x + (next - x) / 2;
    REQUIRE(f16_from_float(middle) == h + (h & 1));
    REQUIRE(f16_from_float(std::nextafter(middle, x)) == h);
    REQUIRE(f16_from_float(std::nextafter(middle, next)) == h + 1);
  }
  CHECK(f16_from_float(65519.996f) == 0x7BFF);
  CHECK(f16_from_float(65520.0f) == 0x7C00);
  CHECK(bf16_from_float(std::bit_cast<float>(0x3F808000u)) == 0x3F80);
  CHECK(bf16_from_float(std::bit_cast<float>(0x3F818000u)) == 0x3F82);
  CHECK(bf16_from_float(std::bit_cast<float>(0x3F808001u)) == 0x3F81);
}

TEST_CASE("formats keep the error they promise") {
  for (const auto& [name, f] : registry().formats()) {
    CAPTURE(name);
    const double error = relative_mse(f, 10000, std::max(f.block, f.rotation.size));
    CHECK(error <= (f.kind == CodeKind::plain ? 3e-6 : f.max_relative_mse));
    if (f.kind != CodeKind::plain) CHECK(error >= 0.8 * f.max_relative_mse);  // a bound that means something
  }
}

TEST_CASE("inline formats keep the error they promise, for every number of bits") {
  for (const char* codebook : {"lloyd_max", "uniform"})
    for (const char* scale : {"corrected_norm", "raw_norm", "amax"})
      for (const int block : {32, 128})
        for (int bits = 1; bits <= 8; ++bits) {
          SideSpec side;
          side.bits = bits, side.block = block, side.codebook = codebook, side.scale = scale;
          side.rotation = "wht_signed";
          if (side.codebook == "uniform" && (bits == 1 || side.scale != "amax")) continue;
          const Format f = inline_format(side, registry()).value();
          CAPTURE(f.name);
          const double error = relative_mse(f, 2000, block);
          CHECK(error <= f.max_relative_mse);
          CHECK(error >= 0.7 * f.max_relative_mse);
        }
}

TEST_CASE("ties: the first of equal magnitudes gives the scale; halves round up (q4_0) or away from zero (q8_0)") {
  std::vector<float> x(32, 0.0f);
  x[3] = 8.0f, x[4] = -8.0f;
  CHECK(hex(encode_row(format("q4_0"), x)).substr(0, 4) == "00bc");
  std::swap(x[3], x[4]);
  x[0] = 0.5f, x[1] = -0.5f;
  CHECK(hex(encode_row(format("q4_0"), x)).substr(0, 14) == "003c898888808f");
  x[3] = 127.0f, x[0] = 2.5f, x[1] = -2.5f;
  CHECK(hex(encode_row(format("q8_0"), x)).substr(0, 8) == "003c03fd");
}

TEST_CASE("a uniform format never produces the code below its symmetric range") {
  SideSpec side;
  side.bits = 4, side.codebook = "uniform";
  const Format f = inline_format(side, registry()).value();
  std::vector<float> x(128, -1.0f);
  x[0] = 1.0f;
  const std::vector<std::uint8_t> row = encode_row(f, x);
  CHECK(row[2] == 0x1F);
  CHECK(row[3] == 0x11);
}
