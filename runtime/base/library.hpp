// Library: a shared library opened at run time. No CUDA library is linked, so one binary serves a machine without a
// driver and a machine without a toolkit. An error names the missing library and every place that was searched.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

class Library {
 public:
  // Opens the first candidate that can be opened: a soname, which the loader searches, or an absolute path. Fails with
  // environment: a note for each candidate with the loader's reason, then the remedy. what: the name in messages.
  static Result<Library> open(const std::string& what, const std::vector<std::string>& candidates,
                              const std::string& remedy);

  void* symbol(const char* name) const;  // null if the library has none
  const std::string& path() const { return path_; }
  // Identifies the build exactly: "build-id:<hex>" of the ELF file, else "sha256:<hex>" of its bytes.
  std::string digest() const;

 private:
  void* handle_ = nullptr;  // never closed: these libraries keep threads and exit handlers of their own
  std::string path_;        // path of the loaded file, links resolved
};

// Joins each folder with each name. Folders may be patterns such as /usr/local/cuda-*/lib64, which expand with the
// largest name first.
std::vector<std::string> library_paths(const std::vector<std::string>& folders, const std::vector<std::string>& names);

}  // namespace kvjit
