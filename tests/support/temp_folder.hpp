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
  TempFolder() : path_((std::filesystem::temp_directory_path() / "kvjit-test-XXXXXX").string()) {
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvjit::test
