// Lists the cases of ggml's tests, group by group: see matrix.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/ggml/matrix.hpp"

#include <fmt/format.h>

#include <utility>

namespace kvjit {
namespace {

// Values of a block of a ggml type.
int block_of(const std::string& type) {
  if (type == "f16" || type == "bf16" || type == "f32") return 1;
  return type == "q1_0" ? 128 : type == "q2_0" ? 64 : 32;
}
int padded(int dim, const std::string& type) {
  const int block = block_of(type);
  return (dim + block - 1) / block * block;
}

// The group of long prefills.
void add_prefill(std::vector<GgmlCase>& cases) {
  for (const int tokens : {1024, 2048})
    for (const int dim : {64, 128, 256})
      for (const int batch : {32, 64})
        for (const char* type : {"f16", "q8_0", "q4_0"}) {
          GgmlCase one{dim, dim, 8, 4, 1, tokens, batch, true, false, 0, 0, false, type, type, false, false, false};
          cases.push_back(one);
        }
}

struct HeadSizes {
  int k, v;
  std::vector<int> kv_heads, gqa;
};
const std::vector<HeadSizes>& head_sizes() {
  static const std::vector<HeadSizes> sizes = {
      {40, 40, {4}, {1, 4}},          {64, 64, {4}, {1, 4}},          {72, 72, {4}, {1, 4}},
      {80, 80, {4}, {1, 4}},          {96, 96, {4}, {1, 4}},          {128, 128, {4}, {1, 4, 12}},
      {192, 128, {4}, {1, 4, 8, 16}}, {192, 192, {4}, {1, 4, 8, 16}}, {256, 256, {4}, {1, 4}},
      {320, 256, {1, 4}, {1, 4, 32}}, {512, 512, {4}, {1, 4}},        {576, 512, {1, 4}, {1, 4, 20}}};
  return sizes;
}

// Adds every combination of features for one shape and type.
void add_shape(std::vector<GgmlCase>& cases, const GgmlCase& shape) {
  for (const bool has_mask : {true, false})
    for (const bool has_sinks : {true, false})
      for (const float max_bias : {0.f, 8.f})
        for (const float softcap : {0.f, 10.f})
          for (const bool is_default : {false, true}) {
            if (!has_mask && max_bias > 0) continue;
            if (shape.head_dim_k != 128 && (softcap > 0 || is_default)) continue;
            GgmlCase one = shape;
            one.has_mask = has_mask, one.has_sinks = has_sinks, one.max_bias = max_bias, one.softcap = softcap;
            one.is_default_precision = is_default;
            one.v_is_view = one.head_dim_k == 576;
            cases.push_back(one);
            one.is_permuted = true;
            if (has_mask && max_bias == 0 && softcap == 0 && one.tokens == 512) cases.push_back(one);
          }
}

void add_main(std::vector<GgmlCase>& cases) {
  const std::vector<std::string> all = {"f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"};
  for (const HeadSizes& sizes : head_sizes())
    for (const int kv_heads : sizes.kv_heads)
      for (const int gqa : sizes.gqa)
        for (const int repeats : {1, 3})
          for (const int tokens : {113, 512, 1024})
            for (const int batch : {1, 3, 32, 75})
              for (const std::string& type : all) {
                if (repeats > 1 && sizes.k > 64) continue;
                if (gqa != 1 && tokens != 512) continue;
                if (gqa > 16 && kv_heads > 1) continue;
                if (type != "f16" && sizes.k != 64 && sizes.k != 72) continue;
                GgmlCase shape;
                shape.head_dim_k = sizes.k, shape.head_dim_v = sizes.v, shape.kv_heads = kv_heads, shape.gqa = gqa;
                shape.repeats = repeats, shape.tokens = tokens, shape.batch = batch, shape.k = shape.v = type;
                add_shape(cases, shape);
              }
}

// Adds the cases that ggml lists one by one: mixed types, and shapes beside the main loop. Sizes that ggml's list
// leaves open, mostly counts of heads, are chosen here.
void add_listed(std::vector<GgmlCase>& cases) {
  const auto add = [&](int k, int v, int kv_heads, int gqa, int tokens, int batch, const char* k_type,
                       const char* v_type) -> GgmlCase& {
    cases.push_back(
        {k, v, kv_heads, gqa, 1, tokens, batch, true, false, 0, 0, false, k_type, v_type, false, false, false});
    return cases.back();
  };
  add(128, 128, 4, 1, 512, 3, "q8_0", "q4_0");
  add(128, 128, 4, 1, 512, 3, "q4_0", "f16");
  add(72, 72, 4, 1, 512, 3, "q4_0", "q8_0");
  add(128, 128, 4, 1, 512, 3, "f16", "f32");
  add(128, 128, 4, 1, 512, 3, "f16", "q4_0").has_mask = false;
  for (const char* type : {"q1_0", "q2_0"}) {
    add(128, 128, 4, 1, 96, 2, type, type);
    add(128, 64, 4, 1, 128, 2, type, "q4_0");
    add(64, 128, 4, 1, 128, 2, "q4_0", type);
    add(128, 64, 4, 1, 64, 2, type, "f16");
  }
  for (const int tokens : {113, 1024, 1025, 16384}) add(256, 256, 2, 16, tokens, 1, "q8_0", "q8_0");
  add(256, 256, 2, 16, 1024, 1, "q8_0", "q8_0").is_permuted = true;
  GgmlCase& all = add(256, 256, 2, 16, 1024, 1, "q8_0", "q8_0");
  all.has_sinks = true, all.max_bias = 8, all.softcap = 30, all.repeats = 2;
  for (const auto& [tokens, batch] : {std::pair{113, 1}, {1024, 1}, {1024, 64}})
    add(576, 512, 1, 16, tokens, batch, "q8_0", "q8_0").v_is_view = true;
  add(320, 256, 1, 32, 512, 1, "f16", "f16").v_is_view = true;
  add(192, 128, 4, 8, 512, 1, "f16", "f16").v_is_view = true;
  add(128, 128, 4, 4, 512, 1, "f16", "f16").v_is_view = true;
  add(64, 64, 4, 4, 512, 1, "q8_0", "q8_0").v_is_view = true;
  for (const int tokens : {4096, 16384}) {
    add(256, 256, 4, 6, tokens, 512, "f16", "f16");
    add(128, 128, 8, 4, tokens, 512, "f16", "f16");
  }
  for (const int dim : {64, 128, 192, 256}) add(dim, dim, 4, 1, 512, 75, "q8_0", "q8_0").is_dense = true;
}

}  // namespace

int GgmlCase::stored_dim(int side) const { return side == 0 ? padded(head_dim_k, k) : padded(head_dim_v, v); }

GgmlCase GgmlCase::served_by() const {
  GgmlCase wide = *this;
  wide.has_sinks = true;
  if (has_mask) wide.max_bias = 8;
  return wide;
}

std::string GgmlCase::toml() const {
  std::string features;
  const auto add = [&](const char* name) { features += fmt::format("{}\"{}\"", features.empty() ? "" : ", ", name); };
  if (has_mask) add("mask");
  if (max_bias > 0) add("mask_slopes");
  if (has_sinks) add("sinks");
  return fmt::format(
      "[k]\nformat = \"{}\"\n[v]\nformat = \"{}\"\n[attention]\nhead_dim_k = {}\nhead_dim_v = {}\nq_heads_per_kv = {}\n"
      "query_length = {}\nfeatures = [{}]\n{}q_type = \"f32\"\nout_type = \"f32\"\n[cache]\nlayout = \"rows\"\n",
      k, v, stored_dim(0), stored_dim(1), gqa, batch, features,
      softcap > 0 ? fmt::format("softcap = {:.1f}\n", softcap) : "");
}

std::string GgmlCase::name() const {
  return fmt::format("{}/{} heads of {}x{}, {} KV heads x {} x {}, {} tokens, {} queries{}{}{}{}{}{}{}{}", k, v,
                     head_dim_k, head_dim_v, kv_heads, gqa, repeats, tokens, batch, has_mask ? ", mask" : "",
                     has_sinks ? ", sinks" : "", max_bias > 0 ? ", ALiBi" : "",
                     softcap > 0 ? fmt::format(", softcap {}", softcap) : "", is_permuted ? ", permuted" : "",
                     v_is_view ? ", V a view" : "", is_dense ? ", dense" : "",
                     is_default_precision ? ", default precision" : "");
}

std::vector<GgmlCase> ggml_matrix() {
  std::vector<GgmlCase> cases;
  add_prefill(cases);
  add_main(cases);
  add_listed(cases);
  return cases;
}

}  // namespace kvjit
