// File: a file descriptor that closes itself, and a read at a position.
// SPDX-License-Identifier: MIT
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>

namespace kvjit {

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Reads to.size() bytes from byte `at` of the file on, or returns false. The position is an argument, so several
// threads may read one file.
inline bool read_at(const File& file, std::uint64_t at, std::span<std::uint8_t> to) {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t got = ::pread(file.fd(), to.data() + done, to.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace kvjit
