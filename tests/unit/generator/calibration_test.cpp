// Calibrations: reading, and what is refused; their meaning is tested where they are made (tests/unit/tools).
// SPDX-License-Identifier: MIT
#include "generator/calibration.hpp"

#include <doctest/doctest.h>

#include "generator/problem.hpp"
#include "generator/registry.hpp"

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
  CHECK(c.channels == std::vector<double>{0.5, 2, double(0.1f)});  // float32, as kernels multiply
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

TEST_CASE("a calibration that no kernel applies is refused, not ignored") {
  const Registry registry = Registry::load(embedded_files()).value();
  const auto resolved = [&](const std::string& text) {
    return resolve(parse_specs("v = { format = 'q8_0' }\n" + text, "s.toml").value()[0], registry, "sm_90a");
  };
  CHECK(resolved("k = { format = 'q8_0', calibration = 'sample' }").error().code == Code::unsupported);
  CHECK(resolved("k = { format = 'q8_0', calibration = 'none' }").error().code == Code::bad_input);
  const Error size = resolved("k = { format = 'q8_0', calibration = 'sample' }\nattention = { head_dim = 64 }").error();
  CHECK(size.message == "calibration 'sample' is of 128 channels, head_dim is 64");
  CHECK(size.where.line == 2);
}
