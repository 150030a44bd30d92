// tools/pack: bundles for lists of specs and archs, as files, folders and C headers.
// SPDX-License-Identifier: MIT
#include "tools/pack/pack.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "generator/program.hpp"
#include "generator/resolve/problem.hpp"
#include "runtime/store/bundle.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/temp_folder.hpp"

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
    for (const Source& source : sources) CHECK(texts.insert(source.text.str()).second);
    for (const std::string& device : {std::string(), measured, std::string("NVIDIA Something Else")}) {
      Problem problem = must(resolve(small(format), registry(), "sm_90a"));
      problem.device = device;
      for (const auto& [role, source] : must(make_program(problem, registry())).kernels)
        CHECK_MESSAGE(texts.count(source.text.str()) == 1, format, " on ", device, ": ", source.name);
    }
  }
}

TEST_CASE("operations that were asked for are packed with every text that a call may want, and no others") {
  const std::vector<SpecOnArchs> specs = {{small("kv4"), {"sm_90a"}}, {small("fp8_e4m3"), {"sm_90a"}}};
  const auto texts = [&](const std::string& list) {
    std::set<std::string> all;
    for (const Source& source : must(operations_to_pack(specs, registry(), must(read_operations(list)))))
      all.insert(source.text.str());
    return all;
  };
  CHECK(texts("").empty());
  const auto all = texts(" copy,slots, shift ,rope");
  std::size_t count = 0;
  for (const char* name : {"slots", "shift", "rope", "copy"}) {
    const auto some = texts(name);
    CHECK(!some.empty());
    for (const std::string& text : some) CHECK(all.count(text) == 1);
    count += some.size();
  }
  CHECK(count == all.size());
  std::vector<Problem> problems;
  for (const SpecOnArchs& each : specs) problems.push_back(must(resolve(each.spec, registry(), "sm_90a")));
  for (const Problem& problem : problems) {
    for (const int side : {0, 1}) {
      const CodecPlan plan = side_plan(problem, side);
      CHECK(all.count(emit_shift(plan, registry()).text.str()) == 1);
      CHECK(all.count(emit_quantize_rope(plan, registry()).text.str()) == 1);
      for (const auto emit : {emit_shift_bulk, emit_quantize_rope_bulk})
        if (const auto tiles = emit(plan, registry())) CHECK(all.count(tiles->text.str()) == 1);
      for (const Problem& to : problems)
        for (const bool has_same_scale : {true, false})
          for (const int alignment : {1, 2, 4, 8, 16})
            if (has_same_scale || problem.k.has_tensor_scale())
              CHECK(
                  all.count(emit_copy(must(plan_copy(plan, side_plan(to, side), has_same_scale, alignment, registry())),
                                      registry())
                                .text.str()) == 1);
    }
    for (const auto& [role, source] : must(make_program(problem, registry())).kernels)
      if (role >= Role::quantize_k && role <= Role::dequantize_bulk_v_f32) {
        INFO(to_string(role));
        CHECK(all.count(must(make_by_slots(problem, role, kv::SlotType::i32, registry())).text.str()) == 1);
        const bool is_quantize = std::string(to_string(role)).find("dequantize") == std::string::npos;
        CHECK(all.count(must(make_by_slots(problem, role, kv::SlotType::i64, registry())).text.str()) == !is_quantize);
      }
  }
  CHECK(read_operations("copy, move").error().message == "no operation is called 'move'");
  CHECK(read_operations("copy,,shift").error().code == Code::usage);
}

TEST_CASE("a folder has a file for each kernel, and a manifest that a bundle is read by") {
  const test::TempFolder temporary;
  const std::string folder = temporary.path + "/made/";
  Source source;
  source.entry = "kv_decode";
  source.arch = "sm_80";
  CacheEntry entry;
  entry.name = "decode.sample.sm_80";
  entry.key = make_key(source, ArtefactKind::cubin, {});
  entry.artefact.bytes = {'a', 'b', 'c'};
  must(write_folder(folder, {entry}));
  const Bundle bundle = must(Bundle::open(folder));
  REQUIRE(bundle.items().size() == 1);
  CHECK(bundle.archs() == "sm_80");
  CHECK(!bundle.signer());
  const auto read = must(decode_entry(entry.key.hex, must(bundle.read(bundle.items()[0]))));
  CHECK(read.name == entry.name);
  CHECK(read.artefact.bytes == entry.artefact.bytes);
}

TEST_CASE("bytes as a C header; what is no name in C is refused") {
  const std::uint8_t bytes[] = {0, 255, 7};
  const std::string text = must(c_header_text("my_kernels", bytes));
  CHECK(text.find("my_kernels[3] = {\n0,255,7};") != std::string::npos);
  CHECK(text.find("my_kernels_size = sizeof my_kernels;") != std::string::npos);
  for (const char* name : {"", "7up", "a-b", "a b"}) CHECK(c_header_text(name, bytes).error().code == Code::usage);
}
