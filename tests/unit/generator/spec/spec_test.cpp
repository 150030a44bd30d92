// generator/spec/spec.cpp: every key, defaults, places for later diagnostics, and the matrix. tests/specs/fail has the
// diagnostics.
// SPDX-License-Identifier: MIT
#include "generator/spec/spec.hpp"

#include <doctest/doctest.h>

using namespace kvjit;

namespace {

std::vector<Spec> parse(const std::string& text) { return parse_specs(text, "s.toml").value(); }

const std::string kSides = "k = { format = 'q8_0' }\nv = { format = 'q4_0' }\n";

}  // namespace

TEST_CASE("every key arrives") {
  const Spec s = parse(R"(
title = "t"
[k]
bits = 3
block = 64
codebook = "uniform"
scale = "amax"
rotation = "wht_signed"
[v]
format = "q8_0"
calibration = "c"
[attention]
head_dim = 96
q_heads_per_kv = 4
query_length = 2
features = ["causal"]
q_type = "bf16"
out_type = "f16"
[cache]
layout = "rows"
[target]
arch = ["sm_80", "sm_90a"]
)")
                     .at(0);
  CHECK(s.title == "t");
  CHECK(s.k.bits == 3);
  CHECK(s.k.block == 64);
  CHECK(s.k.codebook == "uniform");
  CHECK(s.k.scale == "amax");
  CHECK(s.k.rotation == "wht_signed");
  CHECK(s.k.format.empty());
  CHECK(s.v.format == "q8_0");
  CHECK_FALSE(s.v.bits);
  CHECK(s.v.calibration == "c");
  CHECK_FALSE(s.k.calibration);
  CHECK_FALSE(s.layers);
  CHECK(s.head_dim == 96);
  CHECK(s.q_heads_per_kv == 4);
  CHECK(s.query_length == 2);
  CHECK(s.causal);
  CHECK_FALSE(s.features.any());
  CHECK(s.q_type == Element::bf16);
  CHECK(s.out_type == Element::f16);
  CHECK(s.layout == Layout::rows);
  CHECK(s.archs == std::vector<std::string>{"sm_80", "sm_90a"});
}

TEST_CASE("defaults, and a single arch") {
  const Spec s = parse(kSides + "[target]\narch = 'sm_90a'").at(0);
  CHECK(s.head_dim == 128);
  CHECK(s.q_heads_per_kv == 1);
  CHECK(s.query_length == 1);
  CHECK_FALSE(s.causal);
  CHECK_FALSE(s.features.any());
  CHECK(s.q_type == Element::f16);
  CHECK(s.out_type == Element::f32);
  CHECK(s.layout == Layout::planar);
  CHECK(s.archs == std::vector<std::string>{"sm_90a"});
  CHECK(s.label.empty());
}

TEST_CASE("query_length: a number, or any number up to a maximum") {
  CHECK_FALSE(parse(kSides + "[attention]\nquery_length = 3").at(0).varlen);
  const Spec any = parse(kSides + "[attention]\nquery_length = 'any'").at(0);
  CHECK(any.varlen);
  CHECK(any.query_length == 65536);
  CHECK(parse(kSides + "[attention]\nquery_length = 'any'\nmax_query_length = 9").at(0).query_length == 9);
  const auto refused = [](const std::string& keys) {
    const auto specs = parse_specs(kSides + "[attention]\n" + keys, "s.toml");
    REQUIRE_FALSE(specs);
    return specs.error().message;
  };
  CHECK(refused("query_length = 'all'") == "query_length 'all' is no number");
  CHECK(refused("query_length = 4\nmax_query_length = 9") == "'max_query_length' without query_length = \"any\"");
  CHECK(refused("query_length = 'any'\nmax_query_length = 0") == "max_query_length must be 1..65536");
}

TEST_CASE("places: of a value, of a table, and the file for what is absent") {
  const Spec s = parse("[k]\n  format = 'q8_0'\n[v]\nbits = 4\n[attention]\nhead_dim =  64\n").at(0);
  CHECK(s.where("attention.head_dim").line == 6);
  CHECK(s.where("attention.head_dim").column == 13);
  CHECK(s.where("attention.head_dim").excerpt == "head_dim =  64");
  CHECK(s.k.key_where.at("format").line == 2);
  CHECK(s.k.key_where.at("format").column == 12);
  CHECK(s.v.where.line == 3);
  CHECK(s.where("cache.layout").file == "s.toml");
  CHECK(s.where("cache.layout").line == 0);
}

TEST_CASE("matrix: the cross product in the order written, last key fastest") {
  const std::vector<Spec> specs = parse(R"(
v = { format = "q8_0" }
[matrix]
"k.bits" = [2, 3]
"attention.head_dim" = [64, 128, 256]
)");
  REQUIRE(specs.size() == 6);
  for (int i = 0; i < 6; ++i) {
    CHECK(specs[i].k.bits == 2 + i / 3);
    CHECK(specs[i].head_dim == 64 << i % 3);
  }
  CHECK(specs[1].label == "k.bits=2 attention.head_dim=128");
  CHECK(specs[1].k.key_where.at("bits").line == 4);
  CHECK(specs[1].where("attention.head_dim").column == 29);
}

TEST_CASE("matrix: overrides keys that are there, lists and whole sides included") {
  const std::vector<Spec> specs = parse(kSides + R"(
[attention]
head_dim = 32
[matrix]
"attention.head_dim" = [64]
"attention.features" = [[], ["causal"]]
"k" = [{ format = "f16" }, { bits = 4 }]
)");
  REQUIRE(specs.size() == 4);
  CHECK(specs[0].head_dim == 64);
  CHECK_FALSE(specs[0].causal);
  CHECK(specs[2].causal);
  CHECK(specs[0].k.format == "f16");
  CHECK(specs[1].k.bits == 4);
  CHECK(specs[2].label == "attention.head_dim=64 attention.features=[causal] k={}");
}

TEST_CASE("a matrix that would not end is refused before it is made") {
  std::string text = kSides + "[matrix]\n";
  for (const char* key : {"attention.head_dim", "attention.query_length", "attention.q_heads_per_kv"}) {
    text += "\"" + std::string(key) + "\" = [16";
    for (int i = 0; i < 40; ++i) text += ", 16";
    text += "]\n";
  }
  CHECK(parse_specs(text, "s.toml").error().message == "[matrix] has more than 4096 combinations");
}

TEST_CASE("a layout of the future is unsupported, a misspelt one is bad input") {
  CHECK(parse_specs(kSides + "cache = { layout = 'interleaved' }", "s.toml").error().code == Code::unsupported);
  CHECK(parse_specs(kSides + "cache = { layout = 'row' }", "s.toml").error().code == Code::bad_input);
}

TEST_CASE("pages: 16 tokens in planes unless the spec says otherwise; without pages their keys are refused") {
  const auto cache = [](const std::string& keys) { return parse_specs(kSides + "cache = { " + keys + " }", "s.toml"); };
  const Spec plain = cache("layout = 'paged'").value()[0];
  CHECK(plain.layout == Layout::paged);
  CHECK(plain.page_tokens == 16);
  CHECK(plain.page_layout == Layout::planar);
  const Spec own = cache("layout = 'paged', page_tokens = 256, page_layout = 'rows'").value()[0];
  CHECK(own.page_tokens == 256);
  CHECK(own.page_layout == Layout::rows);
  CHECK(cache("layout = 'rows'").value()[0].page_tokens == 0);
  for (const char* keys : {"page_tokens = 16", "layout = 'rows', page_layout = 'rows'",
                           "layout = 'paged', page_tokens = 4", "layout = 'paged', page_tokens = 48",
                           "layout = 'paged', page_tokens = 512", "layout = 'paged', page_layout = 'paged'"})
    CHECK_MESSAGE(cache(keys).error().code == Code::bad_input, keys);
}

TEST_CASE("heads of a token side by side: a number of them, in layout rows only") {
  const auto cache = [](const std::string& keys) { return parse_specs(kSides + "cache = { " + keys + " }", "s.toml"); };
  CHECK(cache("layout = 'rows'").value()[0].token_heads == 0);
  CHECK(cache("layout = 'rows', token_heads = 8").value()[0].token_heads == 8);
  for (const char* keys : {"token_heads = 8", "layout = 'paged', token_heads = 8", "layout = 'rows', token_heads = 1",
                           "layout = 'rows', token_heads = 17", "layout = 'rows', token_heads = '8'"})
    CHECK_MESSAGE(cache(keys).error().code == Code::bad_input, keys);
}

TEST_CASE("words for layouts and elements") {
  CHECK(to_string(Layout::planar) == "planar");
  CHECK(to_string(Element::bf16) == "bf16");
}
