// generator/formats: formats of files and inline formats: derived layout, units of codebooks, and every refusal.
// SPDX-License-Identifier: MIT
#include "generator/formats/format.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "generator/catalogue/registry.hpp"
#include "generator/formats/codebook.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;

namespace {

using test::registry;

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

bool is_main_code(const Field& field) { return field.kind == FieldKind::codes && field.section == 0; }

Result<Format> two_bit(const std::string& from, const std::string& to) {
  return parse_format(replaced(kTwoBit, from, to), "f/two_bit.toml", registry());
}

}  // namespace

TEST_CASE("published formats: sizes and offsets follow from the axes") {
  struct Row {
    const char* name;
    int block, block_bytes, scale_at, codes_at;
  };
  for (const Row& row : {Row{"f16", 1, 2, -1, 0},
                         Row{"bf16", 1, 2, -1, 0},
                         Row{"f32", 1, 4, -1, 0},
                         Row{"fp8_e4m3", 1, 1, -1, 0},
                         Row{"q8_0", 32, 34, 0, 2},
                         Row{"q5_1", 32, 24, 0, 4},
                         Row{"q5_0", 32, 22, 0, 2},
                         Row{"q4_1", 32, 20, 0, 4},
                         Row{"q4_0", 32, 18, 0, 2},
                         Row{"iq4_nl", 32, 18, 0, 2},
                         Row{"mxfp4", 32, 17, 0, 1},
                         Row{"nvfp4", 64, 36, 0, 4},
                         Row{"tbq4_wht_dfirst_corr", 128, 66, 0, 2},
                         Row{"tbq4_dense_qsfirst_raw", 128, 66, 64, 0},
                         Row{"tbq4_dense256_qsfirst_raw", 256, 130, 128, 0},
                         Row{"tbq3_dense256_qsfirst_raw", 256, 98, 96, 0},
                         Row{"tbqp3_dense256_qsfirst_raw", 256, 100, 96, 0},
                         Row{"tbqp4_dense256_qsfirst_raw", 256, 132, 128, 0},
                         Row{"turbo3_qk32", 32, 14, 0, 2},
                         Row{"turbo3_qk128", 128, 50, 0, 2},
                         Row{"turbo2_qk32", 32, 10, 0, 2},
                         Row{"turbo2_qk128", 128, 34, 0, 2},
                         Row{"turbo4_qjl68", 128, 68, 0, 4},
                         Row{"turbo4_legacy68", 128, 68, 0, 4},
                         Row{"turbo4_66_pr197", 128, 66, 0, 2},
                         Row{"turbo_split2_b", 128, 40, 0, 14},
                         Row{"turbo_split_54", 128, 54, 0, 30},
                         Row{"turbo_split_68", 128, 68, 0, 30},
                         Row{"tq3_0_s2", 32, 14, 12, 0},
                         Row{"atlas_turbo4", 16, 9, 8, 0},
                         Row{"atlas_turbo3", 16, 7, 6, 0},
                         Row{"atlas_turbo2", 16, 5, 4, 0},
                         Row{"atlas_turbo8", 16, 18, 16, 0},
                         Row{"atlas_nvfp4", 16, 9, 8, 0},
                         Row{"amesianx_tbq3_0", 256, 98, 0, 2},
                         Row{"amesianx_tbq4_1", 128, 66, 0, 2},
                         Row{"amesianx_tbqp3_0", 256, 100, 0, 4},
                         Row{"amesianx_tbqp4_0", 256, 132, 0, 4},
                         Row{"amesianx_tbqp4_2", 64, 36, 0, 4},
                         Row{"vllm_k4_nc", 128, 66, 64, 0},
                         Row{"vllm_k3_nc", 128, 50, 48, 0},
                         Row{"vllm_v4", 128, 68, 64, 0},
                         Row{"vllm_v3", 128, 52, 48, 0},
                         Row{"planar3", 128, 50, 0, 2},
                         Row{"iso4", 128, 66, 0, 2}}) {
    CAPTURE(row.name);
    const Format& f = *registry().format(row.name, {}).value();
    CHECK(f.block == row.block);
    CHECK(f.block_bytes == row.block_bytes);
    CHECK((f.field(FieldKind::scale) ? f.field(FieldKind::scale)->at : -1) == row.scale_at);
    CHECK(std::find_if(f.fields.begin(), f.fields.end(), is_main_code)->at == row.codes_at);
    CHECK(f.bits_per_value() == 8.0 * row.block_bytes / row.block);
    CHECK(f.row_bytes(256) == 256 / row.block * row.block_bytes);
    CHECK(f.source.size() > 4);
  }
}

TEST_CASE("the parts of a block in layout planar hold every field but padding once, one after the other") {
  for (const auto& [name, f] : registry().formats()) {
    CAPTURE(name);
    int code = 0, other = 0;
    for (const Field& field : f.fields) {
      if (field.kind == FieldKind::pad && !field.in_scales) continue;
      int& at = field.is_code() ? code : other;
      CHECK(field.plane_at == at);
      at += field.bytes;
    }
    CHECK(code == f.code_bytes);
    CHECK(other == f.scale_bytes);
    CHECK(code > 0);
  }
}

TEST_CASE("the published 4-bit table and bounds are used as printed, mirrored, in float32") {
  const Format& f = *registry().format("tbq4_0", {}).value();
  const Section& s = f.codes();
  REQUIRE(s.values.size() == 16);
  CHECK(s.values[8] == double(0.011353f));
  CHECK(s.values[7] == double(-0.011353f));
  CHECK(s.values[15] == double(0.241556f));
  CHECK(s.bounds[7] == 0);
  CHECK(s.bounds[8] == double(0.022832f));
  CHECK(s.bounds[0] == double(-0.212232f));
  CHECK(f.rotation.size == 128);
}

TEST_CASE("bits of a code: split puts the second half of a span into high nibbles") {
  const Field& q4 = registry().format("q4_0", {}).value()->fields[1];
  CHECK(q4.bit_of(0) == 0);
  CHECK(q4.bit_of(15) == 120);
  CHECK(q4.bit_of(16) == 4);
  const Field& nvfp4 = registry().format("nvfp4", {}).value()->fields[1];
  CHECK(nvfp4.bit_of(8) == 4);
  CHECK(nvfp4.bit_of(16) == 64);
  CHECK(inline_format(numbers(3), registry()).value().fields[1].bit_of(5) == 15);
}

TEST_CASE("bits of a code in nibbles: eight codes a word, the rest in spare bits and a third word") {
  const Field& kv3 = registry().format("kv3", {}).value()->fields[1];
  REQUIRE(kv3.bytes == 48);
  CHECK(kv3.bit_of(0, 2) == 2);
  CHECK(kv3.bit_of(7, 0) == 28);
  CHECK(kv3.bit_of(8, 1) == 8 * 32 + 1);     // word 8: the third word of group 0
  CHECK(kv3.bit_of(8, 2) == 3);              // the spare bit beside code 0
  CHECK(kv3.bit_of(17, 0) == 4 * 32 + 4);    // word 4: the second word of group 0
  CHECK(kv3.bit_of(31, 0) == 8 * 32 + 30);   // bit 30: the upper two bits of the last nibble
  CHECK(kv3.bit_of(127, 2) == 7 * 32 + 31);  // group 3
  std::set<int> seen;
  for (int k = 0; k < 128; ++k)
    for (int bit = 0; bit < 3; ++bit) seen.insert(kv3.bit_of(k, bit));
  CHECK(seen.size() == 384);
  CHECK(*seen.rbegin() == 383);
}

TEST_CASE("tables that 8-bit integers can hold exactly") {
  const auto step = [](const char* name) { return int8_step(registry().format(name, {}).value()->codes()); };
  CHECK(step("iq4_nl") == 1);
  CHECK(step("mxfp4") == 0.5);
  CHECK(step("q8_0") == 1);
  CHECK(step("q5_1") == 1);
  CHECK(step("tbq4_0") == 0);
  CHECK(step("f16") == 0);
  Section s;
  s.kind = CodeKind::table;
  s.values = {-15.9375, -0.0625, 0.0625, 15.9375};  // 127.5 steps of 1/8, and half a step
  CHECK(int8_step(s) == 0.125);
  s.values.back() = 16.0625;
  CHECK(int8_step(s) == 0);
  s.values = {-128, -1, 1, 127};
  CHECK(int8_step(s) == 1);
  s.values.back() = 128;
  CHECK(int8_step(s) == 0);
  for (const char* bits : {"2", "3", "4", "5", "6"}) CHECK(step((std::string("kv") + bits).c_str()) > 0);
}

TEST_CASE("heads: what they must be multiples of, what is padded, and how many values attention sees") {
  const auto format = [](const char* name) { return *registry().format(name, {}).value(); };
  CHECK(format("tbq4_0").granule() == 128);
  CHECK(format("turbo3_qk32").granule() == 128);
  CHECK(format("nvfp4").granule() == 64);
  CHECK(format("turbo3_0").stored_dim(80) == 128);
  CHECK(format("turbo3_0").stored_dim(129) == 256);
  CHECK(format("tbq4_0").stored_dim(256) == 256);
  CHECK(format("turbo4_qjl68").rotated_dim(256) == 512);
  CHECK(format("turbo4_qjl68").is_transformed());
  CHECK_FALSE(format("q4_0").is_transformed());
  CHECK(check_head_dim(format("turbo3_0"), 112, {}));
  CHECK(check_head_dim(format("tbq4_0"), 112, {}).error().message ==
        "head_dim 112 is not a multiple of 128, the rotation size of 'tbq4_wht_dfirst_corr'");
  CHECK(check_head_dim(format("nvfp4"), 96, {}).error().notes.front() == "multiples of 64 work: 64, 128, ...");
}

TEST_CASE("a file: fields with padding, a rotation wider than the block, units of N(0,1)") {
  const Format f = parse_format(kTwoBit, "f/two_bit.toml", registry()).value();
  CHECK(f.name == "two_bit");
  CHECK(f.block_bytes == 12);
  CHECK(f.fields[0].at == 0);
  CHECK(f.fields[2].at == 10);
  CHECK(f.rotation.size == 128);
  const Section& s = f.codes();
  CHECK(s.values[3] == double(float(1.5 / std::sqrt(32.0))));
  CHECK(s.bounds[1] == 0);
  CHECK(s.bounds[2] == double(float((s.values[2] + s.values[3]) / 2)));
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
  CHECK(message(two_bit("block = 32", "block = 2")) == "2 codes of 2 bits do not fill whole bytes");
  CHECK(message(two_bit("size = 128", "size = 48")) == "rotation size 48 and block 32 do not divide each other");
  CHECK(message(two_bit("size = 128", "size = 1024")) == "rotation 'wht_signed' does not span 1024 channels");
  CHECK(message(two_bit("wht_signed", "wht_sined")) == "rotation 'wht_sined' is not known");
  CHECK(message(two_bit("field = \"scale\"", "field = \"codes\"")) == "fields must hold the codes exactly once");
  CHECK(message(two_bit("[[fields]]\nfield = \"scale\"", "")) == "fields must hold the scale exactly once");
  CHECK(message(two_bit("bytes = 2\n", "")) == "[[fields]] needs the key 'bytes'");
  CHECK(message(two_bit("field = \"codes\"", "field = \"codes\"\nsplit = 16")) ==
        "'split' divides spans of whole bytes of codes of 1, 2 or 4 bits");
  CHECK(message(two_bit("field = \"codes\"", "field = \"codes\"\nnibbles = true")) ==
        "'nibbles' packs groups of 32 whole codes of 3 bits");
  CHECK(message(two_bit("rule = \"raw_norm\"", "rule = \"amax\"")) == "[scale] needs the key 'divisor' or 'factor'");
  CHECK(message(two_bit("-1.5, -0.45", "-inf, -0.45")) == "each item of values must be finite");
  CHECK(message(two_bit("two bits", "two\\nbits")) == "title must be one line");
  CHECK(message(parse_format(kTwoBit, "f/Two-bit.toml", registry())) ==
        "the name of a format is made of a-z, 0-9 and _, and begins with a letter; this one is 'Two-bit'");
  CHECK(message(two_bit("[accept]\nmax_relative_mse = 0.13", "")) == "a format needs the key 'accept'");
  CHECK(message(two_bit("values = [", "bounds = [0]\nvalues = [")) ==
        "bounds must be 3 ascending numbers, or \"midpoints\"; these are 1");
  CHECK(message(two_bit("kind = \"table\"", "kind = \"uniform\"\nrounding = \"half_up\"\noffset = 2")) ==
        "a codebook belongs to [codes] kind = \"table\", \"trellis\" or \"vector\"");
}

TEST_CASE("inline numbers and a file that states the same agree") {
  SideSpec side = numbers(2, 32);
  side.scale = "raw_norm";
  const Format from_numbers = inline_format(side, registry()).value();
  const std::string listed = "unit = \"normal\"\nvalues = [-1.5, -0.45, 0.45, 1.5]";
  const Format from_file = two_bit(listed, "rule = \"lloyd_max\"").value();
  CHECK(from_numbers.codes().values == from_file.codes().values);
  CHECK(from_numbers.codes().bounds == from_file.codes().bounds);
}

TEST_CASE("inline formats: names, layout, codebooks") {
  SideSpec side = numbers(3);
  side.rotation = "wht_signed";
  const Format f = inline_format(side, registry()).value();
  CHECK(f.name == "b3_block128_lloyd_max_corrected_norm_wht_signed");
  CHECK(f.block_bytes == 50);
  CHECK(f.fields[1].at == 2);
  CHECK(f.rotation.size == 128);
  CHECK(f.codes().values[7] == double(float(lloyd_max_normal(3)[7] / std::sqrt(128.0))));
  CHECK(f.max_relative_mse == doctest::Approx(1.05 * 0.034851).epsilon(1e-3));

  side = numbers(4, 64);
  side.codebook = "uniform";
  const Format u = inline_format(side, registry()).value();
  CHECK(u.name == "b4_block64_uniform_amax");
  CHECK(u.codes().offset == 8);
  CHECK(u.codes().max_code == 15);
  CHECK(u.scale.divisor == 7);

  side = numbers(2, 64);
  side.scale = "amax";
  const Format a = inline_format(side, registry()).value();
  CHECK(a.codes().values.back() == 1);
  CHECK(a.codes().values.front() == -1);
  CHECK(a.scale.divisor == 1);

  side.scale = "least_squares";
  const Format l = inline_format(side, registry()).value();
  CHECK(l.name == "b2_block64_lloyd_max_least_squares");
  CHECK(l.scale.refine == Refine::least_squares);
  CHECK(inline_format(numbers(4, 16), registry()).value().block_bytes == 10);
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
