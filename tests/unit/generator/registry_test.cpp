// The registry: names, aliases, owners, load order, and what an unknown name is told.
// SPDX-License-Identifier: MIT
#include "generator/registry.hpp"

#include <doctest/doctest.h>

using namespace kvjit;

namespace {

FileSet with(const std::string& name, const std::string& text) {
  FileSet files = embedded_files();
  files[name] = text;
  return files;
}

const std::string kF16 = embedded_files().at("specs/formats/f16.toml");

}  // namespace

TEST_CASE("names and aliases lead to one format") {
  const Registry registry = Registry::load(embedded_files()).value();
  CHECK(registry.format("tbq4_0", {}).value() == registry.format("tbq4_wht_dfirst_corr", {}).value());
  CHECK(registry.aliases().at("tbq4_0") == "tbq4_wht_dfirst_corr");
  CHECK(registry.rotations().at("wht_signed").sizes.size() == 5);
  CHECK(registry.rotation("none", 7, {})->is_identity());
}

TEST_CASE("unknown names are told what there is") {
  FileSet files;
  for (const char* name : {"formats/q4_0", "formats/tbq4_wht_dfirst_corr", "rotations/wht_signed", "archs/sm_80",
                           "archs/sm_75", "archs/sm_90"}) {
    const std::string file = std::string("specs/") + name + ".toml";
    files[file] = embedded_files().at(file);
  }
  const Registry registry = Registry::load(files).value();
  const Error format = registry.format("q4_1", {"s.toml", 2, 10, ""}).error();
  CHECK(format.message == "format 'q4_1' is not known");
  CHECK(format.where.line == 2);
  CHECK(format.notes ==
        std::vector<std::string>{"did you mean 'q4_0'?", "formats: q4_0, tbq4_wht_dfirst_corr, tbq4_0"});
  const Error arch = registry.require_arch("sm_90b", {}).error();
  CHECK(arch.notes.front() == "did you mean 'sm_90'?");
  CHECK(registry.rotation("hadamard", 128, {}).error().notes ==
        std::vector<std::string>{"rotations: wht_signed, none"});
  CHECK(registry.arch("sm_10") == nullptr);
}

TEST_CASE("a new format is one file") {
  const Registry registry = Registry::load(with("specs/formats/mine.toml", kF16)).value();
  CHECK(registry.format("mine", {}).value()->block_bytes == 2);
}

TEST_CASE("two owners of a name are an error that names both files") {
  for (const auto& [name, alias] :
       {std::pair("mine", "q8_0"), std::pair("a_first", "tbq4_0"), std::pair("zz", "f16")}) {
    const std::string file = std::string("specs/formats/") + name + ".toml";
    const Result<Registry> loaded = Registry::load(with(file, "aliases = ['" + std::string(alias) + "']\n" + kF16));
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().message == "format name '" + std::string(alias) + "' has two owners");
    const std::string both = loaded.error().where.file + loaded.error().notes.front();
    CHECK(both.find(file) != std::string::npos);
    CHECK(both.find(alias == std::string("tbq4_0") ? "tbq4_wht_dfirst_corr" : alias) != std::string::npos);
  }
}

TEST_CASE("archs may inherit from later files, but not in a circle") {
  const std::string late = "title = 'x'\ninherits = 'sm_99'";
  FileSet files = with("specs/archs/sm_01.toml", late);
  CHECK(Registry::load(files).error().message == "arch 'sm_99' is not known, or inherits from this one");
  files["specs/archs/sm_99.toml"] = "title = 'y'\ninherits = 'sm_01'";
  CHECK_FALSE(Registry::load(files));
  files["specs/archs/sm_99.toml"] = "title = 'y'\ninherits = 'sm_80'";
  CHECK(Registry::load(files)->arch("sm_01")->has("cp_async"));
}

TEST_CASE("broken and misplaced files are not skipped") {
  const Error broken = Registry::load(with("specs/formats/bad.toml", "title = ")).error();
  CHECK(broken.code == Code::bad_input);
  CHECK(broken.where.file == "specs/formats/bad.toml");
  const Error misplaced = Registry::load(with("specs/format/f.toml", kF16)).error();
  CHECK(misplaced.message == "folder 'specs/format' holds nothing that is read");
  CHECK(misplaced.notes.front() == "did you mean 'specs/formats'?");
}

TEST_CASE("templates are found by their name below templates/") {
  const Registry registry = Registry::load(embedded_files()).value();
  REQUIRE(registry.fragment("core/args.cuh"));
  CHECK(*registry.fragment("core/args.cuh") == embedded_files().at("templates/core/args.cuh"));
  CHECK(registry.fragment("core/none.cuh") == nullptr);
}
