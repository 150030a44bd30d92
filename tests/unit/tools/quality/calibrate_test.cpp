// tools/quality/calibrate.cpp: scales by hand, the profile of a rotation, masks; a written calibration can be read
// and used.
// SPDX-License-Identifier: MIT
#include "tools/quality/calibrate.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "generator/catalogue/registry.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

KvqFile rows_of(long long dim, std::vector<float> values) {
  return {1, static_cast<long long>(values.size()) / dim, dim, std::move(values)};
}

Rotation signed_wht(int size) {
  return Registry::load(embedded_files()).value().rotation("wht_signed", size, {}).value();
}

TEST_CASE("inner_q: keys and values together, exponent, clamps") {
  // rms over both sides: channel 0 has sqrt((9 + 9) / 2) = 3, channel 1 has sqrt((1 + 1) / 2) = 1; the mean is 2.
  const KvqFile k = rows_of(2, {3, -1}), v = rows_of(2, {-3, 1});
  const ChannelScales half = channel_scales(ScaleMethod::inner_q, 0.5, k, v);
  CHECK(half.scales[0] == doctest::Approx(std::sqrt(2.0 / 3)));
  CHECK(half.scales[1] == doctest::Approx(std::sqrt(2.0)));
  CHECK_FALSE(half.is_needless);
  CHECK(channel_scales(ScaleMethod::inner_q, 1, k, v).scales[0] == doctest::Approx(2.0 / 3));
  // One channel of 16 has all the energy: its scale hits the lower clamp, the others hit the upper one.
  std::vector<float> spike(16, 0.001f);
  spike[3] = 1000;
  const ChannelScales clamped = channel_scales(ScaleMethod::inner_q, 0.5, rows_of(16, spike), rows_of(16, spike));
  CHECK(clamped.scales[3] == 0.5);
  CHECK(clamped.scales[0] == 2);
  // Scales depend on the values too: here keys are all equal.
  CHECK(channel_scales(ScaleMethod::inner_q, 0.5, rows_of(2, {1, 1}), rows_of(2, {9, 1})).scales[0] < 0.8);
}

TEST_CASE("scales that are all within 1.2 of one are not worth it") {
  const ChannelScales near = channel_scales(ScaleMethod::inner_q, 0.5, rows_of(2, {1.3f, 1}), rows_of(2, {1.3f, 1}));
  CHECK(near.is_needless);
  CHECK(near.scales == std::vector<double>{1, 1});
  CHECK(near.low == doctest::Approx(std::sqrt(1.15 / 1.3)));
  CHECK_FALSE(channel_scales(ScaleMethod::inner_q, 1, rows_of(2, {1.6f, 1}), rows_of(2, {1.6f, 1})).is_needless);
  CHECK(channel_scales(ScaleMethod::inner_q, 0.5, rows_of(2, {0, 0}), rows_of(2, {0, 0})).is_needless);
}

TEST_CASE("max: keys alone, geometric mean 1, a dead channel keeps 1") {
  const ChannelScales max =
      channel_scales(ScaleMethod::max, 0, rows_of(3, {-16, 1, 0, 2, -1, 0}), rows_of(3, {0, 99, 9}));
  CHECK(max.scales[0] == doctest::Approx(0.5));
  CHECK(max.scales[1] == doctest::Approx(2));
  CHECK(max.scales[2] == 1);
}

TEST_CASE("keys times s and queries over s keep the products, and so does the rotation between") {
  test::Rng rng(9);
  const KvqFile k = rows_of(128, rng.normals(128 * 40)), q = rows_of(128, rng.normals(128));
  std::vector<float> uneven = k.values;
  for (std::size_t i = 0; i < uneven.size(); ++i) uneven[i] *= float(1 + i % 128 % 7);
  const auto s = channel_scales(ScaleMethod::inner_q, 0.5, rows_of(128, uneven), k).scales;
  const Rotation rotation = signed_wht(128);
  std::vector<double> a(128), b(128);
  double plain = 0;
  for (std::size_t i = 0; i < 128; ++i) {
    plain += double{q.values[i]} * uneven[i];
    a[i] = q.values[i] / s[i];
    b[i] = uneven[i] * s[i];
  }
  rotate_forward(rotation, a.data(), 128);
  rotate_forward(rotation, b.data(), 128);
  CHECK(std::inner_product(a.begin(), a.end(), b.begin(), 0.0) == doctest::Approx(plain).epsilon(1e-12));
}

TEST_CASE("the profile: 1 on average, whatever the rows' sizes, and a constant vector goes to one channel") {
  test::Rng rng(4);
  std::vector<float> x = rng.normals(64 * 200);
  for (std::size_t i = 0; i < 64; ++i) x[i] *= 1000;  // a row of large values has no more weight than the others
  for (std::size_t i = 64; i < 128; ++i) x[i] = 0;    // a row of zeros has no weight
  const KvqFile rows = rows_of(64, x);
  const auto profile = rotated_profile(signed_wht(64), 64, {}, {&rows});
  CHECK(std::accumulate(profile.begin(), profile.end(), 0.0) / 64 == doctest::Approx(1));
  CHECK(*std::max_element(profile.begin(), profile.end()) < 2);
  // Without a rotation the profile is that of the channels; scales change it.
  const KvqFile two = rows_of(2, {3, 1, -3, 1});
  const auto flat = rotated_profile({}, 2, {}, {&two});
  CHECK(flat[0] == doctest::Approx(1.8));
  CHECK(rotated_profile({}, 2, {1.0 / 3, 1}, {&two})[0] == doctest::Approx(1));
  // Signs that equal the first row of the rotation: all energy goes to channel 0.
  const Rotation rotation = signed_wht(64);
  std::vector<float> signs;
  for (const std::int8_t sign : rotation.pre) signs.push_back(sign);
  const KvqFile aligned = rows_of(64, signs);
  CHECK(rotated_profile(rotation, 64, {}, {&aligned})[0] == doctest::Approx(64));
  // Heads of 128 channels are two groups with one profile.
  std::vector<float> twice = signs;
  twice.insert(twice.end(), signs.begin(), signs.end());
  const KvqFile wide = rows_of(128, twice);
  CHECK(rotated_profile(rotation, 64, {}, {&wide}).size() == 64);
}

TEST_CASE("masks: the largest channels, the first of equals, 32 a word") {
  std::vector<double> profile(64, 1.0);
  profile[2] = profile[40] = profile[63] = 3;
  CHECK(mask_words(largest_channels(profile, 3)) == std::vector<std::uint32_t>{1u << 2, 1u << 8 | 1u << 31});
  CHECK(mask_words(largest_channels(profile, 4)) == std::vector<std::uint32_t>{1u << 2 | 1u << 0, 1u << 8 | 1u << 31});
  CHECK(mask_words(std::vector<bool>(16, true)) == std::vector<std::uint32_t>{0xFFFFu});
}

TEST_CASE("what is written can be read, and --specs finds it") {
  Calibration c;
  c.title = "a \"quoted\" title";
  c.source = "k.npy";
  for (int i = 0; i < 64; ++i) c.channels.push_back(float(0.5 + 0.01 * i)), c.profile.push_back(float(1 + 0.001 * i));
  c.mask = {0x80000001u, 0x0000F000u};
  const std::string toml = calibration_toml(c, {{"method", "\"inner_q\""}, {"rows", "12"}});
  FileSet files = embedded_files();
  files["specs/calibrations/fresh.toml"] = toml;
  const auto registry = Registry::load(files);
  REQUIRE_MESSAGE(registry, (registry ? "" : render(registry.error())));
  const Calibration& read = *registry->calibration("fresh", {}).value();
  CHECK(read.title == c.title);
  CHECK(read.channels == c.channels);
  CHECK(read.mask == c.mask);
  CHECK(read.profile == c.profile);
}

TEST_CASE("the built-in sample is what tests/data gives") {
  const std::string data = std::string(KVJIT_SOURCE_DIR) + "/tests/data/";
  const KvqFile k = read_kvq(data + "k.npy", "K").value(), v = read_kvq(data + "v.npy", "V").value();
  const Registry registry = Registry::load(embedded_files()).value();
  const Calibration& sample = *registry.calibration("sample", {}).value();
  const ChannelScales found = channel_scales(ScaleMethod::inner_q, 0.5, k, v);
  CHECK(found.scales == sample.channels);
  const auto profile = rotated_profile(signed_wht(128), 128, found.scales, {&k, &v});
  for (std::size_t i = 0; i < profile.size(); ++i)
    CHECK(profile[i] == doctest::Approx(sample.profile[i]).epsilon(1e-6));
  CHECK(mask_words(largest_channels(profile, 32)) == sample.mask);
}

}  // namespace
}  // namespace kvjit
