// Temporary files and folders, and their removal: at the end of a scope, by a signal, and after their process died. A
// folder is locked while its process lives, so that a sweep recognizes those of dead processes.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

#include "generator/base/result.hpp"
#include "runtime/base/file.hpp"

namespace kvjit {

// Marks a path for remove_temporaries() while the object lives. The destructor removes nothing. A path above 255 bytes
// is not marked.
class TemporaryMark {
 public:
  explicit TemporaryMark(const std::string& path);
  TemporaryMark(const TemporaryMark&) = delete;
  TemporaryMark& operator=(const TemporaryMark&) = delete;
  ~TemporaryMark();

 private:
  int slot_ = -1;
};

// Removes all marked files, and marked folders that are then empty. A signal handler may call it.
void remove_temporaries() noexcept;

// For a program, never for the library: SIGINT, SIGTERM, SIGHUP and SIGXFSZ remove what is marked and then end the
// process as they would without a handler.
void remove_temporaries_on_signals();

// A folder kvjit-XXXXXX of TMPDIR that only this process uses. The destructor removes it with its content.
class TemporaryFolder {
 public:
  // Fails with environment if the folder cannot be made, or has no space for a file.
  static Result<TemporaryFolder> make();
  TemporaryFolder(TemporaryFolder&& other) noexcept = default;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }
  // Fails with environment and the reason if no file can be written to the folder.
  Result<void> check_space() const;

 private:
  TemporaryFolder(std::filesystem::path path, File lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::filesystem::path path_;
  File lock_;
};

// Removes the folders of TemporaryFolder that dead processes of this user left in TMPDIR more than an hour ago. Returns
// their number.
std::size_t sweep_temporary_folders();

}  // namespace kvjit
