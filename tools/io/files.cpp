// Reads and writes whole files: see files.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/temporary.hpp"

namespace kvjit {

namespace fs = std::filesystem;

Result<std::vector<std::uint8_t>> read_bytes(const std::string& file) {
  std::error_code problem;
  const fs::file_status status = fs::status(file, problem);
  if (!fs::exists(status)) return fail(Code::bad_input, fmt::format("{}: there is no such file", file));
  if (!fs::is_regular_file(status)) return fail(Code::bad_input, fmt::format("{}: is not a regular file", file));
  const std::uintmax_t size = fs::file_size(file, problem);
  std::ifstream in(file, std::ios::binary);
  if (problem || !in) return fail(Code::bad_input, fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  std::vector<std::uint8_t> bytes(size);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(in.gcount()) != size)
    return fail(Code::bad_input, fmt::format("{}: ended after {} of {} bytes", file, in.gcount(), size));
  return bytes;
}

Result<std::string> read_text(const std::string& file) {
  KV_TRY(bytes, read_bytes(file));
  return std::string(bytes.begin(), bytes.end());
}

Result<void> write_bytes(const std::string& file, std::span<const std::uint8_t> bytes) {
  const auto refused = [&] {
    return fail(Code::environment, fmt::format("{}: cannot be written: {}", file, std::strerror(errno)));
  };
  std::error_code problem;
  // A device or a pipe (/dev/stdout) is written in place: renaming over it would replace it.
  const bool in_place = fs::exists(file, problem) && !fs::is_regular_file(file, problem);
  const std::string target = in_place ? file : fmt::format("{}.{}.tmp", file, getpid());
  const TemporaryMark mark(in_place ? "" : target);
  {
    std::ofstream out(target, std::ios::binary);
    if (!out) return refused();
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) {
      auto error = refused();
      if (!in_place) fs::remove(target, problem);
      return error;
    }
  }
  if (in_place) return {};
  fs::rename(target, file, problem);
  if (problem) {
    std::error_code ignored;
    fs::remove(target, ignored);
    return fail(Code::environment, fmt::format("{}: cannot be written: {}", file, problem.message()));
  }
  return {};
}

Result<void> write_text(const std::string& file, const std::string& text) {
  return write_bytes(file, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

Result<void> check_writable(const std::string& file) {
  std::error_code problem;
  const auto refused = [&](const std::string& why) {
    return fail(Code::environment, fmt::format("{}: cannot be written: {}", file, why));
  };
  if (fs::is_directory(file, problem)) return refused("it is a folder");
  const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : fs::path(".");
  if (!fs::is_directory(folder, problem)) return refused(fmt::format("{} is no folder", folder.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return refused(std::strerror(errno));
  return {};
}

Result<void> make_folder(const std::string& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (!problem) return {};
  return fail(Code::environment, fmt::format("{}: cannot be made a folder: {}", folder, problem.message()));
}

}  // namespace kvjit
