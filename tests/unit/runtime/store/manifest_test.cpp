// runtime/store/manifest.cpp: the JSON manifest of a bundle folder, written, read back, and refused when it is wrong.
// SPDX-License-Identifier: MIT
#include "runtime/store/manifest.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace kvjit;

namespace {

using Json = nlohmann::ordered_json;

CacheEntry sample(const std::string& text) {
  Source source;
  source.name = "decode.sample.sm_90a", source.entry = "kv_decode", source.arch = "sm_90a", source.text = text;
  CacheEntry entry{source.name, "fake 1.0", make_key(source, ArtefactKind::cubin, {"-a", "-b"}), {}, {}};
  entry.artefact.bytes = {'a', 'b', 'c'};
  entry.artefact.registers = 7, entry.artefact.stack_bytes = 16;
  entry.artefact.spill_store_bytes = 4, entry.artefact.spill_load_bytes = 8;
  return entry;
}

std::string text_refusal(const std::string& text) {
  const auto read = read_manifest(text);
  if (read) return "taken";
  CHECK(read.error().code == Code::integrity);
  return read.error().message;
}
std::string refusal(const Json& json) { return text_refusal(json.dump()); }

}  // namespace

TEST_CASE("a manifest says what each file is, and reads back as it was") {
  const std::vector<CacheEntry> entries = {sample("a"), sample("b")};
  const std::string text = write_manifest(entries);
  const Json kernel = Json::parse(text)["kernels"][0];
  CHECK(kernel["file"] == "decode.sample.sm_90a." + entries[0].key.hex.substr(0, 12) + ".cubin");
  CHECK(kernel["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(kernel["arch"] == "sm_90a");
  CHECK(kernel["entry"] == "kv_decode");

  const auto rows = read_manifest(text);
  REQUIRE(rows);
  REQUIRE(rows->size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const ManifestRow& row = (*rows)[i];
    CHECK(row.file == file_name(entries[i]));
    CHECK(row.bytes == 3);
    CHECK(hex(row.sha256) == kernel["sha256"]);
    CacheEntry back = row.entry;
    back.artefact.bytes = entries[i].artefact.bytes;
    CHECK(encode_entry(back) == encode_entry(entries[i]));
  }
  CHECK(read_manifest(write_manifest({}))->empty());
}

TEST_CASE("what a manifest may not have: a message each") {
  const Json whole = Json::parse(write_manifest({sample("a"), sample("b")}));
  REQUIRE(refusal(whole) == "taken");
  const auto with = [&](const char* member, const Json& value) {
    Json changed = whole;
    changed["kernels"][1][member] = value;
    return refusal(changed);
  };
  const auto without = [&](const char* member) {
    Json changed = whole;
    changed["kernels"][1].erase(member);
    return refusal(changed);
  };
  // Every member is required and must have its own type.
  for (const auto& [member, value] : whole["kernels"][1].items()) {
    CHECK(without(member.c_str()) == "manifest: kernel 1: has no '" + member + "'");
    for (const Json& other : {Json(), Json::object(), Json(1.5), Json(-1), Json(true)})
      CHECK_MESSAGE(with(member.c_str(), other).find("'" + member + "' is no ") != std::string::npos, member);
  }
  CHECK(with("more", 1) == "manifest: kernel 1: has members that this version does not know");
  for (const char* file : {"", ".", "..", "../kernel", "/etc/passwd", "a/b", ".hidden", "a\\b", "A", "a b"})
    CHECK(with("file", file) == "manifest: kernel 1: 'file' is no name of a file beside it");
  CHECK(with("file", std::string(256, 'a')) == "manifest: kernel 1: 'file' is no name of a file beside it");
  const std::string first = whole["kernels"][0]["file"], second = whole["kernels"][1]["file"];
  CHECK(with("file", first) == "manifest: file " + first + " is there twice");
  CHECK(with("bytes", kMaxEntryBytes + 1) == "manifest: kernel 1: 'bytes' is no whole number from 0 to 268435456");
  CHECK(with("registers", 1ull << 40) == "manifest: kernel 1: 'registers' is no whole number from 0 to 2147483647");
  CHECK(with("sha256", std::string(64, 'A')) == "manifest: kernel 1: 'sha256' is no digest");
  CHECK(with("sha256", std::string(63, 'a')) == "manifest: kernel 1: 'sha256' is no digest");
  CHECK(with("key", whole["kernels"][0]["key"]) == "manifest: " + second + ": another key than its pieces have");
  CHECK(with("pieces", whole["kernels"][0]["pieces"]) == "manifest: " + second + ": another key than its pieces have");
  CHECK(with("pieces", Json::array({1})) == "manifest: a piece of a key that is no pair of texts");
  CHECK(with("pieces", Json::array({Json::array({"a"})})) == "manifest: a piece of a key that is no pair of texts");
  for (const char* member : {"arch", "entry"})
    CHECK(with(member, "x") == "manifest: " + second + ": 'kind', 'arch' or 'entry' is not that of its key");
  CHECK(with("kind", "ptx") == "manifest: " + second + ": 'kind', 'arch' or 'entry' is not that of its key");
  CHECK(with("kind", "elf") == "manifest: " + second + ": no such kind of kernel");
  Json twice = whole;
  twice["kernels"][1] = twice["kernels"][0];
  twice["kernels"][1]["file"] = "other.cubin";
  CHECK(refusal(twice) == "manifest: the key of other.cubin is there twice");

  Json later = whole;
  later["format"] = 2;
  CHECK(refusal(later) == "manifest: format 2; this version reads 1");
  later = whole;
  later["signature"] = "";
  CHECK(refusal(later) == "manifest: the whole: has members that this version does not know");
  CHECK(refusal(Json{{"kvjit", "1"}, {"format", 1}, {"kernels", 1}}) == "manifest: the whole: 'kernels' is no list");
  CHECK(refusal(Json::array()) == "manifest: the whole: no object");
}

TEST_CASE("what is no JSON, or says a thing twice") {
  const std::string whole = write_manifest({sample("a")});
  CHECK(text_refusal("") == "manifest: no JSON");
  CHECK(text_refusal(whole.substr(0, whole.size() / 2)) == "manifest: no JSON");
  CHECK(text_refusal(std::string(100000, '[')) == "manifest: no JSON");
  CHECK(text_refusal(std::string(100000, '[') + std::string(100000, ']')) == "manifest: the whole: no object");
  std::string twice = whole;
  twice.replace(twice.find("\"name\""), 6, "\"file\": \"x\", \"name\"");
  CHECK(text_refusal(twice) == "manifest: member 'file' is there twice");
}
