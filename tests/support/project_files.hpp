// The project's own files, for promises about the text of the repository: which files there are, and what they hold.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

namespace kvjit::test {

inline std::filesystem::path project_root() { return KVJIT_SOURCE_DIR; }

inline std::string text_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns the files under `folders`, relative to the root and sorted. Folders that tools leave behind, hidden ones and
// __pycache__, are skipped. "." stands for the files directly in the root, where build folders may lie.
inline std::vector<std::string> project_files(std::initializer_list<const char*> folders) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  const auto add = [&](const fs::path& file) { files.push_back(fs::relative(file, project_root()).string()); };
  for (const std::string folder : folders) {
    if (folder == ".") {
      for (const auto& entry : fs::directory_iterator(project_root()))
        if (entry.is_regular_file()) add(entry.path());
      continue;
    }
    for (auto entry = fs::recursive_directory_iterator(project_root() / folder);
         entry != fs::recursive_directory_iterator(); ++entry) {
      const std::string name = entry->path().filename().string();
      if (entry->is_directory() && (name.front() == '.' || name == "__pycache__"))
        entry.disable_recursion_pending();
      else if (entry->is_regular_file())
        add(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::vector<std::string> all_project_files() {
  std::vector<std::string> files =
      project_files({".", ".ci", "generator", "runtime", "specs", "templates", "tests", "tools"});
  REQUIRE(files.size() > 500);
  return files;
}

}  // namespace kvjit::test
