// TempFolder: a folder of its own for a test; the destructor removes it.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kvjit::test {

class TempFolder {
 public:
  TempFolder() : path(made()) {}
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string path;  // without symbolic links

 private:
  static std::string made() {
    std::string name = (std::filesystem::temp_directory_path() / "kvjit-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    return std::filesystem::canonical(name).string();
  }
};

}  // namespace kvjit::test
