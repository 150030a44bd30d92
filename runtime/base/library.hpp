// Library: a shared library opened at run time. No CUDA library is linked, so one binary serves a machine without a
// driver and a machine without a toolkit. An error names the missing library and every place that was searched.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

// Where a library is searched: first by the loader, then in folders.
struct LibrarySearch {
  std::vector<std::string> names;    // sonames, or absolute paths that a caller named
  std::vector<std::string> files;    // files that exist in the folders, in the order in which they are tried
  std::vector<std::string> folders;  // folders and patterns, for the message of a miss
};

class Library {
 public:
  // Opens the first library that can be opened and that `refuse` gives no reason against. Fails with environment. The
  // message is the first reason of `refuse`; the notes are its other reasons, the places, the loader's reason for each
  // file that exists and cannot be opened, and the remedy. what: the name in messages.
  static Result<Library> open(const std::string& what, const LibrarySearch& search, const std::string& remedy,
                              const std::function<std::string(const Library&)>& refuse = {});

  void* symbol(const char* name) const;  // null if the library has none
  const std::string& path() const { return path_; }
  std::string soname() const;  // the name that its maker gave it; "" if it has none
  // Identifies the build exactly: "build-id:<hex>" of the ELF file, else "sha256:<hex>" of its bytes.
  std::string digest() const;

 private:
  void* handle_ = nullptr;  // never closed: these libraries keep threads and exit handlers of their own
  std::string path_;        // path of the loaded file, links resolved
};

// The files of this process's libraries whose names begin with `stem`.
std::vector<std::string> loaded_files(const std::string& stem);

// The files whose name matches `name` in the folders. Both may be patterns such as /usr/local/cuda-*/lib64; of a
// pattern the largest version comes first, by number. Each file is listed once, under the first path that leads to it.
// Relative folders are left out, because code is never loaded from the working directory.
std::vector<std::string> library_files(const std::vector<std::string>& folders, const std::string& name);

// `path` as a pattern that matches only itself.
std::string glob_escaped(const std::string& path);

// The folder in which Debian and Ubuntu put libraries of this machine.
#ifdef __aarch64__
constexpr const char* kMachineLibraries = "/usr/lib/aarch64-linux-gnu";
#else
constexpr const char* kMachineLibraries = "/usr/lib/x86_64-linux-gnu";
#endif

}  // namespace kvjit
