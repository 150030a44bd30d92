// generator/formats/calibration.cpp: files are read, and wrong ones are refused. tests/unit/tools/quality tests the
// effect of calibrations.
// SPDX-License-Identifier: MIT
#include "generator/formats/calibration.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"

using namespace kvjit;

namespace {

Result<Calibration> parse(const std::string& text) {
  return parse_calibration("title = 't'\n" + text, "specs/calibrations/mine.toml");
}

std::string message(const std::string& text) {
  const auto parsed = parse(text);
  return parsed ? "" : parsed.error().message;
}

}  // namespace

TEST_CASE("every key arrives; [made] is for readers") {
  const Calibration c =
      parse("source = 's'\nchannels = [0.5, 2, 0.1]\nmask = ['80000001']\nprofile = [" + std::string(31 * 3, ' ') +
            "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
            "1, 1, 1, 1, 1, 1, 1, 1, 1, 2]\n[made]\nrule = 'by hand'")
          .value();
  CHECK(c.name == "mine");
  CHECK(c.source == "s");
  CHECK(c.channels == std::vector<double>{0.5, 2, double(0.1f)});  // float32, the type in which kernels multiply
  CHECK(c.mask == std::vector<std::uint32_t>{0x80000001u});
  CHECK(c.profile.back() == 2);
  CHECK(mask_word(0x1Fu) == "0000001F");
}

TEST_CASE("what is not a calibration is refused") {
  CHECK(message("") == "a calibration needs the key 'channels'");
  CHECK(message("channels = []") == "channels must not be empty");
  CHECK(message("channels = [1, 0]") == "each item of channels must be 0.0009765625..1024");
  CHECK(message("channels = [1, -1]") != "");
  CHECK(message("channels = [1]\nmask = ['123']") ==
        "'123' in mask is not a word of 32 channels: 8 hexadecimal digits");
  CHECK(message("channels = [1]\nmask = ['0x123456']") != "");
  CHECK(message("channels = [1]\nmask = ['00000001', '0']\nprofile = [1]") != "");
  CHECK(message("channels = [1]\nmask = ['00000001', '00000000']\nprofile = [1]") ==
        "mask has 2 words of 32 channels, profile has 1 channels");
  CHECK(message("channels = [1]\nprofile = [-1]") == "each item of profile must be 0 or more");
  CHECK(message("channels = [1]\nchanels = [1]") == "unknown key 'chanels' in a calibration");
  CHECK(message("channels = [1]\nmade = 1") == "made must be a table: how the calibration was made");
}

TEST_CASE("the registry finds it, and a head of another size is refused") {
  FileSet files = embedded_files();
  files["specs/calibrations/mine.toml"] = "title = 't'\nchannels = [1, 2]";
  const Registry registry = Registry::load(files).value();
  const Calibration* mine = registry.calibration("mine", {}).value();
  CHECK(mine->channels.size() == 2);
  CHECK(check_calibration(*mine, 2, {}));
  const Error error = check_calibration(*mine, 64, {"s.toml", 3, 1, ""}).error();
  CHECK(error.message == "calibration 'mine' is of 2 channels, head_dim is 64");
  CHECK(error.where.line == 3);
  const Error unknown = registry.calibration("mime", {"s.toml", 2, 1, ""}).error();
  CHECK(unknown.message == "calibration 'mime' is not known");
  CHECK(unknown.notes.front() == "did you mean 'mine'?");
}

TEST_CASE("a side of a spec gets the factors; one of ones changes nothing but the name") {
  FileSet files = embedded_files();
  std::string ones = "title = 't'\nchannels = [";
  for (int i = 0; i < 128; ++i) ones += "1, ";
  files["specs/calibrations/ones.toml"] = ones + "]";
  const Registry registry = Registry::load(files).value();
  const auto resolved = [&](const std::string& text) {
    return resolve(parse_specs("v = { format = 'q8_0' }\n" + text, "s.toml").value()[0], registry, "sm_90a");
  };
  const Problem problem = resolved("k = { format = 'q8_0', calibration = 'sample' }").value();
  CHECK(problem.k.channels == registry.calibration("sample", {}).value()->channels);
  CHECK(problem.k.name == "q8_0_sample");
  CHECK(problem.v.channels.empty());
  CHECK(problem.id.find("q8_0_sample-q8_0.") == 0);
  CHECK_FALSE(resolved("k = { format = 'q8_0', calibration = 'ones' }")->k.is_transformed());
  CHECK(resolved("k = { bits = 4, calibration = 'sample' }")->k.is_transformed());
  CHECK(resolved("k = { format = 'q8_0', calibration = 'none' }").error().code == Code::bad_input);
  const Error size = resolved("k = { format = 'q8_0', calibration = 'sample' }\nattention = { head_dim = 64 }").error();
  CHECK(size.message == "calibration 'sample' is of 128 channels, head_dim is 64");
  CHECK(size.where.line == 2);
}

TEST_CASE("a mask replaces the constant mask of a format with outliers, if it has as many") {
  const Registry registry = Registry::load(embedded_files()).value();
  Calibration c;
  c.name = "mine";
  c.channels.assign(128, 1.0);
  const Format split = registry.format_for("turbo_split2_b", 128, {}).value();
  REQUIRE(split.sections.size() == 2);
  const std::size_t outliers = split.sections[1].members.size();
  c.mask.assign(4, 0);
  for (std::size_t i = 0; i < outliers; ++i) c.mask[i / 32] |= 1u << i % 32;
  const Format masked = calibrated(split, c, {}).value();
  for (std::size_t i = 0; i < outliers; ++i) CHECK(masked.sections[1].members[i] == int(i));
  CHECK(masked.sections[0].members.front() == int(outliers));
  CHECK(masked.sections[0].members.size() == split.sections[0].members.size());
  CHECK(masked.sections[1].members != split.sections[1].members);
  CHECK(masked.block_bytes == split.block_bytes);
  CHECK(calibrated(registry.format_for("q8_0", 128, {}).value(), c, {})->sections[0].members.empty());

  c.mask[0] &= ~1u;
  const Error fewer = calibrated(split, c, {"s.toml", 3, 1, ""}).error();
  CHECK(fewer.message == "the mask of calibration 'mine' has " + std::to_string(outliers - 1) +
                             " outliers, turbo_split2_b stores " + std::to_string(outliers));
  CHECK(fewer.where.line == 3);
  CHECK(fewer.notes.front().find("--outliers " + std::to_string(outliers)) != std::string::npos);
  c.mask.resize(3);
  CHECK(calibrated(split, c, {}).error().message ==
        "the mask of calibration 'mine' covers 96 channels, a block of turbo_split2_b has 128");
}

TEST_CASE("q / s and s k meet as q and k: factors and a rotation keep the products") {
  const Registry registry = Registry::load(embedded_files()).value();
  const Calibration& sample = *registry.calibration("sample", {}).value();
  const Rotation rotation = registry.rotation("wht_signed", 128, {}).value();
  std::vector<double> q(128), k(128), out(128);
  double want = 0, got = 0, stretched = 0;
  for (std::size_t i = 0; i < 128; ++i) {
    q[i] = std::sin(double(i)), k[i] = std::cos(3.0 * double(i));
    want += q[i] * k[i];
    q[i] /= sample.channels[i], k[i] *= sample.channels[i];
    stretched = std::max(stretched, std::abs(sample.channels[i] - 1));
  }
  REQUIRE(stretched > 0.1);  // else the calibration would have no effect to test
  rotate_forward(rotation, q.data(), 128);
  rotate_forward(rotation, k.data(), 128);
  for (std::size_t i = 0; i < 128; ++i) got += q[i] * k[i];
  CHECK(got == doctest::Approx(want).epsilon(1e-12));
}
