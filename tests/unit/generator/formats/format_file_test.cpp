// generator/formats/format_file.cpp: every table of a format file, and the refusals of each table, with their places.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "generator/catalogue/registry.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;

namespace {

using test::registry;

// Returns a published format whose file has one substring replaced.
Result<Format> edited(const std::string& name, const std::string& from, const std::string& to, int head_dim = 128) {
  std::string text = embedded_files().at("specs/formats/" + name + ".toml");
  const std::size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, name, " lacks ", from);
  return parse_format(text.replace(at, from.size(), to), "f/" + name + ".toml", registry(), head_dim);
}

std::string refusal(const std::string& name, const std::string& from, const std::string& to) {
  const Result<Format> made = edited(name, from, to);
  return made ? "accepted" : made.error().message;
}

}  // namespace

TEST_CASE("steps: exact multiples of a power of two, bounds where the source distribution has them") {
  const Format& f = *registry().format("kv4", {}).value();
  const Section& s = f.codes();
  CHECK(s.values[0] == 5.5 / 64);  // 41.86 steps to sigma: 64 is the next power of two
  CHECK(s.values[7] == 114.5 / 64);
  CHECK(s.bounds[8] == double(float(11 / 41.86 / std::sqrt(128.0))));
  CHECK(s.bounds[7] == 0);
  CHECK(int8_step(s) == 1.0 / 64);
  CHECK(refusal("kv4", "values = [5.5,", "values = [5,") == "steps are all whole or all halves, up to 127.5");
  CHECK(refusal("kv4", "114.5]", "128.5]") == "steps are all whole or all halves, up to 127.5");
  CHECK(refusal("kv4", "steps_per_sigma = 41.86", "") == "[codebook] needs the key 'steps_per_sigma'");
  CHECK(refusal("kv4", "steps_per_sigma = 41.86", "steps_per_sigma = -1") == "steps_per_sigma must be above 0");
  CHECK(refusal("kv4", "corrected_norm", "raw_norm").starts_with("steps need a scale that is found from"));
}

TEST_CASE("codes of sign and magnitude: the top bit is the sign, the opposite code is eight further on") {
  const Section& s = registry().format("kv4", {}).value()->codes();
  for (std::size_t i = 0; i < 8; ++i) CHECK(s.values[i] == -s.values[i + 8]);
  CHECK(s.cell_codes == std::vector<int>{15, 14, 13, 12, 11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(refusal("kv4", "symmetric = true # the positive halves are listed; 0 is a bound\nvalues = [",
                "values = [-127.5, -95.5, -80.5, -60.5, -50.5, -40.5, -20.5, -10.5, ") ==
        "codes of sign and magnitude need a codebook that is symmetric about 0");
}

TEST_CASE("scales: what does not go together") {
  CHECK(refusal("q4_0", "rule = \"signed_max\"\ndivisor = -8", "rule = \"raw_norm\"") ==
        "a norm scales the entries of a codebook: [codes] kind must be \"table\"");
  CHECK(refusal("q4_0", "divisor = -8", "divisor = 0") == "divisor must not be 0");
  CHECK(refusal("q4_0", "divisor = -8", "divisor = -8\ndivision = \"product\"") ==
        "a product is taken with bounds: [codes] kind must be \"table\"");
  CHECK(refusal("iq4_nl", "\"signed_max\"\ndivisor = -127", "\"min_step\"\ndivisor = 15")
            .starts_with("steps from a minimum are"));
  CHECK(refusal("q4_1", "divisor = 15", "divisor = 15\nrefine = \"matched\"") ==
        "steps from a minimum are not refined");
  CHECK(refusal("nvfp4", "group = 16", "group = 24") == "scale groups of 24 do not divide a block of 64");
  CHECK(refusal("nvfp4", "group = 16", "group = 16\nspan = 24") == "a span of 24 is not whole groups of 16");
  CHECK(refusal("turbo3_qk32", "span = 128", "span = 48") == "a span of 48 is not whole groups of 32");
  CHECK(refusal("turbo3_qk32", "span = 128", "span = 128\nrenormalise = true") ==
        "what is renormalised is a block of one norm");
  CHECK(refusal("q4_0", "divisor = -8", "divisor = -8\nrenormalise = true") ==
        "what is renormalised is a block of one norm");
  CHECK(refusal("q4_0", "block = 32", "block = 32\nzero_bytes = true") == "zero_bytes is about blocks of one norm");
  CHECK(refusal("kv4", "corrected_norm\"", "corrected_norm\"\ndivision = \"quotient\"") ==
        "a norm is divided by in double: it has no 'division'");
  CHECK(refusal("q4_0", "signed_max", "signd_max") == "rule 'signd_max' is not known");
}

TEST_CASE("rotations: only what can be undone") {
  CHECK(refusal("tbqp4_dense256_qsfirst_raw", "dense_517c", "gaussian_517c") ==
        "rotation 'gaussian_517c' is not orthogonal, so it cannot be undone");
  CHECK(refusal("atlas_turbo4", "round = \"bf16\"", "round = \"fp16\"") == "round 'fp16' is not known");
  CHECK(edited("atlas_turbo4", "title", "title", 256)->rotation.size == 256);
  CHECK(edited("vllm_k4_nc", "title", "title", 64)->block == 64);
  CHECK(refusal("turbo3_qk128", "\"zero\"", "\"one\"") == "padding 'one' is not known");
}

TEST_CASE("outliers: a mask of the format, or one in each block") {
  const Format& fixed = *registry().format("turbo_split2_b", {}).value();
  REQUIRE(fixed.sections.size() == 2);
  CHECK(fixed.sections[1].members.size() == 32);
  CHECK(fixed.sections[1].members.front() == 64);
  CHECK(fixed.sections[1].members.back() == 126);
  CHECK(fixed.sections[0].members.size() == 96);
  CHECK(registry().format("turbo_split_54", {}).value()->stored_mask == 32);
  CHECK(refusal("turbo_split2_b", "\"00004EFF\", ", "") ==
        "a mask of 3 words covers 96 channels, but the block has 128");
  CHECK(refusal("turbo_split2_b", "00004EFF", "0000xEFF") ==
        "a word of a mask is 8 hex digits: 32 channels, lowest bit first");
  CHECK(refusal("turbo_split2_b", "\"00004EFF\", \"7D00FFEB\"", "\"00000000\", \"00000000\"") ==
        "a mask must hold some channels and leave some");
  CHECK(refusal("turbo_split_54", "\"stored\"", "\"kept\"") == "mask must be a list of hex words, or \"stored\"");
  CHECK(refusal("turbo_split_54", "field = \"mask\"", "field = \"pad\"\nbytes = 16") ==
        "fields must hold the mask exactly once");
  CHECK(refusal("turbo_split_54", "field = \"outliers\"", "field = \"pad\"\nbytes = 12") ==
        "fields must hold the outliers exactly once");
}

TEST_CASE("residuals: factors of each kind") {
  const auto residual = [](const char* name) { return registry().format(name, {}).value()->residual; };
  const double pi = std::acos(-1);
  CHECK(residual("turbo4_qjl68").factor == doctest::Approx(std::sqrt(pi / 2) / std::sqrt(128.0)));
  CHECK(residual("tbqp4_0").factor == doctest::Approx(std::sqrt(pi / 2) / 256));
  CHECK(residual("tbqp4_0").is_original);
  CHECK(residual("amesianx_tbqp4_0").unit == doctest::Approx(16));
  CHECK(residual("amesianx_tbqp4_0").factor == doctest::Approx(std::sqrt(pi / 2) / 256));
  CHECK(residual("amesianx_tbqp4_1").factor == doctest::Approx(1 / std::sqrt(128.0)));
  CHECK(residual("amesianx_tbqp4_1").is_mean);
  CHECK(refusal("turbo4_qjl68", "raw_norm", "corrected_norm") ==
        "a residual is that of a unit vector: [scale] rule must be \"raw_norm\"");
  CHECK(refusal("turbo4_qjl68", "projection = { name = \"wht_qjl_1042\" }", "") ==
        "[residual] needs the key 'projection'");
  CHECK(refusal("turbo4_qjl68", "field = \"residual_norm\"", "field = \"pad\"\nbytes = 2") ==
        "fields must hold the residual_norm exactly once");
  CHECK(refusal("turbo4_qjl68", "field = \"residual\"", "field = \"pad\"\nbytes = 16") ==
        "fields must hold the residual exactly once");
  CHECK(refusal("turbo4_qjl68", "rule = \"raw_norm\"", "rule = \"raw_norm\"\nspan = 256") ==
        "a residual needs one norm a block");
}

TEST_CASE("fields: each bit of a code once, nothing that is not found") {
  CHECK(refusal("turbo3_qk128", "low = 2", "low = 1") == "fields must hold the codes exactly once");
  CHECK(refusal("q5_0", "low = 4", "low = 5") == "low must be 0..4");
  CHECK(refusal("q8_0", "field = \"scale\"", "field = \"minimum\"") == "fields must hold the scale exactly once");
  CHECK(refusal("q8_0", "field = \"codes\"", "field = \"codes\"\n\n[[fields]]\nfield = \"mask\"") ==
        "fields hold a mask, but nothing says how it is found");
  CHECK(refusal("q8_0", "field = \"codes\"", "field = \"code\"") == "field 'code' is not known");
  CHECK(refusal("f16", "field = \"codes\"", "field = \"codes\"\n\n[[fields]]\nfield = \"scale\"") ==
        "fields hold a scale, but there is no [scale] that says how it is found");
}

TEST_CASE("codebooks: 4-bit floats and the sphere") {
  CHECK(refusal("mxfp4", "bits = 4", "bits = 3").find("E2M1 has codes of 4 bits") == 0);
  CHECK(refusal("mxfp4", "ties = \"zero\"", "ties = \"odd\"") == "ties 'odd' is not known");
  const std::string listed =
      "unit = \"normal\"\nsymmetric = true # the positive halves are listed; 0 is a bound\nvalues = [0.12842765, "
      "0.3881378, 0.6568799, 0.9424482, 1.2562575, 1.6178818, 2.068447, 2.7309222]";
  const Format sphere = *edited("vllm_k4_nc", listed, "rule = \"lloyd_max_sphere\"");
  CHECK(sphere.codes().values.back() * std::sqrt(128.0) == doctest::Approx(2.6888).epsilon(1e-4));
  const Format normal = *edited("vllm_k4_nc", listed, "rule = \"lloyd_max\"");
  CHECK(normal.codes().values.back() * std::sqrt(128.0) == doctest::Approx(2.7326).epsilon(1e-4));
  CHECK(refusal("vllm_k4_nc", "values = [", "ties = \"upper\"\nvalues = [") == "ties 'upper' is not known");
  const Format lower = *edited("ggml_q1_0", "bounds = [0]", "bounds = [0]\nties = \"lower\"");
  CHECK(lower.codes().bounds == std::vector<double>{std::nextafter(0.0f, 1.0f)});
}

TEST_CASE("scales: keys that belong to one rule, and roundings that belong to one type") {
  const std::string name = "vllm_nvfp4_4over6";
  CHECK(refusal(name, "search = [6, 4]", "search = [6]") ==
        "'search' lists two to four divisors, and the scale is not refined");
  CHECK(refusal(name, "search = [6, 4]", "divisor = 6\nsearch = [6, 4]") ==
        "'search' lists the divisors: there is no other divisor, and no factor");
  CHECK(refusal(name, "by_stored = true", "by_stored = true\ndivision = \"quotient\"") ==
        "with 'search' and 'over' values are multiplied by a reciprocal");
  CHECK(refusal(name, "over = \"tensor\"", "over = \"group\"") == "over 'group' is not known");
  CHECK(edited(name, "over = \"tensor\"", "over = \"head\"")->has_head_scales());
  CHECK(refusal(name, "over = \"tensor\"", "per = \"head\"") == "'per' belongs to rule = \"tensor\"");
  CHECK(refusal("vllm_ultraquant_v", "factor = 0.156", "factor = 0.156\ndivisor = 6") ==
        "'factor' is above 0, and there is no divisor beside it");
  CHECK(refusal("q4_0", "divisor = -8", "divisor = -8\nfactor = 2") ==
        "'factor' belongs to rule = \"amax\", or to a rule of norms");
  CHECK(refusal("vllm_ultraquant_v", "storage = \"e8m0\"", "storage = \"e4m3\"") ==
        "scales in e8m0 are rounded \"up\" or to \"nearest\", those in e4m3 and f32 \"up\"");
  CHECK(refusal("vllm_k4_nc", "epsilon = 1e-8", "over = \"tensor\"") == "'over' belongs to rule = \"amax\"");
  CHECK(refusal("q8_0", "divisor = 127", "divisor = 127\nepsilon = 1e-8") ==
        "'epsilon' is above 0 and is added to a norm");
  const std::string zero_norm = "'zero_norm' is above 0 and belongs to rule = \"amax\" with a divisor";
  CHECK(refusal("buun_turbo8", "zero_norm = 1e-10", "zero_norm = -1") == zero_norm);
  CHECK(refusal("vllm_k4_nc", "epsilon = 1e-8", "zero_norm = 1e-8") == zero_norm);
  CHECK(refusal(name, "search = [6, 4]", "search = [6, 4]\nzero_norm = 1e-10") == zero_norm);
}

TEST_CASE("zero points, transforms without a norm, grids") {
  const std::string name = "vllm_int4_per_token_head";
  CHECK(refusal(name, "storage = \"f32\"", "storage = \"f16\"") ==
        "a zero point is in the low bits of a float32: storage must be \"f32\"");
  CHECK(refusal(name, "\"half_away\"", "\"half_even\"") ==
        "codes that count from a zero point have up to 8 bits, offset = 0 and rounding = \"half_away\"");
  CHECK(refusal(name, "divisor = 15", "divisor = 15\nby_stored = true") ==
        "with a zero point values are multiplied by the reciprocal of the scale as found");
  CHECK(refusal(name, "wht_vllm_int4", "dense_517c") == "rotation 'dense_517c' has no norm that could be left out");
  CHECK(refusal("ninfer_rk4", "size = 64", "size = 64, normalise = false") ==
        "'normalise = false' belongs to [scale] rule = \"zero_point\"");
  CHECK(
      refusal("buun_turbo8", "rule = \"amax\"\ndivisor = 1\nzero_norm = 1e-10", "rule = \"signed_max\"\ndivisor = 1") ==
      "a grid from -1 to 1 is in units of the largest magnitude: [scale] rule = \"amax\"");
  CHECK(refusal("kv3", "nibbles = true", "nibbles = false") == "'nibbles_from' belongs to 'nibbles = true'");
}

TEST_CASE("trellises: one stream and one norm a block") {
  const std::string name = "buun_turbo2_tcq";
  const Format& f = *registry().format(name, {}).value();
  CHECK(f.codes().is_trellis());
  CHECK_FALSE(f.codes().is_wide());
  CHECK(f.codes().values.size() == 256);
  CHECK(f.block_bytes == 36);  // f16, and 6 + 2 * 128 bits on whole pairs of bytes
  CHECK(f.code_bytes == 34);
  CHECK(f.fields[1].bit_of(5, 7) == 17);
  CHECK(int8_step(f.codes()) == 0);
  CHECK(refusal(name, "step_bits = 2", "step_bits = 4") == "'state_bits' is at least 5 more than 'step_bits'");
  CHECK(refusal(name, "step_bits = 2", "") == "[codes] needs the key 'step_bits'");
  CHECK(refusal(name, "state_bits = 8", "state_bits = 10") == "state_bits must be 6..9");
  CHECK(refusal(name, "state_bits = 8", "state_bits = 9") ==
        "the codebook has 256 values, but a trellis of 9 state bits has 512");
  CHECK(refusal(name, "rule = \"corrected_norm\"", "rule = \"amax\"\ndivisor = 1") ==
        "a trellis has one norm for each block: [scale] rule = \"corrected_norm\", for one");
  CHECK(refusal(name, "block = 128", "block = 512") == "a trellis runs over blocks of 32 to 256 values");
  CHECK(refusal(name, "block = 128", "block = 128\nzero_bytes = true") ==
        "a trellis has all values of a block: no outliers, no residual, and no rounding before it");
  CHECK(refusal(name, "field = \"codes\"", "field = \"codes\"\nlow = 1") == "fields must hold the codes exactly once");
}

TEST_CASE("vectors: two bytes for eight values, and sixteen radii") {
  const std::string name = "ninfer_rk2_e8";
  const Format& f = *registry().format(name, {}).value();
  CHECK(f.codes().is_vector());
  CHECK_FALSE(f.codes().is_wide());
  CHECK(f.block_bytes == 18);  // 8 vectors of two bytes, and f16
  CHECK(f.codes().values[1] == float(0.0992));
  CHECK(f.codes().bounds.size() == 15);
  CHECK(int8_step(f.codes()) == 0);
  CHECK(refusal(name, "lattice = \"e8\"", "") == "[codebook] needs the key 'lattice'");
  CHECK(refusal(name, "0, 0.0992", "0.0992") == "a codebook of vectors has 16 radii and 15 bounds, not 15 and 15");
  CHECK(refusal(name, "0, 0.0992", "0.05, 0.0992") == "radii ascend from 0 to 16 at most");
  CHECK(refusal(name, "2, 2.5198", "2, 16.5") == "radii ascend from 0 to 16 at most");
  CHECK(refusal(name, "0.22627417", "0") == "bounds ascend, are above 0, and are numbers of float32");
  CHECK(refusal(name, "12.6992084", "1e39") == "bounds ascend, are above 0, and are numbers of float32");
  CHECK(refusal(name, "unit = \"scale\"", "") == "[codebook] needs the key 'unit'");
  // 0.50001 is 0.5 in float16, so 0.50001 becomes 1 and 0.5 becomes 0.
  CHECK(refusal(name, "0.3969, 0.5", "0.3969, 0.50001") == "1 times the radius 0.50001 is another integer in float16");
  CHECK(refusal(name, "rule = \"amax\"", "rule = \"amax\"\nrefine = \"matched\"") ==
        "vectors have a scale as found: [scale] rule = \"amax\", without refinement, search or division");
  CHECK(refusal(name, "divisor = 7", "divisor = 7\ngroup = 4") ==
        "vectors of eight values fill blocks of multiples of 64 values, and scale groups");
  CHECK(refusal(name, "size = 64", "size = 64, round = \"bf16\"") ==
        "vectors have all values of a block: no outliers, no residual, and no rounding before them");
  CHECK(refusal(name, "field = \"codes\"", "field = \"codes\"\nsplit = 4") == "one field has the vectors");
}

TEST_CASE("tail-biting trellises: a circle of step_bits a value") {
  const std::string name = "kvt3";
  const Format& f = *registry().format(name, {}).value();
  CHECK(f.codes().is_tail_biting);
  CHECK(f.block_bytes == 50);  // f16, and 3 * 128 bits
  const Field& codes = *f.field(FieldKind::codes);
  CHECK(codes.bit_of(127, 8) == 389);
  CHECK(codes.place_of(127, 8) == 5);  // behind the last bit is the first
  CHECK(registry().format_for(name, 96, {}).value().block_bytes == 14);
  CHECK(registry().format(name, {}).value()->codes().values[0] == float(-57 / (35.43 * std::sqrt(128.0))));
  CHECK(refusal(name, "steps_per_sigma = 35.43", "") == "[codebook] needs the key 'steps_per_sigma'");
  CHECK(refusal(name, "steps_per_sigma = 35.43", "steps_per_sigma = 0") ==
        "'steps_per_sigma' is above 0 and belongs to unit = \"steps\"");
  CHECK(refusal(name, "unit = \"steps\"", "unit = \"normal\"") ==
        "'steps_per_sigma' is above 0 and belongs to unit = \"steps\"");
  CHECK(refusal(name, "bits = 9\nstep", "bits = 9\ntail = 1\nstep") == "unknown key 'tail' in [codes]");
}

TEST_CASE("segments of a rotated head: the last one ends where the head does") {
  const std::string name = "vllm_octave_k";
  const Format half = *registry().format_for(name, 128, {}), whole = *registry().format_for(name, 256, {});
  CHECK(half.block_bytes == 60);  // 32 of 4 bits, 24 of 3 bits, two scales
  CHECK(whole.block_bytes == 112);
  CHECK(whole.rotation.has_head_signs());
  const Format& narrow = whole.segments[1].format;
  CHECK(narrow.block == 192);
  CHECK(narrow.scale.group == 64);
  CHECK(narrow.field(FieldKind::codes)->bytes == 48);  // the two low bits of all codes, before the third
  const Result<Format> small = registry().format_for(name, 64, {});
  REQUIRE_FALSE(small);
  CHECK(small.error().message == "'vllm_octave_k' is a record of whole heads, and none has 64 channels");
  CHECK(small.error().notes == std::vector<std::string>{"heads of more than 64 channels work"});
  CHECK(refusal(name, "channels = [0, 64]", "channels = [0, \"head_dim\"]") ==
        "only the last segment ends at \"head_dim\"");
  CHECK(refusal(name, "[64, \"head_dim\"]", "[-5, \"head_dim\"]") ==
        "channels = [64, end]: a segment begins where the one before ends, and has whole 32 channels");
  CHECK(refusal("vllm_fp8_ds_mla_656", "[[segments]]\nchannels = [0, 512]",
                "rotation = { name = \"wht_unsigned\", size = \"power_of_two\" }\n[[segments]]\nchannels = [0, 512]") ==
        "a record whose first segments are a view has a rotation of one size");
  const Result<Format> large = registry().format_for(name, 320, {});
  REQUIRE_FALSE(large);
  CHECK(large.error().message.find("'wht_octave_blocks' has signs of 256 channels, and heads have 320") !=
        std::string::npos);
  CHECK(refusal(name, "name = \"wht_octave_blocks\", size = 64",
                "name = \"wht_unsigned\", size = 64, round = \"bf16\"") ==
        "values of segments are not rounded before they are coded");
  CHECK(refusal(name, "low = 2\nbits = 1", "low = 1\nbits = 1") == "fields must hold the codes exactly once");
  CHECK(refusal(name, "{ field = \"codes\", split = 4 }",
                "{ field = \"codes\", split = 4 }, { field = \"pad\", bytes = 2 }") ==
        "a segment has fields of codes and of scales: pads stand beside segments");
  CHECK(refusal("ninfer_rk4", "wht_unsigned", "wht_octave_blocks") ==
        "the groups of a head have different signs in rotation 'wht_octave_blocks', which formats without "
        "[[segments]] do not take");
}

TEST_CASE("segments: a record, its views, and what does not go together") {
  const std::string name = "vllm_fp8_ds_mla_656";
  const Format whole = *registry().format_for(name, 576, {}), view = *registry().format_for(name, 512, {});
  CHECK(whole.block_bytes == 656);
  CHECK(whole.code_bytes == 640);
  CHECK(whole.scale_bytes == 16);
  CHECK(whole.segments.size() == 2);
  CHECK(view.segments.size() == 1);
  CHECK(view.block_bytes == 656);  // a view reads and writes the same rows
  CHECK(view.read_bytes() == 528);
  CHECK(view.fields.back().kind == FieldKind::foreign);
  const Result<Format> other = registry().format_for(name, 128, {});
  REQUIRE_FALSE(other);
  CHECK(other.error().message == "'vllm_fp8_ds_mla_656' is a record of whole heads, and none has 128 channels");
  CHECK(other.error().notes == std::vector<std::string>{"heads of 512 channels work", "heads of 576 channels work"});
  const Field& scales =
      *registry().format_for("vllm_nvfp4_ds_mla_352", 576, {}).value().field(FieldKind::segment_scales, 0);
  CHECK(scales.scale_place(5, 32) == 9);  // 8 (s mod 4) + s / 4
  CHECK(refusal(name, "[512, 576]", "[480, 576]") ==
        "channels = [512, end]: a segment begins where the one before ends, and has whole 32 channels");
  CHECK(refusal(name, "[512, 576]", "[512, 570]") ==
        "channels = [512, end]: a segment begins where the one before ends, and has whole 32 channels");
  CHECK(refusal(name, "block = 128", "block = 96") == "512 channels are no whole blocks of 96");
  CHECK(refusal(name, "[[segments]]", "block = 4\n[[segments]]") ==
        "'block' does not go with [[segments]], which have formats of their own");
  CHECK(
      refusal(name, "rule = \"amax\", divisor = 448, least = 1.17549435e-38, storage = \"f32\"", "rule = \"tensor\"") ==
      "a segment has no trellis, no vectors, no minimum and no scale of the whole tensor");
  CHECK(refusal(name, "field = \"scale\"\nsegment = 0", "field = \"scale\"\nsegment = 1") ==
        "fields must hold the codes and the scales of segment 0 exactly once");
  CHECK(refusal(name, "field = \"codes\"\nsegment = 1", "field = \"pad\"\nbytes = 1") ==
        "fields must hold the codes and the scales of segment 1 exactly once");
  CHECK(refusal("vllm_nvfp4_ds_mla_352", "rows = 4", "rows = 5") == "rows divide the scales of a segment of one block");
}

TEST_CASE("fields: the parts of a byte and their order") {
  CHECK(refusal("ik_q6_0", "[0, 2, 1, 3]", "[0, 2, 1]") == "'order' belongs to 'split' and has each of 0 to 3 once");
  CHECK(refusal("ik_q6_0", "[0, 2, 1, 3]", "[0, 2, 1, 1]") == "'order' belongs to 'split' and has each of 0 to 3 once");
  const Format& f = *registry().format("ik_q6_0", {}).value();
  const Field& high = f.fields[1];
  REQUIRE(high.order == 0x3120);
  for (const auto& [k, bit] : {std::pair{0, 0}, {7, 56}, {8, 4}, {16, 2}, {24, 6}, {31, 62}})
    CHECK(high.bit_of(k) == bit);
}
