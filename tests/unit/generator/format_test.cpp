// Formats from files and from inline numbers: derived layout, units of codebooks, and every refusal.
// SPDX-License-Identifier: MIT
#include "generator/format.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "generator/codebook.hpp"
#include "generator/registry.hpp"

using namespace kvjit;

namespace {

const Registry& registry() {
  static const Registry loaded = Registry::load(embedded_files()).value();
  return loaded;
}

SideSpec numbers(int bits, int block = 128) {
  SideSpec side;
  side.bits = bits;
  side.block = block;
  return side;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const std::string kTwoBit = R"(title = "two bits"
block = 32
rotation = { name = "wht_signed", size = 128 }

[[fields]]
field = "codes"

[[fields]]
field = "pad"
bytes = 2

[[fields]]
field = "scale"

[codes]
kind = "table"
bits = 2

[codebook]
unit = "normal"
values = [-1.5, -0.45, 0.45, 1.5]

[scale]
rule = "raw_norm"

[accept]
max_relative_mse = 0.13
)";

Result<Format> two_bit(const std::string& from, const std::string& to) {
  return parse_format(replaced(kTwoBit, from, to), "f/two_bit.toml", registry());
}

}  // namespace

TEST_CASE("shipped formats: sizes and offsets follow from the axes") {
  struct Row {
    const char* name;
    int block, block_bytes, scale_at, codes_at;
    double bits_per_value;
  };
  for (const Row& row : {Row{"f16", 1, 2, 0, 0, 16}, Row{"bf16", 1, 2, 0, 0, 16}, Row{"q8_0", 32, 34, 0, 2, 8.5},
                         Row{"q4_0", 32, 18, 0, 2, 4.5}, Row{"tbq4_wht_dfirst_corr", 128, 66, 0, 2, 4.125}}) {
    CAPTURE(row.name);
    const Format& f = *registry().format(row.name, {}).value();
    CHECK(f.block == row.block);
    CHECK(f.block_bytes == row.block_bytes);
    CHECK(f.scale_at == row.scale_at);
    CHECK(f.codes_at == row.codes_at);
    CHECK(f.bits_per_value() == row.bits_per_value);
    CHECK(f.row_bytes(256) == 256 / row.block * row.block_bytes);
  }
}

TEST_CASE("the published 4-bit table and bounds are used as printed, mirrored, in float32") {
  const Format& f = *registry().format("tbq4_0", {}).value();
  REQUIRE(f.values.size() == 16);
  CHECK(f.values[8] == double(0.011353f));
  CHECK(f.values[7] == double(-0.011353f));
  CHECK(f.values[15] == double(0.241556f));
  CHECK(f.bounds[7] == 0);
  CHECK(f.bounds[8] == double(0.022832f));
  CHECK(f.bounds[0] == double(-0.212232f));
  CHECK(f.rotation.size == 128);
}

TEST_CASE("bits of a code: split puts the second half of a block into high nibbles") {
  const Format& q4 = *registry().format("q4_0", {}).value();
  CHECK(q4.bit_of(0) == 0);
  CHECK(q4.bit_of(15) == 120);
  CHECK(q4.bit_of(16) == 4);
  const Format three = inline_format(numbers(3), registry()).value();
  CHECK(three.bit_of(5) == 15);
}

TEST_CASE("a file: fields with padding, a rotation wider than the block, units of N(0,1)") {
  const Format f = parse_format(kTwoBit, "f/two_bit.toml", registry()).value();
  CHECK(f.name == "two_bit");
  CHECK(f.block_bytes == 12);
  CHECK(f.codes_at == 0);
  CHECK(f.scale_at == 10);
  CHECK(f.rotation.size == 128);
  CHECK(f.values[3] == double(float(1.5 / std::sqrt(32.0))));
  CHECK(f.bounds[1] == 0);
  CHECK(f.bounds[2] == double(float((f.values[2] + f.values[3]) / 2)));
}

TEST_CASE("files: what is refused, and where") {
  const auto message = [](const Result<Format>& r) { return r ? std::string("accepted") : r.error().message; };
  const Result<Format> misspelt = two_bit("rule =", "rul =");
  CHECK(message(misspelt) == "unknown key 'rul' in [scale]");
  CHECK(misspelt.error().where.line == 24);
  CHECK(misspelt.error().where.column == 1);
  CHECK(misspelt.error().where.excerpt == "rul = \"raw_norm\"");
  CHECK(misspelt.error().notes.front() == "did you mean 'rule'?");
  CHECK(message(two_bit("0.45, 1.5]", "0.45]")) == "the codebook has 3 values, but 2-bit codes need 4");
  CHECK(message(two_bit("0.45, 1.5]", "1.5, 0.45]")) == "the values of a codebook must ascend");
  CHECK(message(two_bit("bits = 2", "bits = 9")) == "bits must be 1..8");
  CHECK(message(two_bit("block = 32", "block = 33")) == "33 codes of 2 bits do not fill whole bytes");
  CHECK(message(two_bit("size = 128", "size = 48")) == "rotation size 48 and block 32 do not divide each other");
  CHECK(message(two_bit("size = 128", "size = 1024")) == "rotation 'wht_signed' does not span 1024 channels");
  CHECK(message(two_bit("wht_signed", "wht_sined")) == "rotation 'wht_sined' is not known");
  CHECK(message(two_bit("field = \"scale\"", "field = \"codes\"")) == "fields must hold the codes exactly once");
  CHECK(message(two_bit("[[fields]]\nfield = \"scale\"", "")) == "fields must hold the scale exactly once");
  CHECK(message(two_bit("bytes = 2\n", "")) == "[[fields]] needs the key 'bytes'");
  CHECK(message(two_bit("bits = 2", "bits = 2\npacking = \"split\"")) ==
        "packing 'split' pairs two 4-bit codes of the halves of a block");
  CHECK(message(two_bit("rule = \"raw_norm\"", "rule = \"amax\"")) == "[scale] needs the key 'divisor'");
  CHECK(message(two_bit("-1.5, -0.45", "-inf, -0.45")) == "each item of values must be finite");
  CHECK(message(two_bit("two bits", "two\\nbits")) == "title must be one line");
  CHECK(message(parse_format(kTwoBit, "f/Two-bit.toml", registry())) ==
        "the name of a format is made of a-z, 0-9 and _, and begins with a letter; this one is 'Two-bit'");
  CHECK(message(two_bit("[accept]\nmax_relative_mse = 0.13", "")) == "a format needs the key 'accept'");
  CHECK(message(two_bit("values = [", "bounds = [0]\nvalues = [")) ==
        "bounds must be 3 ascending numbers, or \"midpoints\"; these are 1");
  CHECK(message(two_bit("kind = \"table\"", "kind = \"uniform\"\nrounding = \"half_up\"\noffset = 2")) ==
        "a codebook belongs to [codes] kind = \"table\"");
}

TEST_CASE("inline numbers and a file that states the same agree") {
  SideSpec side = numbers(2, 32);
  side.scale = "raw_norm";
  const Format from_numbers = inline_format(side, registry()).value();
  const std::string listed = "unit = \"normal\"\nvalues = [-1.5, -0.45, 0.45, 1.5]";
  const Format from_file = two_bit(listed, "rule = \"lloyd_max\"").value();
  CHECK(from_numbers.values == from_file.values);
  CHECK(from_numbers.bounds == from_file.bounds);
}

TEST_CASE("inline formats: names, layout, codebooks") {
  SideSpec side = numbers(3);
  side.rotation = "wht_signed";
  const Format f = inline_format(side, registry()).value();
  CHECK(f.name == "b3_block128_lloyd_max_corrected_norm_wht_signed");
  CHECK(f.block_bytes == 50);
  CHECK(f.codes_at == 2);
  CHECK(f.rotation.size == 128);
  CHECK(f.values[7] == double(float(lloyd_max_normal(3)[7] / std::sqrt(128.0))));
  CHECK(f.max_relative_mse == doctest::Approx(1.05 * 0.034851).epsilon(1e-3));

  side = numbers(4, 64);
  side.codebook = "uniform";
  const Format u = inline_format(side, registry()).value();
  CHECK(u.name == "b4_block64_uniform_amax");
  CHECK(u.offset == 8);
  CHECK(u.max_code == 15);
  CHECK(u.divisor == 7);

  side = numbers(2, 64);
  side.scale = "amax";
  const Format a = inline_format(side, registry()).value();
  CHECK(a.values.back() == 1);
  CHECK(a.values.front() == -1);
  CHECK(a.divisor == 1);
}

TEST_CASE("inline formats: refusals name the key and the way out") {
  const auto refused = [](const SideSpec& side) { return inline_format(side, registry()).error(); };
  CHECK(refused(numbers(9)).message == "bits must be 1..8");
  CHECK(refused(numbers(4, 48)).message == "block must be a power of two, 16..1024");
  SideSpec side = numbers(1);
  side.codebook = "uniform";
  side.key_where["bits"] = {"s.toml", 2, 8, "bits = 1"};
  CHECK(refused(side).message == "a uniform codebook needs 2 bits or more");
  CHECK(refused(side).code == Code::unsupported);
  CHECK(refused(side).where.line == 2);
  side = numbers(4);
  side.codebook = "uniform", side.scale = "raw_norm";
  CHECK(refused(side).message == "a uniform codebook has no raw_norm scale");
  side = numbers(4);
  side.codebook = "loyd_max";
  CHECK(refused(side).notes.front() == "did you mean 'lloyd_max'?");
  side = numbers(4);
  side.scale = "rms";
  CHECK(refused(side).message == "scale 'rms' is not known");
  side = numbers(4, 1024);
  side.rotation = "wht_signed";
  CHECK(refused(side).message == "rotation 'wht_signed' does not span 1024 channels");
}
