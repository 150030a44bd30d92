// Shared by the tests of the C interface: a small spec, and a session on the CPU back-end.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "runtime/kvjit.hpp"

namespace kvjit::test {

using api::sized;

constexpr int kHeadDim = 64, kGroup = 2, kSequences = 2, kHeads = 2, kTokens = 70, kCapacity = 100;

inline std::string spec(const std::string& rotation, const std::string& layout) {
  return "[k]\nbits = 4\nblock = 64\nrotation = \"" + rotation + "\"\n[v]\nbits = 3\nblock = 64\nrotation = \"" +
         rotation + "\"\n[attention]\nhead_dim = 64\nq_heads_per_kv = 2\nq_type = \"f32\"\n[cache]\nlayout = \"" +
         layout + "\"\n";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Session {
  kvjit_error error = sized<kvjit_error>();
  kvjit::api::Context context;
  kvjit::api::Program program;

  Session() {
    auto options = sized<kvjit_context_options>();
    options.device = KVJIT_DEVICE_CPU;
    options.cache_dir = "off";
    INFO(error.message);
    REQUIRE(context.open(options, error) == KVJIT_OK);
  }
  void ok(kvjit_status status) {
    INFO(error.message << "\n" << error.notes);
    REQUIRE(status == KVJIT_OK);
  }
  kvjit::api::Memory memory(std::size_t bytes) {
    kvjit::api::Memory made;
    ok(made.allocate(context, bytes, error));
    return made;
  }
  kvjit::api::Memory upload(const std::vector<float>& values) {
    kvjit::api::Memory made = memory(values.size() * sizeof(float));
    ok(kvjit_copy_to_device(context.get(), made.get(), values.data(), made.bytes(), &error));
    return made;
  }
  std::vector<float> download(const kvjit::api::Memory& from) {
    std::vector<float> values(from.bytes() / sizeof(float));
    ok(kvjit_synchronize(context.get(), nullptr, &error));
    ok(kvjit_copy_to_host(context.get(), values.data(), from.get(), from.bytes(), &error));
    return values;
  }
};

inline std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

inline std::size_t row_at(int sequence, int token, int tokens, int head, int heads) {
  return static_cast<std::size_t>(((sequence * tokens + token) * heads + head) * kHeadDim);
}

}  // namespace kvjit::test
