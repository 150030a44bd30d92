// runtime/base/library.cpp: shared libraries are opened by name or path, and the error of a missing one says
// where it was searched.
// SPDX-License-Identifier: MIT
#include "runtime/base/library.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/sha256.hpp"
#include "tests/support/temp_folder.hpp"

using namespace kvjit;
namespace fs = std::filesystem;

TEST_CASE("SHA-256: the vectors of FIPS 180-4, in pieces too") {
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.update(std::string_view("a"));
  hash.update(std::string_view("bc"));
  CHECK(hash.finish() == sha256("abc"));
}

TEST_CASE("a library that exists opens, tells its path and its build") {
  const auto library = Library::open("the maths library", {{"libkvjit-none.so", "libm.so.6"}, {}, {}}, "install it");
  REQUIRE(library);
  CHECK(library->path().find("libm") != std::string::npos);
  CHECK(library->path()[0] == '/');
  CHECK(library->digest().find(":") != std::string::npos);
  CHECK(library->digest().size() > 30);
  const auto cosine = reinterpret_cast<double (*)(double)>(library->symbol("cos"));
  REQUIRE((cosine != nullptr));
  CHECK(cosine(0.0) == 1.0);
  CHECK(library->symbol("kvjit_has_no_such_symbol") == nullptr);
}

TEST_CASE("a library that is missing names every place once and what to do") {
  const test::TempFolder folder;
  std::ofstream(folder.path + "/libbroken.so") << "no library";
  const auto library = Library::open(
      "libnone",
      {{"libkvjit-none.so", "/nowhere/libkvjit-none.so"}, {folder.path + "/libbroken.so"}, {folder.path, "/x*"}},
      "install none");
  REQUIRE(!library);
  CHECK(library.error().code == Code::environment);
  CHECK(library.error().message == "libnone could not be loaded");
  const auto& notes = library.error().notes;
  REQUIRE(notes.size() == 4);
  CHECK(notes[0] == "the loader finds no libkvjit-none.so, /nowhere/libkvjit-none.so");
  CHECK(notes[1].find(folder.path + "/libbroken.so: ") == 0);
  CHECK(notes[1].find("libbroken.so", folder.path.size() + 14) == std::string::npos);
  CHECK(notes[2] == "searched too: " + folder.path + ", /x*");
  CHECK(notes[3] == "install none");
}

TEST_CASE("files of folders: the largest version first, by number, and each file once") {
  const test::TempFolder folder;
  for (const char* version : {"9.2", "10.1", "13.0"}) {
    fs::create_directories(folder.path + "/cuda-" + version);
    std::ofstream(folder.path + "/cuda-" + version + "/liba.so") << "x";
  }
  fs::create_symlink("cuda-10.1", folder.path + "/cuda");
  CHECK(library_files({folder.path + "/cuda", folder.path + "/cuda-*", "/no/such", "relative", ""}, "liba.so*") ==
        std::vector<std::string>{folder.path + "/cuda/liba.so", folder.path + "/cuda-13.0/liba.so",
                                 folder.path + "/cuda-9.2/liba.so"});
  fs::create_directories(folder.path + "/a[b]*");
  std::ofstream(folder.path + "/a[b]*/liba.so") << "x";
  CHECK(library_files({glob_escaped(folder.path + "/a[b]*")}, "liba.so").size() == 1);
}
