// runtime/compile/nvrtc_places.cpp: NVRTC in toolkits and in the packages of pip and conda, in a tree of empty files.
// SPDX-License-Identifier: MIT
#include "runtime/compile/nvrtc_places.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.hpp"

using namespace kvjit;
namespace fs = std::filesystem;

namespace {

struct Tree : test::TempFolder {
  std::string add(const std::string& file) const {
    const std::string whole = path + "/" + file;
    fs::create_directories(fs::path(whole).parent_path());
    std::ofstream(whole) << "x";
    fs::permissions(whole, fs::perms::owner_all);
    return whole;
  }
};

// The files of the tree among those that are found, in their order.
std::vector<std::string> found(const Tree& tree, const Options& options) {
  auto files = nvrtc_places(options).files;
  std::erase_if(files, [&](const std::string& file) { return file.rfind(tree.path, 0) != 0; });
  return files;
}

}  // namespace

TEST_CASE("toolkits and environments of Python are searched, in this order, with the newest version first") {
  const Tree tree;
  const auto toolkit = tree.add("toolkit/lib64/libnvrtc.so.12");
  const auto old = tree.add("venv/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const auto recent = tree.add("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  tree.add("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  tree.add("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.old");
  const auto oldest = tree.add("venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2");
  const auto conda = tree.add("conda/lib/libnvrtc.so.13");
  Options options;
  options.cuda_homes = {tree.path + "/toolkit", "relative"};
  options.python_homes = {tree.path + "/venv", tree.path + "/conda"};
  CHECK(found(tree, options) == std::vector<std::string>{toolkit, oldest, recent, old, conda});
  const auto places = nvrtc_places(options);
  CHECK(places.names.size() == 3);
  auto folders = places.folders;
  std::sort(folders.begin(), folders.end());
  CHECK(std::adjacent_find(folders.begin(), folders.end()) == folders.end());
}

TEST_CASE("interpreters on PATH lead to their packages: through a link, and in a virtual environment") {
  const Tree tree;
  tree.add("python/bin/python3.12");
  fs::create_directories(tree.path + "/venv/bin");
  fs::create_symlink(tree.path + "/python/bin/python3.12", tree.path + "/venv/bin/python3");
  const auto own = tree.add("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const auto base = tree.add("python/lib/python3.12/dist-packages/nvidia/cu13/lib/libnvrtc.so.13");
  tree.add("other/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  Options options;
  options.program_paths = {tree.path + "/other/bin", tree.path + "/venv/bin", "relative"};
  CHECK(found(tree, options) == std::vector<std::string>{own, base});
}

TEST_CASE("a file or a folder that is named is the only place") {
  const Tree tree;
  const auto file = tree.add("lib/libnvrtc.so.13");
  Options options;
  options.cuda_homes = {tree.path};
  options.nvrtc_library = tree.path + "/lib";
  CHECK(nvrtc_places(options).names.empty());
  CHECK(nvrtc_places(options).files == std::vector<std::string>{file});
  options.nvrtc_library = "/nowhere/libnvrtc.so";
  CHECK(nvrtc_places(options).names == std::vector<std::string>{"/nowhere/libnvrtc.so"});
  CHECK(nvrtc_places(options).files.empty());
}
