// Errors of formats: each format has at most the error on N(0,1) that its file states, and the codec has the
// distortions of TurboQuant (arXiv 2504.19874, theorems 1 and 2).
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "generator/catalogue/registry.hpp"
#include "generator/formats/reference_codec.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/rng.hpp"

using namespace kvjit;

namespace {

using test::registry;

double relative_mse(const Format& f, int rows, int n) {
  test::Rng rng(7);
  double error = 0, total = 0;
  for (int row = 0; row < rows; ++row) {
    const std::vector<float> x = rng.normals(std::size_t(n));
    const std::vector<double> y = decode_row(f, encode_row(f, x), n, false);
    for (std::size_t i = 0; i < x.size(); ++i) error += (y[i] - x[i]) * (y[i] - x[i]), total += double(x[i]) * x[i];
  }
  return error / total;
}

// Returns the format that TurboQuant describes for d channels: a table for the sphere, the raw norm, and optionally the
// signs of the residual.
Format turboquant(int d, const std::string& codebook, int bits, const std::string& projection) {
  const std::string residual =
      projection.empty()
          ? ""
          : fmt::format("[residual]\nkind='projected'\nnorm='length'\nprojection={{name='{}'}}\n", projection);
  const std::string text = fmt::format(
      "title='TurboQuant'\nblock={}\nrotation={{name='wht_signed',size={}}}\nfields=[{{field='codes'}},{{field='scale'}"
      "}{}]\n"
      "[codes]\nkind='table'\nbits={}\n[codebook]\n{}\n[scale]\nrule='raw_norm'\n{}[accept]\nmax_relative_mse=1\n",
      d, d, projection.empty() ? "" : ",{field='residual'},{field='residual_norm'}", bits, codebook, residual);
  const Result<Format> f = parse_format(text, "turboquant.toml", registry());
  REQUIRE_MESSAGE(f, (f ? "" : render(f.error())));
  return *f;
}

struct InnerProducts {
  double error = 0;  // E (<y,x> - <y,x'>)^2 d / |x|^2 |y|^2
  double gain = 0;   // sum <y,x'> <y,x> / sum <y,x>^2: 1 when unbiased
};

InnerProducts inner_products(const Format& f, int d, int rows) {
  constexpr int kQueries = 32;
  test::Rng rng(11);
  double error = 0, norms = 0, cross = 0, square = 0;
  for (int row = 0; row < rows; ++row) {
    const std::vector<float> x = rng.normals(std::size_t(d));
    const std::vector<double> decoded = decode_row(f, encode_row(f, x), d, false);
    for (int query = 0; query < kQueries; ++query) {
      const std::vector<float> y = rng.normals(std::size_t(d));
      double exact = 0, ours = 0, xx = 0, yy = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        exact += double(y[i]) * x[i], ours += y[i] * decoded[i], xx += double(x[i]) * x[i], yy += double(y[i]) * y[i];
      error += (exact - ours) * (exact - ours) * d, norms += xx * yy;
      cross += exact * ours, square += exact * exact;
    }
  }
  return {error / norms, cross / square};
}

}  // namespace

TEST_CASE("every format keeps the error that it promises, and the promise is not wider than a tenth") {
  constexpr int kVectors = 10000;
  for (const auto& [name, f] : registry().formats()) {
    CAPTURE(name);
    const int n = f.granule() < 16 ? 128 : std::max(f.granule(), f.is_per_head ? 128 : 1);
    const double error = relative_mse(f, kVectors, n);
    if (f.max_relative_mse == 0) {
      CHECK(f.codes().kind == CodeKind::plain);
      CHECK(error <= 3e-6);  // bf16 rounds this much; f16 and f32 round less
    } else {
      CHECK(error <= f.max_relative_mse);
      CHECK(error >= 0.9 * f.max_relative_mse);
    }
  }
}

TEST_CASE("formats that share bytes but for their order have the same error") {
  const auto error = [](const char* name) { return relative_mse(*registry().format(name, {}).value(), 200, 256); };
  CHECK(error("turbo3_qk32") == error("turbo3_qk128"));
  CHECK(error("turbo2_qk32") == error("turbo2_qk128"));
  CHECK(error("turbo_split_68") == error("turbo3_qk128"));
}

TEST_CASE("inline formats keep the error they promise, for every number of bits") {
  for (const char* codebook : {"lloyd_max", "uniform"})
    for (const char* scale : {"corrected_norm", "least_squares", "raw_norm", "amax"})
      for (const int block : {16, 32, 128})
        for (int bits = 1; bits <= 8; ++bits) {
          SideSpec side;
          side.bits = bits, side.block = block, side.codebook = codebook, side.scale = scale;
          side.rotation = block == 16 ? "none" : "wht_signed";
          if (side.codebook == "uniform" && (bits == 1 || side.scale != "amax")) continue;
          const Format f = inline_format(side, registry()).value();
          CAPTURE(f.name);
          const double error = relative_mse(f, 2000, block);
          CHECK(error <= f.max_relative_mse);
          CHECK(error >= (block == 16 ? 0.6 : 0.7) * f.max_relative_mse);
        }
}

// The published figures for b = 3 and 4, 0.03 and 0.009, are rounded down: no 3-bit quantizer of a normal source is
// below 0.0345, so a correct implementation exceeds them. At finite d the error is a little below the limit.
TEST_CASE("TurboQuant: the error of unit vectors is that of the best table of the sphere") {
  constexpr double kExact[] = {0.3609, 0.1160, 0.0340, 0.00932};  // d = 128
  constexpr double kLimit[] = {0.3634, 0.1175, 0.0345, 0.0095};   // d to infinity
  for (int bits = 1; bits <= 4; ++bits) {
    CAPTURE(bits);
    const double error = relative_mse(turboquant(128, "rule='lloyd_max_sphere'", bits, ""), 10000, 128);
    CHECK(error == doctest::Approx(kExact[bits - 1]).epsilon(0.01));
    CHECK(error < kLimit[bits - 1]);
    CHECK(error >= std::pow(4, -bits));
    CHECK(error <= std::sqrt(3) * std::numbers::pi / 2 * std::pow(4, -bits));
  }
}

// A format of b bits has a table of b - 1 bits and one sign. With a Gaussian S the error is pi/2 times that of the
// table (published for b = 4 as 0.047, which is pi/2 * 0.03). With an orthogonal S it is pi/2 - 1 times that of the
// table.
TEST_CASE("TurboQuant: inner products are unbiased, with the error of the residual's signs") {
  constexpr double kTable[] = {1, 0.3621, 0.1167, 0.0343};  // d = 256; without a table, then of 1 to 3 bits
  for (int bits = 1; bits <= 4; ++bits) {
    CAPTURE(bits);
    // With entries near 0 the residual is the vector itself.
    const std::string book = bits == 1 ? "unit='inv_sqrt'\nvalues=[-1e-9, 1e-9]" : "rule='lloyd_max_sphere'";
    const InnerProducts gaussian =
        inner_products(turboquant(256, book, std::max(1, bits - 1), "gaussian_517c"), 256, 1500);
    CHECK(gaussian.error == doctest::Approx(std::numbers::pi / 2 * kTable[bits - 1]).epsilon(0.03));
    CHECK(gaussian.gain == doctest::Approx(1).epsilon(0.02));
    const InnerProducts orthogonal =
        inner_products(turboquant(256, book, std::max(1, bits - 1), "wht_amesianx_qjl"), 256, 1500);
    CHECK(orthogonal.error == doctest::Approx((std::numbers::pi / 2 - 1) * kTable[bits - 1]).epsilon(0.03));
    CHECK(orthogonal.gain == doctest::Approx(1).epsilon(0.02));
  }
  // The table alone is biased by its own error.
  CHECK(inner_products(turboquant(256, "rule='lloyd_max_sphere'", 2, ""), 256, 1500).gain ==
        doctest::Approx(1 - 0.1167).epsilon(0.02));
}
