// Each test is a file. pass/*.toml must parse and its formats resolve; fail/*.toml must give exactly the diagnostic in
// the .txt beside it. KVJIT_BLESS=1 rewrites the .txt files for review.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/layers.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/spec/layers.hpp"
#include "generator/spec/spec.hpp"

using namespace kvjit;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> tomls(const char* folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(KVJIT_SOURCE_DIR) / "tests/specs" / folder))
    if (entry.path().extension() == ".toml") found.push_back(entry.path());
  return found;
}

// Diagnostics list known names. The registry has only the names pinned here, so that a new format or arch changes no
// expected text.
Registry pinned_registry() {
  const std::set<std::string> names = {"f16",
                                       "bf16",
                                       "q8_0",
                                       "q4_0",
                                       "tbq4_wht_dfirst_corr",
                                       "wht_signed",
                                       "sm_75",
                                       "sm_80",
                                       "sm_86",
                                       "sm_89",
                                       "sm_90",
                                       "sm_90a",
                                       "sm_100",
                                       "sm_100a",
                                       "sm_103",
                                       "sm_103a",
                                       "sm_120",
                                       "sm_120a",
                                       "sm_121",
                                       "sm_121a",
                                       "sample",
                                       "first_last_q8_0",
                                       "log_distance"};
  FileSet files;
  for (const auto& [file, text] : embedded_files())
    if (names.count(fs::path(file).stem().string()) && !file.starts_with("specs/attention/") &&
        !file.starts_with("specs/tuning/"))
      files[file] = text;
  return Registry::load(files).value();
}

// Checks everything that needs no kernel family: parses, expands, then resolves each side's format and calibration, the
// hook, and each arch.
Result<std::size_t> check(const fs::path& path) {
  static const Registry registry = pinned_registry();
  KV_TRY(specs, parse_all(read(path), path.filename().string(), registry));
  for (const Spec& spec : specs) {
    for (const SideSpec* side : {&spec.k, &spec.v}) {
      if (side->calibration) {
        KV_CHECK(registry.calibration(*side->calibration, side->key_where.at("calibration")));
      }
      if (side->format.empty()) {
        KV_CHECK(inline_format(*side, registry));
      } else {
        KV_CHECK(registry.format(side->format, side->key_where.at("format")));
        KV_CHECK(registry.format_for(side->format, spec.head_dim, spec.where("attention.head_dim")));
      }
    }
    if (!spec.hook.empty()) KV_CHECK(registry.hook(spec.hook, spec.where("attention.hook")));
    for (const std::string& arch : spec.archs) {
      KV_CHECK(registry.require_arch(arch, spec.where("target.arch")));
    }
  }
  return specs.size();
}

}  // namespace

TEST_CASE("pass") {
  const std::vector<fs::path> files = tomls("pass");
  CHECK(files.size() >= 4);
  for (const fs::path& path : files) {
    CAPTURE(path.filename().string());
    const Result<std::size_t> specs = check(path);
    CHECK_MESSAGE(specs, (specs ? "" : render(specs.error())));
  }
}

TEST_CASE("fail") {
  const std::vector<fs::path> files = tomls("fail");
  CHECK(files.size() >= 12);
  for (const fs::path& path : files) {
    CAPTURE(path.filename().string());
    const Result<std::size_t> specs = check(path);
    REQUIRE_FALSE(specs);
    const fs::path expected = fs::path(path).replace_extension(".txt");
    if (std::getenv("KVJIT_BLESS")) std::ofstream(expected) << render(specs.error());
    CHECK(render(specs.error()) == read(expected));
  }
}

TEST_CASE("fail: rows of measured shapes") {
  const std::vector<fs::path> files = tomls("fail/tuning");
  CHECK(files.size() >= 10);
  const Registry registry = pinned_registry();
  for (const fs::path& path : files) {
    CAPTURE(path.filename().string());
    const auto rows = parse_tuning(read(path), "sm_90a.toml", registry);
    REQUIRE_FALSE(rows);
    const fs::path expected = fs::path(path).replace_extension(".txt");
    if (std::getenv("KVJIT_BLESS")) std::ofstream(expected) << render(rows.error());
    CHECK(render(rows.error()) == read(expected));
  }
  const auto unknown = parse_tuning("", "specs/tuning/sm_91.toml", registry);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message == "arch 'sm_91' is not known");
}

TEST_CASE("every example resolves: its formats, their sizes for its heads, and its arch") {
  const Registry registry = Registry::load(embedded_files()).value();
  int examples = 0;
  for (const auto& [file, text] : embedded_files()) {
    if (!file.starts_with("specs/attention/")) continue;
    CAPTURE(file);
    const Result<std::vector<Spec>> specs = parse_specs(text, file);
    REQUIRE_MESSAGE(specs, (specs ? "" : render(specs.error())));
    for (const Spec& whole : *specs) {
      const Result<std::vector<Spec>> layers = expand_layers(whole, registry);
      REQUIRE_MESSAGE(layers, (layers ? "" : render(layers.error())));
      for (const Spec& spec : *layers) {
        const Result<Problem> problem = resolve(spec, registry, spec.archs.empty() ? "sm_90a" : spec.archs.front());
        CHECK_MESSAGE(problem, (problem ? "" : render(problem.error())));
      }
    }
    ++examples;
  }
  CHECK(examples >= 9);
}
