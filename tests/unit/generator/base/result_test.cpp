// generator/base/result.cpp: the text of errors, and when an error suggests a name.
// SPDX-License-Identifier: MIT
#include "generator/base/result.hpp"

#include <doctest/doctest.h>

using namespace kvjit;

TEST_CASE("render: place, source line, caret, notes") {
  CHECK(render({Code::bad_input, "no such thing", {"a.toml", 3, 5, "  k = 1"}, {"one", "two"}}) ==
        "a.toml:3:5: error: no such thing\n  k = 1\n    ^\n  note: one\n  note: two\n");
  CHECK(render({Code::bad_input, "whole file", {"a.toml"}}) == "a.toml: error: whole file\n");
  CHECK(render({Code::internal, "no place"}) == "error: no place\n");
}

TEST_CASE("the caret stands under its column, after tabs and wide bytes too") {
  CHECK(render({Code::bad_input, "m", {"f", 1, 4, "\t\tkey"}}) == "f:1:4: error: m\n  key\n   ^\n");
  CHECK(render({Code::bad_input, "m", {"f", 1, 4, "äé x"}}) == "f:1:4: error: m\näé x\n   ^\n");
  CHECK(render({Code::bad_input, "m", {"f", 1, 9, "ab"}}) == "f:1:9: error: m\nab\n  ^\n");
}

TEST_CASE("render: an error of megabytes is a few lines, and no byte of it reaches the terminal as a command") {
  const std::string huge(50'000'000, 'x');
  const std::string text = render({Code::bad_input, "'" + huge + "\x1b[2J'", {"a\n\xff", 1, 40'000'000, huge}, {huge}});
  CHECK(text.size() < 4000);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("a\\x0a\\xff:1:40000000: error: 'xxx") == 0);
}

TEST_CASE("closest: typing slips only") {
  const std::vector<std::string> names = {"head_dim", "q_heads_per_kv", "query_length", "q4_0", "q8_0"};
  CHECK(closest("head_dmi", names) == "head_dim");
  CHECK(closest("q_heads_per_v", names) == "q_heads_per_kv");
  CHECK(closest("q4", names) == "q4_0");
  CHECK(closest("Q8_0", names) == "q8_0");
  CHECK(closest("temperature", names).empty());
  CHECK(closest("mean", {"amax"}).empty());
  CHECK(closest("k", {"v"}).empty());
  CHECK(closest("90a", {"sm_90", "sm_90a", "sm_89"}) == "sm_90a");
  CHECK(closest("length_k", {"query_length_k", "value_length_k"}).empty());  // either may be meant
  CHECK(closest("", names).empty());
  CHECK(closest(std::string(100'000'000, 'q'), names).empty());
}

namespace {
Result<int> halved(int n) { return n % 2 ? Result<int>(fail(Code::usage, "odd")) : Result<int>(n / 2); }
Result<int> quartered(int n) {
  KV_TRY(half, halved(n));
  KV_CHECK(halved(half));
  return half / 2;
}
}  // namespace

TEST_CASE("KV_TRY and KV_CHECK hand an error on") {
  CHECK(quartered(8).value() == 2);
  CHECK(quartered(6).error().message == "odd");
  CHECK(quartered(7).error().code == Code::usage);
}
