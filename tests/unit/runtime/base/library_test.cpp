// runtime/base/library.cpp: shared libraries are opened by name or path, and the error of a missing one says
// where it was searched.
// SPDX-License-Identifier: MIT
#include "runtime/base/library.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "runtime/base/sha256.hpp"

using namespace kvjit;

TEST_CASE("SHA-256: the vectors of FIPS 180-4, in pieces too") {
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 hash;
  hash.update(std::string_view("a"));
  hash.update(std::string_view("bc"));
  CHECK(hash.finish() == sha256("abc"));
}

TEST_CASE("a library that exists opens, tells its path and its build") {
  const auto library = Library::open("the maths library", {"libkvjit-none.so", "libm.so.6"}, "install it");
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

TEST_CASE("a library that is missing names everything searched and what to do") {
  const auto library = Library::open("libnone", {"libkvjit-none.so", "/nowhere/libkvjit-none.so"}, "install none");
  REQUIRE(!library);
  CHECK(library.error().code == Code::environment);
  CHECK(library.error().message == "libnone could not be loaded");
  const auto& notes = library.error().notes;
  REQUIRE(notes.size() == 3);
  CHECK(notes[0].find("searched libkvjit-none.so: ") == 0);
  CHECK(notes[1].find("searched /nowhere/libkvjit-none.so: ") == 0);
  CHECK(notes[2] == "install none");
}

TEST_CASE("folders: patterns expand, absent ones stay to be named, relative ones never become a path") {
  const auto paths = library_paths({"/usr/li[b]", "/no/such", "relative", ""}, {"a.so", "b.so"});
  CHECK(paths == std::vector<std::string>{"/usr/lib/a.so", "/usr/lib/b.so", "/no/such/a.so", "/no/such/b.so"});
}
