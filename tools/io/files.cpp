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

Result<void> check_apart(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  const auto is_one_file = [](const std::string& a, const std::string& b) {
    std::error_code problem;
    if (fs::equivalent(a, b, problem)) return fs::is_regular_file(a, problem);
    // Files that do not exist yet are compared by name, with links of their folders resolved.
    return !fs::exists(a, problem) && !fs::exists(b, problem) &&
           fs::weakly_canonical(fs::absolute(a), problem) == fs::weakly_canonical(fs::absolute(b), problem);
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = outputs[i];
    if (output.empty()) continue;
    for (const std::string& input : inputs)
      if (is_one_file(input, output))
        return fail(Code::usage, fmt::format("{}: the output would replace the input {}", output, input));
    for (std::size_t j = 0; j < i; ++j)
      if (!outputs[j].empty() && is_one_file(outputs[j], output))
        return fail(Code::usage, fmt::format("{}: two outputs are this file", output));
  }
  return {};
}

Result<void> write_bytes(const std::string& file, std::span<const std::uint8_t> bytes) {
  const auto refused = [&] {
    return fail(Code::environment, fmt::format("{}: cannot be written: {}", file, std::strerror(errno)));
  };
  std::error_code problem;
  // A device or a pipe (/dev/stdout) is written in place: renaming over it would replace it. A link stays a link, and
  // the file that it names is replaced.
  const bool in_place = fs::exists(file, problem) && !fs::is_regular_file(file, problem);
  fs::path final_name = file;
  if (fs::is_symlink(file, problem))
    final_name = fs::exists(file, problem) ? fs::canonical(file, problem)
                                           : final_name.parent_path() / fs::read_symlink(file, problem);
  const std::string target = in_place ? file : fmt::format("{}.{}.tmp", final_name.string(), getpid());
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
  fs::rename(target, final_name, problem);
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
