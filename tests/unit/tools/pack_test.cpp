// SPDX-License-Identifier: MIT
#include "tools/pack.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "generator/problem.hpp"
#include "generator/program.hpp"
#include "runtime/sha256.hpp"
#include "tests/support/registry.hpp"

using namespace kvjit;
using namespace kvjit::test;

namespace {

Spec small(const std::string& format) {
  return must(parse_specs(
      "[k]\nformat = \"" + format + "\"\n[v]\nformat = \"" + format + "\"\n[attention]\nq_heads_per_kv = 8\n",
      "pack"))[0];
}

}  // namespace

TEST_CASE("a bundle has the text that each device asks for, and each text once") {
  const std::string measured = must([]() -> Result<std::string> {
    for (const TuningRow& row : registry().tuning("sm_90a")) return row.device;
    return fail(Code::internal, "no rows");
  }());
  for (const char* format : {"kv4", "q4_0"}) {
    const auto sources = must(sources_to_pack(small(format), registry(), "sm_90a", true));
    std::set<std::string> texts;
    for (const Source& source : sources) CHECK(texts.insert(source.text).second);
    for (const std::string& device : {std::string(), measured, std::string("NVIDIA Something Else")}) {
      Problem problem = must(resolve(small(format), registry(), "sm_90a"));
      problem.device = device;
      for (const auto& [role, source] : must(make_program(problem, registry())).kernels)
        CHECK_MESSAGE(texts.count(source.text) == 1, format, " on ", device, ": ", source.name);
    }
  }
}

TEST_CASE("only archs that end in no letter have PTX for later GPUs") {
  CHECK(is_for_later_gpus("sm_89"));
  CHECK(is_for_later_gpus("sm_90"));
  CHECK(!is_for_later_gpus("sm_90a"));
  CHECK(!is_for_later_gpus(""));
}

TEST_CASE("progress counts and foresees") {
  CHECK(progress_text({12, 48, 6, "decode"}) == "12/48 6 s, 18 s to go: decode");
  CHECK(progress_text({0, 48, 0, ""}).find("0/48") == 0);
}

TEST_CASE("the manifest says what each file is") {
  Source source;
  source.entry = "kv_decode";
  source.arch = "sm_80";
  CacheEntry entry;
  entry.name = "decode.sample.sm_80";
  entry.key = make_key(source, ArtefactKind::cubin, {});
  entry.artefact.bytes = {'a', 'b', 'c'};
  entry.artefact.registers = 7;
  const auto manifest = nlohmann::json::parse(manifest_text({entry}));
  const auto& kernel = manifest["kernels"][0];
  CHECK(kernel["file"] == "decode.sample.sm_80." + entry.key.hex.substr(0, 12) + ".cubin");
  CHECK(kernel["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(kernel["arch"] == "sm_80");
  CHECK(kernel["entry"] == "kv_decode");
  CHECK(kernel["registers"] == 7);
}

TEST_CASE("bytes as a C header; what is no name in C is refused") {
  const std::uint8_t bytes[] = {0, 255, 7};
  const std::string text = must(c_header_text("my_kernels", bytes));
  CHECK(text.find("my_kernels[3] = {\n0,255,7};") != std::string::npos);
  CHECK(text.find("my_kernels_size = sizeof my_kernels;") != std::string::npos);
  for (const char* name : {"", "7up", "a-b", "a b"}) CHECK(c_header_text(name, bytes).error().code == Code::usage);
}
