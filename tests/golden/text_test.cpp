// Golden text of a few specs: the plan section that the generator writes behind the templates, and explain()'s output.
// KVJIT_BLESS=1 rewrites the files; review their diff like code.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "generator/program.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct GoldenSpec {
  const char *name, *arch, *toml;
};
constexpr GoldenSpec kSpecs[] = {
    {"tbq4_q8_planar", "sm_90a",
     "[k]\nformat=\"tbq4_0\"\n[v]\nformat=\"q8_0\"\n[attention]\nq_heads_per_kv=4\nfeatures=[\"causal\"]"},
    {"q4_f16_rows", "sm_80",
     "[k]\nformat=\"q4_0\"\n[v]\nformat=\"f16\"\n[attention]\nhead_dim=64\n[cache]\nlayout=\"rows\""},
    {"inline_3bit", "sm_75",
     "[k]\nbits=3\nblock=64\nrotation=\"wht_signed\"\n[v]\nbits=3\nblock=32\ncodebook=\"uniform\"\nscale="
     "\"amax\"\n[attention]\nhead_dim=64"},
};

void check_golden(const fs::path& file, const std::string& text) {
  if (std::getenv("KVJIT_BLESS") != nullptr) std::ofstream(file) << text;
  std::stringstream want;
  want << std::ifstream(file).rdbuf();
  CHECK_MESSAGE(want.str() == text, file.filename().string(), " differs; KVJIT_BLESS=1 accepts the new text");
}

}  // namespace

TEST_CASE("emitted plans and explanations are as reviewed") {
  const auto registry = Registry::load(embedded_files());
  REQUIRE(registry);
  for (const GoldenSpec& golden : kSpecs) {
    CAPTURE(golden.name);
    const auto specs = parse_specs(golden.toml, golden.name);
    REQUIRE(specs);
    const auto problem = resolve((*specs)[0], *registry, golden.arch);
    REQUIRE(problem);
    const auto program = make_program(*problem, *registry);
    REQUIRE(program);
    std::string text;
    for (const auto& [role, source] : program->kernels) {
      const auto plan = source.text.str().find("// ======== the plan");
      REQUIRE(plan != std::string::npos);
      text += "// " + source.name + "\n" + source.text.str().substr(plan) + "\n";
    }
    const fs::path folder = fs::path(KVJIT_SOURCE_DIR) / "tests/golden";
    check_golden(folder / (std::string(golden.name) + ".cu"), text);
    check_golden(folder / (std::string(golden.name) + ".explain"), explain(*program));
  }
}

}  // namespace kvjit
