// tools/quality/rotate_weights.cpp: a rotated projection gives rotated outputs, a rotated output projection accepts
// them, and impossible requests are refused.
// SPDX-License-Identifier: MIT
#include "tools/quality/rotate_weights.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "generator/catalogue/registry.hpp"
#include "generator/formats/reference_codec.hpp"
#include "tests/support/rng.hpp"
#include "tests/support/temp_folder.hpp"
#include "tools/io/files.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

constexpr int kGroup = 64, kOutputs = 128, kInputs = 24;

Rotation rotation() { return Registry::load(embedded_files()).value().rotation("wht_signed", kGroup, {}).value(); }

std::vector<std::uint8_t> stored(WeightType type, const std::vector<float>& x) {
  std::vector<std::uint8_t> bytes;
  for (const float v : x) {
    std::uint8_t raw[4];
    const std::uint16_t half = type == WeightType::bf16 ? bf16_from_float(v) : f16_from_float(v);
    if (type == WeightType::f32)
      std::memcpy(raw, &v, 4);
    else
      std::memcpy(raw, &half, 2);
    bytes.insert(bytes.end(), raw, raw + (type == WeightType::f32 ? 4 : 2));
  }
  return bytes;
}

std::vector<double> loaded(WeightType type, const std::vector<std::uint8_t>& bytes) {
  std::vector<double> x;
  const std::size_t size = type == WeightType::f32 ? 4 : 2;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    float v = 0;
    std::uint16_t half = 0;
    if (type == WeightType::f32) std::memcpy(&v, &bytes[at], 4);
    if (type != WeightType::f32) std::memcpy(&half, &bytes[at], 2);
    x.push_back(type == WeightType::f32 ? v : type == WeightType::f16 ? float_from_f16(half) : float_from_bf16(half));
  }
  return x;
}

std::vector<double> product(const std::vector<double>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size(), 0.0);
  for (std::size_t i = 0; i < w.size(); ++i) y[i / x.size()] += w[i] * x[i % x.size()];
  return y;
}

TEST_CASE("x W^T of the rotated weights is the rotated projection, head by head, in each type") {
  test::Rng rng(1);
  const std::vector<double> x = [&] {
    const auto f = rng.normals(kInputs);
    return std::vector<double>(f.begin(), f.end());
  }();
  for (const auto& [type, epsilon] :
       {std::pair(WeightType::f32, 1e-6), {WeightType::f16, 2e-3}, {WeightType::bf16, 2e-2}}) {
    const auto before = stored(type, rng.normals(kOutputs * kInputs));
    const auto after = rotate_outputs(rotation(), type, kOutputs, kInputs, before).value();
    auto expected = product(loaded(type, before), x);
    rotate_forward(rotation(), expected.data(), kOutputs);  // two groups
    const auto got = product(loaded(type, after), x);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::fabs(got[i] - expected[i]) < 8 * epsilon);
  }
}

TEST_CASE("values rotated, output projection rotated: the model says what it said") {
  test::Rng rng(2);
  const auto values = stored(WeightType::f32, rng.normals(kOutputs * kInputs));
  const auto output = stored(WeightType::f32, rng.normals(10 * kOutputs));
  const auto f = rng.normals(kInputs);
  const std::vector<double> x(f.begin(), f.end());
  const auto plain = product(loaded(WeightType::f32, output), product(loaded(WeightType::f32, values), x));
  const auto rotated_values = rotate_outputs(rotation(), WeightType::f32, kOutputs, kInputs, values).value();
  const auto rotated_output = rotate_inputs(rotation(), WeightType::f32, 10, kOutputs, output).value();
  const auto again =
      product(loaded(WeightType::f32, rotated_output), product(loaded(WeightType::f32, rotated_values), x));
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(std::fabs(again[i] - plain[i]) < 1e-4);
}

TEST_CASE("numbers are rounded once, and those beyond the type are refused") {
  // A column of ones in H: 64 / sqrt(64) = 8 in channel 0, times the signs; exact in every type.
  const Rotation r = rotation();
  std::vector<float> ones;
  for (const std::int8_t sign : r.pre) ones.push_back(sign);
  const auto rotated = rotate_outputs(r, WeightType::f16, kGroup, 1, stored(WeightType::f16, ones)).value();
  CHECK(std::fabs(loaded(WeightType::f16, rotated)[0]) == 8);
  CHECK(loaded(WeightType::f16, rotated)[1] == 0);
  for (float& v : ones) v *= 60000;
  const auto beyond = rotate_outputs(r, WeightType::f16, kGroup, 1, stored(WeightType::f16, ones));
  CHECK(beyond.error().code == Code::unsupported);
  CHECK(rotate_outputs(r, WeightType::bf16, kGroup, 1, stored(WeightType::bf16, ones)));
}

// A model with one projection that has a bias.
struct Model {
  test::TempFolder folder;
  std::string file = folder.path + "/m.safetensors";
  Safetensors opened;

  Model() {
    const std::string header = R"({"v.weight":{"dtype":"F32","shape":[128,2],"data_offsets":[0,1024]},)"
                               R"("v.bias":{"dtype":"F32","shape":[128],"data_offsets":[1024,1536]},)"
                               R"("o.weight":{"dtype":"F32","shape":[2,128],"data_offsets":[1536,2560]},)"
                               R"("n":{"dtype":"I32","shape":[128],"data_offsets":[2560,3072]}})";
    std::vector<std::uint8_t> bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(std::uint64_t{header.size()} >> 8 * i));
    for (const char c : header) bytes.push_back(static_cast<std::uint8_t>(c));
    test::Rng rng(3);
    const auto data = stored(WeightType::f32, rng.normals(768));
    bytes.insert(bytes.end(), data.begin(), data.end());
    REQUIRE(write_bytes(file, bytes));
    opened = open_safetensors(file).value();
  }
};

TEST_CASE("a request: weight and bias together, values always, keys and queries only where nothing follows") {
  const Model model;
  const auto ask = [&](std::vector<std::string> names, const char* side, int head_dim = 64, bool is_stated = false) {
    return rotated_tensors(model.opened, {rotation(), std::move(names), side, head_dim, is_stated, is_stated});
  };
  const auto both = ask({"v.weight", "v.bias"}, "v").value();
  CHECK(both.size() == 2);
  const auto bias = read_tensor(model.opened, model.opened.tensors.at("v.bias")).value();
  auto expected = loaded(WeightType::f32, bias);
  rotate_forward(rotation(), expected.data(), 128);
  const auto got = loaded(WeightType::f32, both.at("v.bias"));
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-6));

  CHECK(ask({"v.weight"}, "v").error().message == "'v.weight' has a bias that is not named: 'v.bias'");
  for (const char* side : {"k", "q"}) {
    const Error refused = ask({"v.weight", "v.bias"}, side).error();
    CHECK(refused.code == Code::unsupported);
    CHECK(refused.message.find("RoPE or a QK norm") != std::string::npos);
    CHECK(ask({"v.weight", "v.bias"}, side, 64, true));
  }
  WeightRequest half{rotation(), {"v.weight", "v.bias"}, "k", 64, true, false};
  CHECK_FALSE(rotated_tensors(model.opened, half));
  CHECK(ask({"o.weight"}, "o"));
  CHECK(ask({"o.weight"}, "v").error().message == "'o.weight' has 2 channels, not whole heads of 64");
  CHECK(ask({"n"}, "v").error().message == "'n' is I32");
  CHECK(ask({"v.bias", "v.bias"}, "v").error().message == "'v.bias' is named twice");
  CHECK(ask({"v.bias"}, "v", 96).error().code == Code::usage);
  CHECK(ask({"v.weigth", "v.bias"}, "v").error().notes == std::vector<std::string>{"did you mean 'v.weight'?"});
}

}  // namespace
}  // namespace kvjit
