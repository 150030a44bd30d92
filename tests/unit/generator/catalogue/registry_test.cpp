// generator/catalogue/registry.cpp: names, aliases, owners, load order, and the message for an unknown name.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/registry.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace kvjit;

namespace {

FileSet with(const std::string& name, const std::string& text) {
  FileSet files = embedded_files();
  files[name] = text;
  return files;
}

const std::string kF16 = embedded_files().at("specs/formats/f16.toml");

}  // namespace

TEST_CASE("a file that a caller brought goes by the caller's name for it") {
  FileSet files = with("specs/formats/mine.toml", "title = 3");
  const auto shown = Registry::load(files, {{"specs/formats/mine.toml", "/home/me/formats/mine.toml"}});
  REQUIRE_FALSE(shown);
  CHECK(shown.error().where.file == "/home/me/formats/mine.toml");
  CHECK(Registry::load(files).error().where.file == "specs/formats/mine.toml");
}

TEST_CASE("an unknown name that a file beside the folders has: the first note says where the file belongs") {
  const FileNames shown = {{"specs/mine.toml", "own/mine.toml"}, {"specs/mine.cuh", "own/mine.cuh"}};
  const Registry registry = Registry::load(embedded_files(), shown).value();
  const auto note = [](const auto& refused) { return refused.error().notes.at(0); };
  CHECK(note(registry.format("mine", {})) == "own/mine.toml is not read; move it to own/formats/mine.toml");
  CHECK(note(registry.policy("mine", {})) == "own/mine.toml is not read; move it to own/policies/mine.toml");
  CHECK(note(registry.require_arch("mine", {})) == "own/mine.toml is not read; move it to own/archs/mine.toml");
  CHECK(note(registry.hook("mine", {})) == "own/mine.cuh is not read; move it to own/hooks/mine.cuh");
  const auto other = registry.format("other", {});
  for (const std::string& line : other.error().notes) CHECK(line.find("is not read") == std::string::npos);
}

TEST_CASE("a caller's format that does not keep its [accept] is refused at the key, and one that does is loaded") {
  const std::string name = "specs/formats/q4_0.toml", key = "max_relative_mse = ";
  const FileNames shown = {{name, "/home/me/formats/q4_0.toml"}};
  std::string text = embedded_files().at(name);
  CHECK(Registry::load(with(name, text), shown));
  const std::size_t at = text.find(key);
  REQUIRE(at != std::string::npos);
  text.replace(at, text.find('\n', at) - at, key + "0.0001");
  const auto loaded = Registry::load(with(name, text), shown);
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().where.file == "/home/me/formats/q4_0.toml");
  CHECK(loaded.error().where.line ==
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1);
  CHECK(loaded.error().message.find("it promises 0.0001") != std::string::npos);
}

TEST_CASE("every built-in format would be taken from a caller") {
  FileNames shown;
  for (const auto& [name, text] : embedded_files())
    if (name.starts_with("specs/formats/")) shown[name] = name;
  const auto loaded = Registry::load(embedded_files(), shown);
  CHECK_MESSAGE(loaded, (loaded ? "" : render(loaded.error())));
}

TEST_CASE("names and aliases lead to one format") {
  const Registry registry = Registry::load(embedded_files()).value();
  CHECK(registry.format("tbq4_0", {}).value() == registry.format("tbq4_wht_dfirst_corr", {}).value());
  CHECK(registry.aliases().at("tbq4_0") == "tbq4_wht_dfirst_corr");
  CHECK(registry.rotations().at("wht_signed").sizes.size() == 5);
  CHECK(registry.rotation("none", 7, {})->is_identity());
}

TEST_CASE("a published name belongs to one format, and the others that go by it are known") {
  const Registry registry = Registry::load(embedded_files()).value();
  const std::vector<std::string> variants = registry.variants("tbq4_0");
  REQUIRE(variants.size() == 4);
  CHECK(variants.front() == "tbq4_wht_dfirst_corr");
  CHECK(std::count(variants.begin(), variants.end(), "tbq4_dense_qsfirst_raw") == 1);
  CHECK(registry.variants("turbo4_0").front() == "turbo4_legacy68");
  CHECK(registry.variants("q8_0") == std::vector<std::string>{"q8_0"});
  CHECK(registry.variants("q9_0").empty());
  for (const auto& [name, f] : registry.formats())
    for (const std::string& shared : f.also) {
      CAPTURE(name);
      CAPTURE(shared);
      REQUIRE(registry.format(shared, {}));
      CHECK(registry.format(shared, {}).value()->name != name);
    }
}

TEST_CASE("formats that are about the whole head are made for its size") {
  const Registry registry = Registry::load(embedded_files()).value();
  const auto made = [&](const char* name, int head_dim) { return registry.format_for(name, head_dim, {"s.toml", 7}); };
  CHECK(made("vllm_k4_nc", 256)->block == 256);
  CHECK(made("vllm_k4_nc", 256)->rotation.size == 256);
  CHECK(made("vllm_k4_nc", 64)->codes().values.back() > made("vllm_k4_nc", 256)->codes().values.back());
  CHECK(made("vllm_v3", 96)->block_bytes == 96 * 3 / 8 + 4);
  CHECK(made("atlas_turbo4", 512)->rotation.size == 512);
  CHECK(made("atlas_turbo4", 512)->block == 16);
  CHECK(made("tbq4_0", 256)->block == 128);
  CHECK(made("turbo3_0", 80)->stored_dim(80) == 128);

  const Error none = made("atlas_turbo4", 64).error();
  CHECK(none.message ==
        "format 'atlas_turbo4' cannot store heads of 64: rotation 'wht_atlas' does not span 64 channels");
  CHECK(none.where.line == 7);
  CHECK(none.notes.front() == "possible sizes: 128, 256, 512");
  CHECK(made("tbq4_0", 80).error().message.find("not a multiple of 128") != std::string::npos);
  CHECK(made("vllm_v3", 100).error().message ==
        "format 'vllm_v3' cannot store heads of 100: 100 codes of 3 bits do not fill whole bytes");
  CHECK(made("tbq5_0", 128).error().message == "format 'tbq5_0' is not known");
}

TEST_CASE("unknown names are told what there is") {
  FileSet files;
  for (const char* name :
       {"formats/q4_0", "formats/f16", "rotations/wht_signed", "archs/sm_80", "archs/sm_75", "archs/sm_90"}) {
    const std::string file = std::string("specs/") + name + ".toml";
    files[file] = embedded_files().at(file);
  }
  const Registry registry = Registry::load(files).value();
  const Error format = registry.format("q4_1", {"s.toml", 2, 10, ""}).error();
  CHECK(format.message == "format 'q4_1' is not known");
  CHECK(format.where.line == 2);
  CHECK(format.notes == std::vector<std::string>{"did you mean 'q4_0'?", "formats: f16, q4_0"});
  const Registry all = Registry::load(embedded_files()).value();
  const Error many = all.format("q4_2", {}).error();
  CHECK(many.notes.size() == 2);
  CHECK(many.notes.back().find("`kvjit formats` lists all") != std::string::npos);
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
  REQUIRE(registry.fragment("args/attention.cuh"));
  CHECK(registry.fragment("args/attention.cuh")->text == embedded_files().at("templates/args/attention.cuh"));
  CHECK(registry.fragment("device/none.cuh") == nullptr);
}
