// runtime/store/key.cpp: the key of a kernel is a hash over every input that changes its artefact, and nothing else.
// SPDX-License-Identifier: MIT
#include "runtime/store/key.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <set>

#include "runtime/base/sha256.hpp"

using namespace kvjit;

namespace {

Source sample() {
  Source source;
  source.name = "decode.q8_0-q8_0.d128.g4.sm_90a";
  source.entry = "kv_decode";
  source.arch = "sm_90a";
  source.text = "extern \"C\" __global__ void kv_decode() {}";
  return source;
}

const std::vector<std::string> kOptions = {"--std=c++20", "-v"};

}  // namespace

TEST_CASE("the key is SHA-256 over the printed pieces, each with its length") {
  const Key key = make_key(sample(), ArtefactKind::cubin, kOptions);
  std::string bytes;
  const auto add = [&bytes](const std::string& piece) {
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(piece.size() >> (8 * i));
    bytes += piece;
  };
  add("kvjit request key");
  for (const auto& [name, value] : key.fields) add(name), add(value);
  CHECK(key.hex == hex(sha256(bytes)));
  CHECK(key.hex.size() == 64);
}

TEST_CASE("a fixed vector: entries on users' disks stay valid") {
  const Key key = make_key(sample(), ArtefactKind::cubin, kOptions);
  REQUIRE(key.fields.size() == 8);
  // The version is the only piece that is meant to change.
  REQUIRE(key.fields[1].first == "kvjit");
  if (key.fields[1].second == "0.1.0")
    CHECK(key.hex == "8def57893eaf0d2799a8ef4b18dbbfe564145325036d816f759427ab094ca5dc");
}

TEST_CASE("every piece alone changes the key") {
  std::set<std::string> keys = {make_key(sample(), ArtefactKind::cubin, kOptions).hex};
  const auto expect_new = [&keys](const Source& source, ArtefactKind kind, const std::vector<std::string>& options) {
    CHECK(keys.insert(make_key(source, kind, options).hex).second);
  };
  for (std::string Source::*field : {&Source::entry, &Source::arch}) {
    Source source = sample();
    source.*field += " ";
    expect_new(source, ArtefactKind::cubin, kOptions);
  }
  Source longer = sample();
  longer.text = longer.text.str() + " ";
  expect_new(longer, ArtefactKind::cubin, kOptions);
  expect_new(sample(), ArtefactKind::ptx, kOptions);
  expect_new(sample(), ArtefactKind::host_object, kOptions);
  expect_new(sample(), ArtefactKind::cubin, {"--std=c++20"});
  expect_new(sample(), ArtefactKind::cubin, {"-v", "--std=c++20"});
  expect_new(sample(), ArtefactKind::cubin, {});
}

TEST_CASE("pieces cannot run into each other") {
  CHECK(make_key(sample(), ArtefactKind::cubin, {"ab", "c"}).hex !=
        make_key(sample(), ArtefactKind::cubin, {"a", "bc"}).hex);
  CHECK(make_key(sample(), ArtefactKind::cubin, {"ab"}).hex != make_key(sample(), ArtefactKind::cubin, {"a", "b"}).hex);
  Source one = sample(), two = sample();
  one.arch = "sm_90", one.entry = "a_f";
  two.arch = "sm_90a", two.entry = "_f";
  CHECK(make_key(one, ArtefactKind::cubin, {}).hex != make_key(two, ArtefactKind::cubin, {}).hex);
}

TEST_CASE("what does not change the artefact does not change the key") {
  Source source = sample();
  source.name = "another name";
  source.threads = 7;
  source.shared_bytes = 9;
  CHECK(make_key(source, ArtefactKind::cubin, kOptions).hex == make_key(sample(), ArtefactKind::cubin, kOptions).hex);
}
