// tools/quality/quality.cpp: quality on the real keys and values of tests/data, against results of another program,
// and on cases solved by hand.
// SPDX-License-Identifier: MIT
#include "tools/quality/quality.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "generator/catalogue/registry.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

using test::registry;

const std::string kData = std::string(KVJIT_SOURCE_DIR) + "/tests/data/";

StoredSide side(const std::string& format, int head_dim = 128) {
  return {format, registry().format_for(format, head_dim, {})};
}

Sample real_sample(bool is_causal) {
  return read_sample(kData + "k.npy", kData + "v.npy", kData + "q.npy", 0, is_causal).value();
}

struct Expected {
  double k_mse, v_mse, logit_error, logit_max, cosine, output_error;
};

void check(const Quality& q, const Expected& want) {
  CHECK(q.k_mse == doctest::Approx(want.k_mse).epsilon(1e-9));
  CHECK(q.v_mse == doctest::Approx(want.v_mse).epsilon(1e-9));
  CHECK(q.logit_error == doctest::Approx(want.logit_error).epsilon(1e-9));
  CHECK(q.logit_max == doctest::Approx(want.logit_max).epsilon(1e-9));
  CHECK(q.cosine == doctest::Approx(want.cosine).epsilon(1e-9));
  CHECK(q.output_error == doctest::Approx(want.output_error).epsilon(1e-9));
}

TEST_CASE("tests/data: a program in Python, with its own ggml codec and attention, gave these numbers") {
  const Quality plain = measure_quality(real_sample(false), {side("q8_0"), side("q4_0")}).value();
  check(plain, {4.3017768369848384e-05, 0.007479974199765068, 0.0026520984685397342, 0.08257744131183342,
                0.9965057787626405, 0.08587792106388056});
  CHECK(plain.k_bits == 8.5);
  CHECK(plain.v_bits == 4.5);
  CHECK(plain.bits() == 6.5);
  check(measure_quality(real_sample(true), {side("q4_0"), side("q8_0")}).value(),
        {0.010964697889120209, 2.9145188276989512e-05, 0.04231058816099385, 1.2606064370190886, 0.9929618034925404,
         0.09705559827437323});
}

TEST_CASE("a format that keeps the numbers has no error, one attended by hand has a known one") {
  const Quality exact = measure_quality(real_sample(false), {side("f16"), side("f16")}).value();
  check(exact, {0, 0, 0, 0, 1, 0});
  // One token of head_dim 32: the softmax is 1, the output is the value, and f16 to bf16 drops the last three bits.
  Sample one;
  one.k = {1, 1, 32, std::vector<float>(32, 1.0f)};
  one.v = {1, 1, 32, std::vector<float>(32, 1.0f + 1.0f / 256)};
  one.q = {1, 1, 32, std::vector<float>(32, 2.0f)};
  const Quality rounded = measure_quality(one, {side("bf16", 32), side("bf16", 32)}).value();
  CHECK(rounded.k_mse == 0);
  CHECK(rounded.v_mse == doctest::Approx(std::pow(1.0 / 257, 2)));  // 1 + 2^-8 becomes 1
  CHECK(rounded.output_error == doctest::Approx(1.0 / 257));
}

TEST_CASE("--queries takes the last ones, and they see what they saw") {
  const Sample all = real_sample(true);
  const Sample few = read_sample(kData + "k.npy", kData + "v.npy", kData + "q.npy", 4, true).value();
  CHECK(few.q.rows == 4);
  CHECK(few.q.values[0] == all.q.values[12 * 128]);
  CHECK(read_sample(kData + "k.npy", kData + "v.npy", kData + "q.npy", 17, true).error().code == Code::bad_input);
  CHECK(read_sample(kData + "k.npy", kData + "q.npy", kData + "q.npy", 0, true).error().code == Code::bad_input);
}

TEST_CASE("a calibration scales before encode and is taken back after decode") {
  // Two channels are a hundred times larger than the rest and spoil their block. Scales that undo this give the error
  // of rows without such channels.
  test::Rng rng(3);
  const int dim = 32;
  Calibration even;
  even.name = "even";
  even.channels.assign(dim, 1.0);
  even.channels[5] = even.channels[20] = 1.0 / 128;  // exact
  Sample flat, spiky;
  flat.k = {1, 256, dim, rng.normals(256 * dim)};
  flat.v = {1, 256, dim, rng.normals(256 * dim)};
  flat.q = {1, 4, dim, rng.normals(4 * dim)};
  spiky = flat;
  for (KvqFile* x : {&spiky.k, &spiky.v})
    for (std::size_t i = 0; i < x->values.size(); ++i)
      if (i % dim == 5 || i % dim == 20) x->values[i] *= 128;
  const StoredSide bare = side("q4_0", dim);
  const Format scaled = calibrated(bare.format.value(), even, {}).value();
  const StoredSide evened{scaled.name, scaled};
  const auto plain = stored_and_back(bare.format.value(), flat.k).value().decoded;
  const auto restored = stored_and_back(scaled, spiky.k).value().decoded;
  for (std::size_t i = 0; i < plain.size(); ++i)
    CHECK(restored[i] == plain[i] * (i % dim == 5 || i % dim == 20 ? 128 : 1));
  CHECK(KvFormats{evened, bare}.name() == "q4_0_even / q4_0");
  const Quality without = measure_quality(spiky, {bare, bare}).value();
  const Quality with = measure_quality(spiky, {evened, bare}).value();
  CHECK(with.k_mse != without.k_mse);
  CHECK(with.v_mse == without.v_mse);
}

TEST_CASE("what does not fit or overflows is said, with the reason") {
  Sample large;
  large.k = large.v = {1, 1, 128, std::vector<float>(128, 1e9f)};
  large.q = {1, 1, 128, std::vector<float>(128, 0.0f)};
  CHECK(measure_quality(large, {side("f16"), side("f16")}).error().message == "the values are too large for f16");
  CHECK(measure_quality(large, {side("tbq4_0"), side("f16")}).error().code == Code::unsupported);
  const StoredSide misfit = side("tbq4_0", 96);
  CHECK(measure_quality(large, {side("f16"), misfit}).error().message == misfit.format.error().message);
}

TEST_CASE("pairs: of specs, then of names; unknown names fail, sizes that do not fit stay with the reason") {
  const auto pairs = [](const std::string& toml, const std::vector<std::string>& names, int head_dim) {
    return kv_formats_of(parse_specs(toml, "s.toml").value(), names, head_dim, registry());
  };
  const std::string spec =
      "k = { format = 'q8_0', calibration = 'sample' }\nv = { bits = 4, rotation = 'wht_signed' }\n";
  const auto found = pairs(spec, {"q4_0", "q4_0", "tbq4_0"}, 128).value();
  REQUIRE(found.size() == 3);
  CHECK(found[0].name() == "q8_0_sample / b4_block128_lloyd_max_corrected_norm_wht_signed");
  CHECK(found[0].k.format->channels.size() == 128);
  CHECK(found[1].name() == "q4_0");
  CHECK(found[2].name() == "tbq4_wht_dfirst_corr");
  // The problem has 64 channels, the calibration 128, and the inline block has 128 values. Both sides stay in the
  // table, each with its reason.
  const auto small = pairs("attention = { head_dim = 64 }\n" + spec, {"vllm_k4_nc"}, 64).value();
  CHECK(small[0].k.format.error().message == "calibration 'sample' is of 128 channels, head_dim is 64");
  CHECK(small[0].v.format.error().message.find("head_dim 64 is not a multiple of 128") == 0);
  CHECK(small[1].k.format->block == 64);
  CHECK(pairs(spec, {"q4_2"}, 128).error().message == "format 'q4_2' is not known");
  const std::string unknown = "k = { format = 'q8_0', calibration = 'no' }\nv = { format = 'f16' }\n";
  CHECK(pairs(unknown, {}, 128).error().where.line == 1);
}

TEST_CASE("a scale of the whole tensor makes the largest number the largest that a code means") {
  KvqFile x{1, 2, 32, std::vector<float>(64, 0.5f)};
  x.values[40] = -7;
  const Format e4m3 = side("fp8_e4m3", 32).format.value(), e5m2 = side("fp8_e5m2", 32).format.value();
  CHECK(tensor_scale_for(e4m3, x) == 7.0f / 448);
  CHECK(tensor_scale_for(e5m2, x) == 7.0f / 57344);
  const Stored stored = stored_and_back(e4m3, x).value();
  CHECK(stored.tensor_scale == 7.0f / 448);
  CHECK(stored.decoded[40] == doctest::Approx(-7));
  CHECK(stored.decoded[0] == 0.5);  // 32 steps of 1/64
  CHECK(stored_and_back(side("q8_0", 32).format.value(), x)->tensor_scale == 0);
  x.values.assign(64, 0);
  CHECK(tensor_scale_for(e4m3, x) == 1);
  Format uniform = e4m3;
  uniform.sections[0].kind = CodeKind::uniform, uniform.sections[0].offset = 8, uniform.sections[0].max_code = 15;
  uniform.channels.assign(32, 2.0);
  x.values[3] = 3;
  CHECK(tensor_scale_for(uniform, x) == 6.0f / 7);
}

TEST_CASE("every format, at head_dim 128 and 256: measured, or with a reason") {
  for (const int head_dim : {128, 256}) {
    Sample sample = generated_samples(head_dim)[0];
    for (KvqFile* x : {&sample.k, &sample.v}) x->rows = 24, x->values.resize(std::size_t(x->heads * 24 * head_dim));
    sample.q.rows = 2, sample.q.values.resize(std::size_t(sample.q.heads * 2 * head_dim));
    std::size_t measured = 0, records = 0;
    const auto all = kv_formats_of({}, {"all"}, head_dim, registry()).value();
    CHECK(all.size() == registry().formats().size());
    for (const KvFormats& formats : all) {
      CAPTURE(formats.name());
      const Result<Quality> quality = measure_quality(sample, formats);
      if (!quality) {
        const std::string& message = quality.error().message;
        records += message.find(fmt::format("is a record of whole heads, and none has {}", head_dim)) != message.npos;
        CHECK((message.starts_with(fmt::format("head_dim {} is not a multiple of", head_dim)) ||
               message.find("is a record of whole heads") != message.npos));
        continue;
      }
      ++measured;
      const Format& format = *formats.k.format;
      CHECK(quality->k_bits == format.bits_per_value() * format.stored_dim(head_dim) / head_dim);
      CHECK(quality->k_mse <= 1.5 * format.max_relative_mse + 1e-5);  // few rows scatter around their mean; bf16 rounds
    }
    MESSAGE(measured, " of ", all.size(), " formats store heads of ", head_dim);
    CHECK(measured + records >= (head_dim == 128 ? all.size() - 8 : all.size()));
    CHECK(records <= 5);
  }
}

TEST_CASE("generated samples: reproducible, and of the kind that their name says") {
  const auto samples = generated_samples(128), again = generated_samples(128);
  REQUIRE(samples.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(samples[i].k.values == again[i].k.values);
  const auto moments = [](const KvqFile& x) {
    double two = 0, four = 0;
    for (const float v : x.values) two += double(v) * v, four += double(v) * v * v * v;
    const double n = double(x.values.size());
    return std::pair(two / n, four / n / (two / n * two / n));
  };
  CHECK(moments(samples[0].k).first == doctest::Approx(1).epsilon(0.02));
  CHECK(moments(samples[0].k).second == doctest::Approx(3).epsilon(0.05));  // the kurtosis of N(0,1)
  CHECK(moments(samples[1].k).first == doctest::Approx(1).epsilon(0.1));
  CHECK(moments(samples[1].k).second > 6);
  std::vector<double> power(128, 0.0);
  for (std::size_t i = 0; i < samples[2].v.values.size(); ++i)
    power[i % 128] += samples[2].v.values[i] * samples[2].v.values[i];
  CHECK(std::count_if(power.begin(), power.end(), [&](double p) { return p > 50 * power[0]; }) == 4);
  const std::string pair = KvFormats{side("q8_0"), side("q8_0")}.name();
  CHECK(measure_quality(samples[0], {side("q8_0"), side("q8_0")}).value().k_mse ==
        doctest::Approx(2.9e-5).epsilon(0.1));
  CHECK(measure_quality(samples[0], {side("q4_0"), side("q4_0")}).value().v_mse ==
        doctest::Approx(.00739).epsilon(0.01));
  CHECK(pair == "q8_0");
}

}  // namespace
}  // namespace kvjit
