// Opens and reads files that a caller names: see input_file.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/base/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace kvjit {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

template <class Bytes>
Result<Bytes> read_whole(const std::string& path, std::uint64_t most) {
  KV_TRY(opened, open_input(path, most));
  Bytes bytes(opened.size, {});
  if (!read_at(opened.file, 0, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()}))
    return fail(Code::bad_input, fmt::format("{}: cannot be read to its end ({} bytes)", path, opened.size));
  return bytes;
}

}  // namespace

Result<InputFile> open_input(const std::string& path, std::uint64_t most) {
  if (path.find('\0') != std::string::npos) return fail(Code::bad_input, fmt::format("{}: is no file name", path));
  // O_NONBLOCK: the open of a pipe does not wait for a writer.
  InputFile opened{File(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), 0};
  if (!opened.file && errno == ENOENT) return fail(Code::bad_input, fmt::format("{}: there is no such file", path));
  struct stat status {};
  if (!opened.file || ::fstat(opened.file.fd(), &status) != 0)
    return fail(Code::bad_input, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    return fail(Code::bad_input, fmt::format("{}: is {}, not a regular file", path, kind_of(status.st_mode)));
  opened.size = static_cast<std::uint64_t>(status.st_size);
  if (opened.size > most)
    return fail(Code::bad_input, fmt::format("{}: has {} bytes; at most {} are read", path, opened.size, most));
  return opened;
}

Result<std::vector<std::uint8_t>> read_bytes(const std::string& path) {
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  return read_whole<std::vector<std::uint8_t>>(path, pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
}

Result<std::string> read_text(const std::string& path) { return read_whole<std::string>(path, kMaxTextBytes); }

}  // namespace kvjit
