// The verb doctor: prints which GPU, compilers and cache folder this machine has, and the places that were searched for
// missing ones.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "runtime/compile/compiler.hpp"
#include "runtime/store/disk_cache.hpp"
#include "tools/cli/cli.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string what;  // "GPU", "NVRTC", "host compiler" or "cache"
  bool is_found = false;
  std::string text;                   // a description, or why it is missing
  std::vector<std::string> searched;  // the places that were searched
};

Finding missing(const std::string& what, const Error& error) { return {what, false, error.message, error.notes}; }

std::vector<Finding> findings(const Options& options) {
  std::vector<Finding> found;
  if (const auto gpu = open_cuda(options); !gpu) {
    found.push_back(missing("GPU", gpu.error()));
  } else {
    const DeviceInfo& info = (*gpu)->info();
    found.push_back({"GPU",
                     true,
                     fmt::format("{}, {}, {} multiprocessors, {}, driver for CUDA {}.{}", info.name, info.arch,
                                 info.multiprocessors, byte_count(static_cast<double>(info.memory_bytes)),
                                 info.driver_version / 1000, info.driver_version % 1000 / 10),
                     {}});
  }
  for (const auto& [what, compiler] :
       {std::pair{"NVRTC", open_nvrtc(options)}, std::pair{"host compiler", open_host_compiler(options)}}) {
    if (!compiler) {
      found.push_back(missing(what, compiler.error()));
      continue;
    }
    const auto archs = (*compiler)->archs();
    found.push_back({what,
                     true,
                     fmt::format("{}{}{}", (*compiler)->identity(), archs.empty() ? "" : ": ", fmt::join(archs, " ")),
                     {}});
  }
  if (const std::string folder = cache_folder(options); folder.empty()) {
    found.push_back(
        {"cache", false, "memory only: no folder is named", {"--cache-dir, KVJIT_CACHE_DIR, XDG_CACHE_HOME, HOME"}});
  } else {
    // The nearest folder that exists decides. Nothing is created.
    fs::path at = folder;
    std::error_code problem;
    while (!fs::exists(at, problem) && at.has_relative_path()) at = at.parent_path();
    const bool is_writable = access(at.c_str(), W_OK | X_OK) == 0;
    found.push_back(
        {"cache",
         is_writable,
         is_writable ? folder : fmt::format("{}: {} cannot be written to: memory only", folder, at.string()),
         {}});
  }
  return found;
}

Result<int> doctor(const Cli& cli) {
  Json data = Json::array();
  std::string text;
  bool has_compiler = false;
  for (const std::string& refused : cli.options.refused) text += fmt::format("environment     {}\n", refused);
  for (const Finding& f : findings(cli.options)) {
    const bool is_compiler = f.what == "NVRTC" || f.what == "host compiler";
    has_compiler = has_compiler || (is_compiler && f.is_found);
    data.push_back({{"what", f.what}, {"is_found", f.is_found}, {"text", f.text}, {"searched", f.searched}});
    text += fmt::format("{:<14}  {}{}\n", f.what, f.is_found ? "" : "missing: ", f.text);
    for (const std::string& note : f.searched) text += fmt::format("{:<14}    {}\n", "", note);
  }
  cli.print({{"version", KVJIT_VERSION}, {"findings", data}, {"refused_environment", cli.options.refused}}, text);
  return has_compiler ? 0 : static_cast<int>(Code::environment);
}

}  // namespace

void add_doctor_verb(CLI::App& app, Cli& cli) {
  app.add_subcommand("doctor", "what of driver, compilers and cache is found, and what was searched")->callback([&cli] {
    cli.action = [&cli] { return doctor(cli); };
  });
}

}  // namespace kvjit
