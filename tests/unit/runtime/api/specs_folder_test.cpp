// runtime/api/specs_folder.cpp: what a caller's folder adds, and what lies beside its subfolders.
// SPDX-License-Identifier: MIT
#include "runtime/api/specs_folder.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("files of subfolders are read, files beside them are only named") {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path + "/formats");
  std::ofstream(folder.path + "/formats/read.toml") << "a format";
  std::ofstream(folder.path + "/formats/notes.txt") << "no format";
  std::ofstream(folder.path + "/beside.toml") << "a spec, or a format by mistake";
  std::ofstream(folder.path + "/notes.txt") << "neither";
  FileSet files;
  FileNames shown_as;
  REQUIRE(add_specs_folder(files, shown_as, folder.path));
  CHECK(files == FileSet{{"specs/formats/read.toml", "a format"}});
  CHECK(shown_as == FileNames{{"specs/formats/read.toml", folder.path + "/formats/read.toml"},
                              {"specs/beside.toml", folder.path + "/beside.toml"}});
}

TEST_CASE("a folder without anything to read is refused") {
  const TempFolder folder;
  std::ofstream(folder.path + "/beside.toml") << "a format by mistake";
  FileSet files;
  FileNames shown_as;
  const auto refused = add_specs_folder(files, shown_as, folder.path);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "specs folder " + folder.path + ": holds nothing that is read");
  CHECK_FALSE(add_specs_folder(files, shown_as, folder.path + "/nowhere"));
}

}  // namespace
}  // namespace kvjit::test
