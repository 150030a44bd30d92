// Promises about text: CUDA's words stand in one folder only, every file opens with a comment and its licence, and
// emitted kernels are flat.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "generator/program.hpp"
#include "tests/support/project_files.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

using test::text_of;

// Returns the project's own text files, which people read and maintain.
std::vector<fs::path> source_files() {
  std::vector<fs::path> files;
  for (const char* folder : {"generator", "templates", "runtime", "specs", "tools", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(KVJIT_SOURCE_DIR) / folder)) {
      const std::string extension = entry.path().extension().string();
      const bool is_golden = entry.path().string().find("/golden/") != std::string::npos && extension != ".cpp";
      const bool is_data = extension == ".npy" || extension == ".safetensors" ||
                           fs::relative(entry.path(), KVJIT_SOURCE_DIR) == "tests/data/published.json";
      if (entry.is_regular_file() && !is_golden && !is_data) files.push_back(entry.path());
    }
  REQUIRE(files.size() > 50);
  return files;
}

TEST_CASE("every C++ and CUDA file opens with what it is and its licence") {
  for (const fs::path& file : source_files()) {
    const std::string extension = file.extension().string();
    if (extension != ".cpp" && extension != ".hpp" && extension != ".cuh") continue;
    const std::string text = text_of(file);
    if (file == fs::path(KVJIT_SOURCE_DIR) / "tests/main.cpp") continue;  // only two lines long
    CHECK_MESSAGE(text.rfind("//", 0) == 0, file.string());
    CHECK_MESSAGE(text.substr(0, 2000).find("SPDX-License-Identifier: MIT") != std::string::npos, file.string());
  }
}

TEST_CASE("CUDA's words stand in templates/device alone") {
  for (const auto& [name, text] : embedded_files()) {
    if (name.rfind("templates/", 0) != 0 || name.rfind("templates/device/", 0) == 0) continue;
    for (const char* word :
         {"threadIdx", "blockIdx", "blockDim", "gridDim", "__syncthreads", "__syncwarp", "__shfl", "__ballot", "asm(",
          "asm volatile", "__global__", "__device__", "__shared__", "__CUDA_ARCH__"})
      CHECK_MESSAGE(text.find(word) == std::string::npos, name, " has ", word);
  }
}

TEST_CASE("a kernel without features has no text of them") {
  Result<Registry> registry = Registry::load(embedded_files());
  REQUIRE(registry);
  const auto texts = [&](const std::string& keys) {
    const auto specs = parse_specs(
        "[k]\nformat = \"kv4\"\n[v]\nformat = \"q8_0\"\n[attention]\nq_heads_per_kv = 4\n" + keys, "features");
    REQUIRE(specs);
    const auto problem = resolve((*specs)[0], *registry, "sm_90a");
    REQUIRE(problem);
    const auto program = make_program(*problem, *registry);
    REQUIRE(program);
    std::map<Role, std::string> all;
    for (const auto& [role, source] : program->kernels) all[role] = source.text.str();
    return all;
  };
  const auto has_features = [](const std::string& text) {
    return text.find("FeatureArgs") != std::string::npos || text.find("kFeatureRow") != std::string::npos ||
           text.find("======== features/feature_list.cuh") != std::string::npos ||
           text.find("======== device/math.cuh") != std::string::npos;
  };
  for (const char* keys : {"", "features = [\"causal\"]", "softcap = 0.0\nwindow = [-1, -1]",
                           "append = true\nsparse_v = 0.1", "fuse = false"})
    for (const auto& [role, text] : texts(keys)) CHECK_MESSAGE(!has_features(text), keys, ", ", to_string(role));
  // In a program with features, kernels that do not use them have no text of them either.
  const auto plain = texts("fuse = false"), featured = texts("fuse = false\nsoftcap = 30\nfeatures = [\"lse\"]");
  CHECK(featured.size() == plain.size() + 1);
  for (const auto& [role, text] : featured) {
    const bool is_changed =
        role == Role::decode || role == Role::merge || role == Role::reference || role == Role::merge_contexts;
    CHECK_MESSAGE(has_features(text) == is_changed, to_string(role));
    if (!is_changed) CHECK_MESSAGE(text == plain.at(role), to_string(role));
  }
}

TEST_CASE("emitted kernels are flat, named and free of absolute paths") {
  Result<Registry> registry = Registry::load(embedded_files());
  REQUIRE(registry);
  const auto specs =
      parse_specs("[k]\nformat = \"tbq4_0\"\n[v]\nformat = \"q8_0\"\n[attention]\nq_heads_per_kv = 4\n", "flat");
  REQUIRE(specs);
  for (const char* arch : {"sm_75", "sm_90a", "sm_120a"}) {
    const auto problem = resolve((*specs)[0], *registry, arch);
    REQUIRE(problem);
    const auto program = make_program(*problem, *registry);
    REQUIRE(program);
    CHECK(program->kernels.count(Role::decode) == 1);
    for (const auto& [role, source] : program->kernels) {
      CHECK_MESSAGE(source.text.str().find("#include") == std::string::npos, source.name);
      CHECK_MESSAGE(source.text.str().find(KVJIT_SOURCE_DIR) == std::string::npos, source.name);
      CHECK_MESSAGE(source.text.str().find(source.entry) != std::string::npos, source.name);
      CHECK_MESSAGE(source.arch == arch, source.name);
      CHECK_MESSAGE(source.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos,
                    source.name);
    }
  }
}

}  // namespace
}  // namespace kvjit
