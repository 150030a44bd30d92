// Library: a shared library opened at run time. Nothing of CUDA is linked, so one binary serves a machine
// without a driver and a machine without a toolkit; what is missing is named together with every place that
// was searched.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

class Library {
 public:
  // The first candidate (a soname, found by the loader, or an absolute path) that opens. Fails with
  // environment: one note a candidate with the loader's reason, then the remedy.
  static Result<Library> open(const std::string& what, const std::vector<std::string>& candidates,
                              const std::string& remedy);

  void* symbol(const char* name) const;  // null if the library has none
  const std::string& path() const { return path_; }
  // "build-id:<hex>" of the ELF file, else "sha256:<hex>" of its bytes: which build this is, exactly.
  std::string digest() const;

 private:
  void* handle_ = nullptr;  // never closed: these libraries keep threads and exit handlers of their own
  std::string path_;        // of the file that was really loaded, links resolved
};

// Each folder of `folders` (patterns such as /usr/local/cuda-*/lib64 expand, newest name first) joined with
// each name.
std::vector<std::string> library_paths(const std::vector<std::string>& folders, const std::vector<std::string>& names);

}  // namespace kvjit
