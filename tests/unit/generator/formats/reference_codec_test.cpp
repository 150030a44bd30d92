// generator/formats/reference_codec.cpp: golden bytes of published formats, ties, zero rows, and rows with NaN,
// infinities and numbers too large for the scale.
// SPDX-License-Identifier: MIT
#include "generator/formats/reference_codec.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "generator/catalogue/registry.hpp"
#include "generator/formats/codebook.hpp"
#include "tests/support/axis_formats.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/packed_rows.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/rng.hpp"

using namespace kvjit;

namespace {

using test::registry;

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

const Format& format(const std::string& name) { return *registry().format(name, {}).value(); }
std::string encoded(const std::string& name, const std::vector<float>& x) {
  return test::hex_of(encode_row(format(name), x));
}
std::vector<double> there_and_back(const std::string& name, const std::vector<float>& x) {
  return decode_row(format(name), encode_row(format(name), x), int(x.size()), false);
}
long finite_count(const std::vector<double>& x) {
  return std::count_if(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
}

// Returns a row of 0.5 in which one value is `odd`.
std::vector<float> row_with(float odd) {
  std::vector<float> x(128, 0.5f);
  x[5] = odd;
  return x;
}

}  // namespace

TEST_CASE("golden bytes") {
  for (const test::Golden& golden : test::kGoldens) {
    CAPTURE(golden.format);
    const std::string stored = encoded(golden.format, test::golden_input(128)), want = golden.hex;
    CHECK(stored.substr(0, want.size()) == want);
  }
}

TEST_CASE("what is decoded from golden bytes is near what went in, and codes to the same bytes again") {
  const std::vector<float> x = test::golden_input(128);
  for (const test::Golden& golden : test::kGoldens) {
    CAPTURE(golden.format);
    const Format& f = format(golden.format);
    const std::vector<std::uint8_t> bytes = encode_row(f, x);
    const std::vector<double> y = decode_row(f, bytes, 128, false);
    double error = 0, total = 0;
    for (std::size_t i = 0; i < x.size(); ++i) error += (y[i] - x[i]) * (y[i] - x[i]), total += double(x[i]) * x[i];
    CHECK(error <= 1.9 * f.max_relative_mse * total);  // a single row often has nearly twice the mean error
    if (f.has_residual() || f.field(FieldKind::residual_signs)) continue;  // a residual has codes of its own
    // Encoding again may change the scale by its rounding. Codes stay the same, except where entries lie unevenly
    // around a bound.
    const std::vector<std::uint8_t> again = encode_row(f, std::vector<float>(y.begin(), y.end()));
    int differences = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) differences += bytes[i] != again[i];
    CHECK(differences <= int(bytes.size()) / 4);
  }
}

// Returns the squared distance of a block's entries from the unit vector u.
double distance(const Format& f, const std::vector<std::uint8_t>& block, const std::vector<double>& u) {
  double sum = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const double miss = u[i] - f.codes().values[std::size_t(test::stored_code(f, block.data(), 0, int(i)))];
    sum += miss * miss;
  }
  return sum;
}

TEST_CASE("the path through a trellis: no stream that differs in up to three near bits is nearer") {
  const auto axis = std::ranges::find(test::axis_formats(), std::string("trellis2_factor"), &test::AxisFormat::name);
  REQUIRE(axis != test::axis_formats().end());
  const Format f = parse_format(std::string("title = \"t\"\n") + axis->toml, "f/t.toml", registry(), 64).value();
  const Field& field = f.fields[0];
  const int bits = f.codes().bits + (f.block - 1) * f.codes().step_bits;
  test::Rng rng(3);
  for (int trial = 0; trial < 4; ++trial) {
    const std::vector<float> x = rng.normals(std::size_t(f.block));
    double norm = 0;
    for (const float v : x) norm += double(v) * v;
    std::vector<double> u(x.begin(), x.end());
    for (double& v : u) v /= std::sqrt(norm);
    const std::vector<std::uint8_t> block = encode_row(f, x);
    const double chosen = distance(f, block, u);
    for (int first = 0; first < bits; ++first)
      for (int pattern = 1; pattern < 128; pattern += 2) {
        if (std::popcount(unsigned(pattern)) > 3) continue;
        std::vector<std::uint8_t> other = block;
        for (int i = 0; i < 7 && first + i < bits; ++i)
          other[std::size_t(field.at + (first + i) / 8)] ^= std::uint8_t((pattern >> i & 1) << (first + i) % 8);
        if (other != block) REQUIRE(distance(f, other, u) >= chosen - 1e-6);
      }
  }
}

// The encoder of tail-biting trellises finds about the nearest closed path, not always the nearest. In these blocks no
// change of up to three near bits brings more than a hundredth of the distance, and the mean error is that of the
// search.
TEST_CASE("the closed path of a tail-biting trellis: streams that differ in up to three near bits are hardly nearer") {
  for (const char* name : {"kvt2", "kvt3"}) {
    const Format f = *registry().format_for(name, 64, {});
    const Field& field = *f.field(FieldKind::codes);
    test::Rng rng(4);
    for (int trial = 0; trial < 3; ++trial) {
      const std::vector<float> x = rng.normals(64);
      double norm = 0;
      std::vector<double> u(x.begin(), x.end());
      rotate_forward(f.rotation, u.data(), 64);
      for (const double v : u) norm += v * v;
      for (double& v : u) v /= std::sqrt(norm);
      const std::vector<std::uint8_t> block = encode_row(f, x);
      const double chosen = distance(f, block, u);
      for (int first = 0; first < 8 * field.bytes; ++first)
        for (int pattern = 1; pattern < 128; pattern += 2) {
          if (std::popcount(unsigned(pattern)) > 3) continue;
          std::vector<std::uint8_t> other = block;
          for (int i = 0; i < 7; ++i) {
            const int bit = (first + i) % (8 * field.bytes);
            other[std::size_t(field.at + bit / 8)] ^= std::uint8_t((pattern >> i & 1) << bit % 8);
          }
          REQUIRE(distance(f, other, u) >= 0.99 * chosen);
        }
    }
  }
}

TEST_CASE("plain formats hold the golden input exactly") {
  const std::vector<float> x = test::golden_input(128);
  CHECK(encoded("f16", {1.0f, -2.5f}) == "003c00c1");
  CHECK(encoded("bf16", {1.0f, -2.5f}) == "803f20c0");
  CHECK(encoded("f32", {1.0f, -2.5f}) == "0000803f000020c0");
  CHECK(encoded("fp8_e5m2", {1.0f, -2.5f}) == "3cc1");
  for (const char* name : {"f32", "f16", "bf16"})
    CHECK(there_and_back(name, x) == std::vector<double>(x.begin(), x.end()));
}

TEST_CASE("the scale of a whole tensor is the caller's") {
  const Format& f = format("fp8_e4m3");
  const std::vector<float> x = {448, 896, 1000, -2, 0};
  const std::vector<std::uint8_t> bytes = encode_row(f, x, 2);
  CHECK(test::hex_of(bytes) == "767e7eb800");  // 224, 448, 448 (saturated), -1, 0
  CHECK(decode_row(f, bytes, 5, false, 2) == std::vector<double>{448, 896, 896, -2, 0});
}

TEST_CASE("zero rows decode to zero; their bytes are those of the published writers") {
  for (const auto& [name, f] : registry().formats()) {
    CAPTURE(name);
    const int n = std::max(128, f.granule());
    for (const double v : decode_row(f, encode_row(f, std::vector<float>(std::size_t(n))), n, false)) CHECK(v == 0);
  }
  const auto zeros = [](std::size_t n) { return std::vector<float>(n); };
  CHECK(encoded("q4_0", zeros(32)) == "0080" + std::string(32, '8'));  // the scale is -0
  CHECK(encoded("q5_0", zeros(32)) == "0080ffffffff" + std::string(32, '0'));
  CHECK(encoded("q8_0", zeros(32)) == std::string(68, '0'));
  CHECK(encoded("iq4_nl", zeros(32)).substr(4) == std::string(32, '8'));
  CHECK(encoded("mxfp4", zeros(32)) == std::string(34, '0'));
  CHECK(encoded("nvfp4", zeros(64)) == std::string(72, '0'));
  CHECK(encoded("tbq4_0", zeros(128)) == "0000" + std::string(128, '8'));  // 0 lies in the upper of two cells
  CHECK(encoded("turbo3_qk128", zeros(128)) == "0000" + std::string(64, '0') + std::string(32, 'f'));
  CHECK(encoded("amesianx_tbq4_1", zeros(128)) == std::string(132, '0'));
  CHECK(encoded("amesianx_tbqp3_0", zeros(256)) == std::string(200, '0'));
  CHECK(encoded("atlas_nvfp4", zeros(128)) == std::string(144, '0'));
}

// Some rows are too small for the type of their scale. Published writers that convert by hardware give -0 a code of its
// own there.
TEST_CASE("rows whose scale rounds to 0: codes keep the signs of values, or are those of zeros") {
  for (const float tiny : {1e-3f, 1e-8f, 1e-20f, 1e-38f, 1e-44f, 0.f}) {
    CAPTURE(tiny);
    std::vector<float> x(128, tiny);
    for (std::size_t i = 1; i < x.size(); i += 2) x[i] = -tiny;
    CHECK(encoded("atlas_nvfp4", std::vector<float>(x.begin(), x.begin() + 16)) == "808080808080808000");
    for (const char* name : {"vllm_nvfp4", "vllm_nvfp4_4over6"}) {
      const Format f = test::must(registry().format_for(name, 128, {}));
      for (const float over : {1.f, 0.5f}) {
        const std::string stored = test::hex_of(encode_row(f, x, over));
        std::string codes;
        for (int i = 0; i < 64; ++i) codes += "80";
        CHECK(stored == codes + std::string(16, '0'));
      }
    }
  }
  // Beside a value that sets the scale, whatever is rounded to zero keeps its sign, -0 itself too.
  std::vector<float> x = {6, -0.f, 0.f, -1e-30f, 1e-30f, -1e-44f, 0.2f, -0.2f, 0, -0.f, 0, -0.f, 0, -0.f, 0, -0.f};
  CHECK(encoded("atlas_nvfp4", x) == "878080808080808038");
  // The source of buun_turbo8 makes a unit vector of the block first, and takes a block of norm 1e-10 or less as 0.
  std::string middle;
  for (int i = 0; i < 128; ++i) middle += "80";
  for (const float tiny : {1e-30f, 8e-12f, 1e-44f, 0.f})
    CHECK(encoded("buun_turbo8", std::vector<float>(128, tiny)) == "0000" + middle);
  CHECK(encoded("buun_turbo8", std::vector<float>(128, 1e-11f)) != "0000" + middle);
}

TEST_CASE("ties: the first of equal magnitudes gives the scale; halves round up (q4_0) or away from zero (q8_0)") {
  std::vector<float> x(32, 0.0f);
  x[3] = 8.0f, x[4] = -8.0f;
  CHECK(encoded("q4_0", x).substr(0, 4) == "00bc");
  std::swap(x[3], x[4]);
  x[0] = 0.5f, x[1] = -0.5f;
  CHECK(encoded("q4_0", x).substr(0, 14) == "003c898888808f");
  x[3] = 127.0f, x[0] = 2.5f, x[1] = -2.5f;
  CHECK(encoded("q8_0", x).substr(0, 8) == "003c03fd");
}

TEST_CASE("ties of 4-bit floats: towards zero (ggml), to the even mantissa and with the sign of zero (atlas)") {
  std::vector<float> x(64, 0.0f);
  const float ties[] = {6,      0.25f,  0.75f,  1.25f,  1.75f, 2.5f,  3.5f, 5,
                        -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5,   -0.1f};
  std::copy(std::begin(ties), std::end(ties), x.begin());
  const auto nibble = [](const std::string& hex, int i) {
    return std::stoi(hex.substr(std::size_t(i), 1), nullptr, 16);
  };
  // Element j of a group is in the low nibble, element j + 8 in the high one. The hex digit of the high nibble comes
  // first.
  const std::string ggml = encoded("nvfp4", x).substr(8, 16);
  const int towards_zero[] = {7, 0, 1, 2, 3, 4, 5, 6, 0, 9, 10, 11, 12, 13, 14, 0};
  for (int j = 0; j < 16; ++j) CHECK(nibble(ggml, 2 * (j % 8) + (j < 8)) == towards_zero[j]);
  // Two neighbouring elements share a byte.
  const std::string atlas = encoded("atlas_nvfp4", std::vector<float>(x.begin(), x.begin() + 16)).substr(0, 16);
  const int to_even[] = {7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 10, 12, 12, 14, 14, 8};
  for (int j = 0; j < 16; ++j) CHECK(nibble(atlas, j ^ 1) == to_even[j]);
}

TEST_CASE("a value on a bound belongs to the upper cell") {
  // vllm_v4 has steps of 1 from 0 to 15, and halves round up. In iq4_nl 7 lies midway between 1 and 13.
  std::vector<float> x(128, 0.0f);
  x[0] = 15, x[1] = 2.5f, x[2] = 14.5f;
  CHECK(encoded("vllm_v4", x).substr(0, 4) == "3f0f");
  std::vector<float> y(32, 0.0f);
  y[0] = -127, y[1] = 7;
  CHECK(encoded("iq4_nl", y).substr(4, 4) == "8089");
}

TEST_CASE("rows of several blocks and rotation groups are independent of their neighbours") {
  const std::vector<float> x = test::golden_input(384);
  const std::vector<std::uint8_t> row = encode_row(format("tbq4_0"), x);
  REQUIRE(row.size() == 3 * 66);
  const std::vector<std::uint8_t> last = encode_row(format("tbq4_0"), std::span(x).subspan(256));
  CHECK(std::equal(last.begin(), last.end(), row.begin() + 132));
}

TEST_CASE("rotated: the same values before the inverse rotation, also with a residual of either domain") {
  for (const char* name : {"tbq4_0", "turbo4_qjl68", "tbqp3_0", "amesianx_tbqp4_1"}) {
    CAPTURE(name);
    const Format& f = format(name);
    const std::vector<std::uint8_t> row = encode_row(f, test::golden_input(256));
    std::vector<double> rotated = decode_row(f, row, 256, true);
    const std::vector<double> original = decode_row(f, row, 256, false);
    CHECK(rotated != original);
    rotate_inverse(f.rotation, rotated.data(), 256);
    for (std::size_t i = 0; i < 256; ++i) CHECK(rotated[i] == doctest::Approx(original[i]).epsilon(1e-9));
  }
}

TEST_CASE("heads are padded with zeros to whole rotations, and come back without them") {
  const Format& f = format("turbo3_0");
  const std::vector<float> x = test::golden_input(80);
  std::vector<float> filled = x;
  filled.resize(128, 0.0f);
  CHECK(encode_row(f, x) == encode_row(f, filled));
  const std::vector<double> y = decode_row(f, encode_row(f, x), 80, false);
  REQUIRE(y.size() == 80);
  CHECK(decode_row(f, encode_row(f, x), 80, true).size() == 128);
}

TEST_CASE("a factor a channel comes before everything and is taken back after everything") {
  Format f = format("q8_0");
  f.channels.assign(32, 2.0);
  const std::vector<float> x = test::golden_input(32);
  std::vector<float> doubled = x;
  for (float& v : doubled) v *= 2;
  CHECK(encode_row(f, x) == encode_row(format("q8_0"), doubled));
  CHECK(decode_row(f, encode_row(f, x), 32, false) == there_and_back("q8_0", x));  // a power of two changes no digit
}

TEST_CASE("a stored mask marks the largest magnitudes; a damaged one reads nothing outside its block") {
  const Format& f = format("turbo_split_54");
  std::vector<std::uint8_t> row = encode_row(f, test::golden_input(128));
  int marked = 0;
  for (int i = 0; i < 128; ++i) marked += row[2 + std::size_t(i) / 8] >> i % 8 & 1;
  CHECK(marked == 32);
  for (const std::uint8_t byte : {0x00, 0xFF}) {
    std::fill(row.begin() + 2, row.begin() + 18, byte);
    std::vector<double> decoded[2];
    for (const int behind : {0, 1}) {
      std::vector<std::uint8_t> longer = row;
      longer.resize(200, behind ? 0xFF : 0x00);
      decoded[behind] = decode_row(f, std::span(longer).subspan(0, row.size()), 128, false);
    }
    CHECK(decoded[0] == decoded[1]);
  }
}

TEST_CASE("renormalised rows are as long as their stored norm says") {
  for (const char* name : {"vllm_k3_nc", "vllm_k4_nc"}) {
    const std::vector<std::uint8_t> bytes = encode_row(format(name), test::golden_input(128));
    double squares = 0;
    for (const double v : decode_row(format(name), bytes, 128, false)) squares += v * v;
    const std::size_t at = bytes.size() - 2;
    CHECK(std::sqrt(squares) ==
          doctest::Approx(float_from_f16(std::uint16_t(bytes[at] | bytes[at + 1] << 8))).epsilon(1e-9));
  }
}

TEST_CASE("a step is at least as large as the format says") {
  std::vector<float> x(128, 0.0f);
  x[0] = 1e-9f;
  CHECK(encoded("vllm_v4", x).substr(0, 2) == "00");  // the value is a tenth of the smallest step
}

TEST_CASE("the norm of a residual is relative to that of the block, or has its size") {
  std::vector<float> x = test::golden_input(128), doubled = x;
  for (float& v : doubled) v *= 2;
  const auto norm = [](const char* name, const std::vector<float>& row) {
    const std::vector<std::uint8_t> bytes = encode_row(format(name), row);
    return float_from_f16(std::uint16_t(bytes[2] | bytes[3] << 8));
  };
  CHECK(norm("turbo4_qjl68", doubled) == norm("turbo4_qjl68", x));
  CHECK(norm("amesianx_tbqp4_1", doubled) == 2 * norm("amesianx_tbqp4_1", x));
}

TEST_CASE("rotated values are rounded to bf16 first where the format says so") {
  const Format& f = format("atlas_turbo8");
  Format unrotated = f, exact = f;
  unrotated.rotation = Rotation{};
  unrotated.rounds_to_bf16 = exact.rounds_to_bf16 = false;
  test::Rng rng(5);
  const std::vector<float> x = rng.normals(128);
  std::vector<double> y(x.begin(), x.end());
  rotate_forward(f.rotation, y.data(), 128);
  std::vector<float> rounded;
  for (const double v : y) rounded.push_back(float_from_bf16(bf16_from_float(float(v))));
  CHECK(encode_row(f, x) == encode_row(unrotated, rounded));
  CHECK(encode_row(f, x) != encode_row(exact, x));
}

TEST_CASE("divisions: float32 values next to a bound fall as the source's own operations let them") {
  const auto around = [](float x, auto check) {
    for (int i = 0; i < 4; ++i) x = std::nextafter(x, 0.0f);
    for (int i = 0; i < 9; ++i, x = std::nextafter(x, kInfinity)) check(x);
  };
  for (int m = 0; m < 8; ++m)  // ties of E4M3 between 1 and 2
    around(3 * (1 + (2 * float(m) + 1) / 16), [](float x) {
      CHECK(encode_row(format("fp8_e4m3"), std::vector<float>{x}, 3).front() == e4m3_from_float(x / 3));
    });
  const Format& table = format("atlas_turbo4");
  Format unrotated = table;
  unrotated.rotation = Rotation{};
  unrotated.rounds_to_bf16 = false;
  for (const double bound : table.codes().bounds)
    around(float(bound / 2.7326 * 3), [&](float x) {
      if (x == 0) return;
      std::vector<float> group(16, 0.0f);
      group[0] = x, group[1] = 3;
      CHECK((encode_row(unrotated, group).front() & 15) == code_of(x * (2.7326f / 3), table.codes().bounds));
    });
  for (int q = 0; q < 15; ++q)
    around((float(q) + 0.5f) * (7.0f / 15), [](float x) {
      std::vector<float> row(128, 0.0f);
      row[0] = x, row[1] = 7;
      CHECK((encode_row(format("vllm_v4"), row).front() & 15) == int(x / (7.0f / 15) + 0.5f));
    });
}

TEST_CASE("a norm: NaN spoils the whole span, as do infinities and numbers too large for an fp16 scale") {
  for (const char* name : {"tbq4_0", "turbo3_qk32", "turbo4_qjl68", "kv4", "vllm_k4_nc", "turbo_split2_b"})
    for (const float odd : {kNaN, kInfinity, -kInfinity, 3e7f}) {
      CAPTURE(name);
      CAPTURE(odd);
      CHECK(finite_count(there_and_back(name, row_with(odd))) == 0);
    }
}

TEST_CASE("the largest magnitude: infinity and too large numbers spoil their block alone; a NaN its own value alone") {
  for (const char* name : {"q8_0", "q4_0", "q5_0", "iq4_nl", "mxfp4", "kv8"}) {
    CAPTURE(name);
    const long block = format(name).block;
    for (const float odd : {kInfinity, -kInfinity, 1e37f}) {
      if (odd == 1e37f && std::string(name) == "mxfp4") continue;  // the scale of mxfp4 reaches 2^127
      CAPTURE(odd);
      CHECK(finite_count(there_and_back(name, row_with(odd))) == 128 - block);
    }
    if (!format(name).rotation.is_identity()) continue;
    std::vector<double> y = there_and_back(name, row_with(kNaN));
    const std::vector<double> without = there_and_back(name, row_with(0.5f));
    if (format(name).scale.refine == Refine::weighted) {  // the weighted rule sums over all values
      CHECK(finite_count(y) == 128 - block);
      continue;
    }
    y[5] = without[5];
    CHECK(y == without);
  }
}

TEST_CASE("steps from a minimum: infinity and too large numbers spoil their block alone") {
  for (const char* name : {"q4_1", "q5_1", "vllm_v4"})
    for (const float odd : {kInfinity, -kInfinity, 1e7f}) {
      CAPTURE(name);
      CAPTURE(odd);
      CHECK(finite_count(there_and_back(name, row_with(odd))) == 128 - format(name).block);
    }
}

TEST_CASE(
    "8-bit float scales and elements saturate, as published: too large values come back as the largest there is") {
  // The scale stops at 448. The largest entry is 6 (E2M1) or 2.7326 (the table).
  CHECK(there_and_back("atlas_nvfp4", row_with(1e6f))[5] == 6 * 448);
  CHECK(there_and_back("nvfp4", row_with(kInfinity))[5] == 6 * 448);
  CHECK(there_and_back("fp8_e4m3", row_with(kInfinity))[5] == 448);
  CHECK(std::isnan(there_and_back("fp8_e4m3", row_with(kNaN))[5]));
  CHECK(std::isinf(there_and_back("fp8_e5m2", row_with(1e6f))[5]));
  CHECK(std::isinf(there_and_back("f16", row_with(65520.0f))[5]));
  CHECK(finite_count(there_and_back("atlas_turbo4", row_with(kNaN))) == 0);  // the rotation spreads NaN over the head
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
