// The verb doctor: which GPU, compilers and cache folder this machine has, with the files that were loaded, and whether
// `run` would accept each variable and option. It asks the functions that `run` asks, and ends with what is ready or
// what is to do.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "runtime/compile/compiler.hpp"
#include "runtime/store/bundle.hpp"
#include "runtime/store/disk_cache.hpp"
#include "runtime/store/remote.hpp"
#include "runtime/store/signature.hpp"
#include "tools/cli/cli.hpp"
#include "tools/io/report.hpp"

extern char** environ;

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string what;  // "GPU", "NVRTC", "host compiler", "cache", "bundle" ...
  bool is_fine = false;
  std::string text;                // a description, or what is wrong
  std::vector<std::string> files;  // the files that were loaded
  std::vector<std::string> notes;  // the places that were searched; the last one says what to do
};

Finding wrong(const std::string& what, const Error& error) { return {what, false, error.message, {}, error.notes}; }

Finding judge_gpu(const Options& options) {
  const auto gpu = open_cuda(options);
  if (!gpu) return wrong("GPU", gpu.error());
  const DeviceInfo& info = (*gpu)->info();
  return {"GPU",
          true,
          fmt::format("{}, {}{}, {} multiprocessors, {}, driver for CUDA {}.{}", info.name, info.own_arch,
                      info.arch == info.own_arch ? "" : fmt::format(" ({})", device_text(info, info.arch)),
                      info.multiprocessors, byte_count(static_cast<double>(info.memory_bytes)),
                      info.driver_version / 1000, info.driver_version % 1000 / 10),
          {info.driver_file},
          {}};
}

Finding judge_compiler(const std::string& what, const Result<std::shared_ptr<Compiler>>& compiler) {
  if (!compiler) return wrong(what, compiler.error());
  const auto archs = (*compiler)->archs();
  return {what,
          true,
          fmt::format("{}{}{}", (*compiler)->identity(), archs.empty() ? "" : ": ", fmt::join(archs, " ")),
          (*compiler)->files(),
          {}};
}

// Compiles an empty kernel, too: NVRTC opens its builtins only when it compiles.
Finding judge_nvrtc(const Options& options) {
  const auto nvrtc = open_nvrtc(options);
  if (nvrtc) {
    Source empty;
    empty.name = "doctor";
    empty.arch = (*nvrtc)->archs().front();
    empty.text = "extern \"C\" __global__ void kv_doctor() {}\n";
    if (const auto compiled = (*nvrtc)->compile(empty); !compiled) return wrong("NVRTC", compiled.error());
  }
  return judge_compiler("NVRTC", nvrtc);
}

// Opens the folder as `run` does, and removes what that created.
Finding judge_cache(const Options& options) {
  const std::string folder = cache_folder(options);
  std::vector<std::string> missing;  // the deepest first
  std::error_code problem;
  for (fs::path at = fmt::format("{}/v{}", folder, kCacheFormat);
       !folder.empty() && !fs::exists(at, problem) && at.has_relative_path(); at = at.parent_path())
    missing.push_back(at);
  const auto opened = open_cache_folder(options);
  for (const std::string& path : missing) ::rmdir(path.c_str());
  if (!opened) {
    Finding finding = wrong("cache", opened.error());
    finding.text += "; kernels are cached in memory only";
    finding.notes = {"name a folder of this user in KVJIT_CACHE_DIR or --cache-dir, or off"};
    return finding;
  }
  if (opened->empty()) return {"cache", true, "memory only: off was named", {}, {}};
  const auto stats = read_stats(folder);
  if (!stats) return wrong("cache", stats.error());
  return {"cache",
          true,
          fmt::format("{}: {} kernels, {}", folder, stats->entries, byte_count(static_cast<double>(stats->bytes))),
          {},
          {}};
}

std::vector<Finding> judge_bundles(const Options& options) {
  std::vector<Finding> findings;
  for (const std::string& path : options.bundles) {
    Options one = options;
    one.bundles = {path};
    const auto layers = open_bundles(one);
    const auto bundle = Bundle::open(path);
    if (!layers || !bundle) {
      findings.push_back(wrong("bundle", layers ? bundle.error() : layers.error()));
      findings.back().notes.push_back("name bundles that exist in KVJIT_BUNDLES and --bundle");
      continue;
    }
    findings.push_back({"bundle",
                        true,
                        fmt::format("{} kernels for {}, signed by {}", bundle->items().size(), bundle->archs(),
                                    bundle->signer() ? hex(*bundle->signer()) : "nobody"),
                        {path},
                        {}});
  }
  for (const std::string& text : options.trusted_keys)
    if (const auto key = read_public_key(text); !key)
      findings.push_back({"trusted key",
                          false,
                          fmt::format("'{}': {}", text, key.error().message),
                          {},
                          {"KVJIT_TRUSTED_KEYS lists public keys as `kvjit pack --new-key` prints them"}});
  return findings;
}

Finding judge_remote(const Options& options) {
  Options logged = options;
  std::string complaint;
  logged.log = [&](const std::string& line) { complaint = line; };
  const auto remote = open_remote(logged);
  if (!remote) return wrong("server", remote.error());
  Source nothing;
  nothing.name = "doctor";
  (*remote)->read(make_key(nothing, ArtefactKind::cubin, {}));  // a server that answers says that it has no such kernel
  if (complaint.empty()) return {"server", true, options.remote + " answers", {}, {}};
  return {"server", false, complaint, {}, {"KVJIT_REMOTE names a server of kernels; it is left alone if it fails"}};
}

constexpr std::array kVariables = {"KVJIT_DEVICE",       "KVJIT_DEVICE_ORDINAL",  "KVJIT_ARCH",         "KVJIT_AS_PTX",
                                   "KVJIT_CACHE_DIR",    "KVJIT_CACHE_MAX_BYTES", "KVJIT_NVRTC",        "KVJIT_CUDA",
                                   "KVJIT_CXX",          "KVJIT_BUNDLES",         "KVJIT_TRUSTED_KEYS", "KVJIT_REMOTE",
                                   "KVJIT_REMOTE_WRITES"};

// Variables of the environment that kvjit refuses, and such whose name is nearly one of its own.
std::vector<Finding> judge_variables(const Options& options) {
  std::vector<Finding> findings;
  for (const std::string& refused : options.refused)
    findings.push_back({"environment", false, refused, {}, {"unset it, or give it such a value"}});
  for (char** at = environ; *at; ++at) {
    const std::string variable = *at, name = variable.substr(0, variable.find('='));
    if (name.rfind("KVJIT_", 0) != 0 || std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end())
      continue;
    if (const std::string near = closest(name, {kVariables.begin(), kVariables.end()}); !near.empty())
      findings.push_back({"environment", false, name + " is no variable of kvjit", {}, {"did you mean " + near + "?"}});
  }
  return findings;
}

Result<int> doctor(const Cli& cli) {
  const Options& options = cli.options;
  const Finding gpu = judge_gpu(options), nvrtc = judge_nvrtc(options),
                host = judge_compiler("host compiler", open_host_compiler(options));
  std::vector<Finding> findings = {gpu, nvrtc, host, judge_cache(options)};
  const auto add = [&](const std::vector<Finding>& more) { findings.insert(findings.end(), more.begin(), more.end()); };
  add(judge_bundles(options));
  if (!options.remote.empty()) add({judge_remote(options)});
  add(judge_variables(options));

  // What `run` opens before it looks at the device. It would also create the cache folder.
  Options cacheless = options;
  cacheless.cache_dir = "off";
  const bool is_open = options.refused.empty() && Store::open(cacheless, nvrtc_toolchain(options)).has_value();
  std::vector<std::string> ready;
  if (is_open && gpu.is_fine && options.device != DeviceKind::cpu)
    ready.push_back(nvrtc.is_fine ? "GPU"
                                  : "GPU, with kernels of bundles and caches only, because no NVRTC can be used");
  if (is_open && host.is_fine && options.device != DeviceKind::gpu) ready.push_back("CPU back-end");

  Json data = Json::array(), variables = Json::object();
  std::string text;
  std::vector<std::string> to_do;
  for (const Finding& f : findings) {
    data.push_back(
        {{"what", f.what}, {"is_found", f.is_fine}, {"text", f.text}, {"files", f.files}, {"searched", f.notes}});
    const bool is_part = f.what == "GPU" || f.what == "NVRTC" || f.what == "host compiler";
    text += fmt::format("{:<14}  {}{}\n", f.what, f.is_fine ? "" : is_part ? "missing: " : "wrong: ", f.text);
    for (const std::string& file : f.files) text += fmt::format("{:<14}    {}\n", "", file);
    for (const std::string& note : f.notes) text += fmt::format("{:<14}    {}\n", "", note);
    // A machine without a GPU is fine for the CPU back-end, so only what is wrong is to do then.
    const bool is_needed = !is_part || ready.empty();
    if (!f.is_fine && is_needed)
      to_do.push_back(fmt::format("{}: {}", f.what, f.notes.empty() ? f.text : f.notes.back()));
  }
  for (const char* name : kVariables)
    if (const char* value = std::getenv(name); value && *value) {
      variables[name] = value;
      text += fmt::format("{:<14}  {}={}\n", "variable", name, value);
    }
  text += ready.empty() ? fmt::format("{:<14}  nothing\n", "ready")
                        : fmt::format("{:<14}  {}\n", "ready", fmt::join(ready, "; "));
  for (const std::string& line : to_do) text += fmt::format("{:<14}  {}\n", "to do", line);
  cli.print({{"version", KVJIT_VERSION},
             {"findings", data},
             {"variables", variables},
             {"refused_environment", options.refused},
             {"ready", ready},
             {"to_do", to_do}},
            text);
  return ready.empty() ? static_cast<int>(Code::environment) : 0;
}

}  // namespace

void add_doctor_verb(CLI::App& app, Cli& cli) {
  app.add_subcommand("doctor", "what of driver, compilers, cache and environment works, and what is to do")
      ->callback([&cli] { cli.action = [&cli] { return doctor(cli); }; });
}

}  // namespace kvjit
