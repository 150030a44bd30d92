// The verbs about this machine: cache stats, doctor, and bench-jit (what a kernel costs cold, from disk and
// from memory).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "generator/program.hpp"
#include "runtime/cache.hpp"
#include "runtime/compiler.hpp"
#include "tools/cli.hpp"
#include "tools/report.hpp"

extern char** environ;

namespace kvjit {
namespace {

namespace fs = std::filesystem;

Result<int> cache_stats(const Cli& cli) {
  const std::string folder = cache_folder(cli.options);
  if (folder.empty()) {
    cli.print({{"folder", nullptr}, {"entries", 0}, {"bytes", 0}}, "memory only: no cache folder\n");
    return 0;
  }
  const CacheStats stats = read_stats(folder);
  cli.print({{"folder", folder},
             {"entries", stats.entries},
             {"bytes", stats.bytes},
             {"max_bytes", cli.options.cache_max_bytes},
             {"quarantined", stats.quarantined}},
            facts_text({{"folder", folder},
                        {"entries", std::to_string(stats.entries)},
                        {"size", fmt::format("{} of at most {}", byte_count(static_cast<double>(stats.bytes)),
                                             byte_count(static_cast<double>(cli.options.cache_max_bytes)))},
                        {"quarantined", std::to_string(stats.quarantined)}}));
  return 0;
}

struct Finding {
  std::string what;
  bool is_found = false;
  std::string text;
  std::vector<std::string> searched;
};

Finding missing(const std::string& what, const Error& error) { return {what, false, error.message, error.notes}; }

std::vector<Finding> findings(const Options& options) {
  std::vector<Finding> found;
  if (const auto gpu = open_cuda(options); !gpu) {
    found.push_back(missing("GPU", gpu.error()));
  } else {
    const DeviceFacts& facts = (*gpu)->facts();
    found.push_back({"GPU",
                     true,
                     fmt::format("{}, {}, {} multiprocessors, {}, driver for CUDA {}.{}", facts.name, facts.arch,
                                 facts.multiprocessors, byte_count(static_cast<double>(facts.memory_bytes)),
                                 facts.driver_version / 1000, facts.driver_version % 1000 / 10),
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
    // The nearest folder that exists decides; asking is all, nothing is created.
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

struct BenchArgs {
  std::string spec, arch;
  bool is_probe = false;
};

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

// This very program again, over the same cache folder: what a second process pays. Returns what it printed.
Result<std::string> run_probe(const std::string& spec, const std::string& cache_dir, DeviceKind device) {
  int ends[2];
  if (pipe(ends) != 0) return fail(Code::environment, "no pipe for the second process");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  const std::string words[] = {"kvjit",     "--quiet",  "--cache-dir",
                               cache_dir,   "--device", device == DeviceKind::gpu ? "gpu" : "cpu",
                               "bench-jit", "--probe",  spec};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int refused = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char piece[256];
  for (ssize_t n; refused == 0 && (n = read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  if (refused == 0) waitpid(child, &status, 0);
  if (refused != 0 || status != 0) return fail(Code::environment, "the second process failed");
  return text;
}

// attend of the spec for the device in use.
Result<Source> attend_of(const Cli& cli, const Spec& spec, const std::string& arch) {
  KV_TRY(registry, cli.registry());
  KV_TRY(problem, resolve(spec, registry, arch));
  KV_TRY(program, make_program(problem, registry));
  const auto found = program.kernels.find(Role::attend);
  if (found == program.kernels.end()) return fail(Code::internal, "a program without an attend kernel");
  return found->second;
}

Result<int> bench_jit(const Cli& cli, const BenchArgs& args) {
  KV_TRY(spec, cli.one_spec(args.spec));
  KV_TRY(context, cli.context());
  const DeviceFacts& facts = context->backend()->facts();
  KV_TRY(source, attend_of(cli, spec, args.arch.empty() ? facts.arch : args.arch));
  if (args.is_probe) {
    KV_TRY(record, context->get(source));
    if (record.origin != Origin::disk) return fail(Code::environment, "the kernel was not in the cache folder");
    fmt::print("{}\n", record.ready_ms);
    return 0;
  }
  Json data = {{"kernel", source.name}, {"device", facts.name}};
  std::vector<std::pair<std::string, std::string>> lines = {{"kernel", source.name}, {"device", facts.name}};
  constexpr int kColdRuns = 5, kMemoryRuns = 1000;
  if (const auto nvrtc = open_nvrtc(cli.options); !nvrtc) {
    lines.push_back({"cold NVRTC", "not measured: " + nvrtc.error().message});
  } else {
    std::vector<double> cold;
    for (int i = 0; i < kColdRuns; ++i) {
      Source fresh = source;
      // A text that no cache below NVRTC can have seen.
      fresh.text += fmt::format("\n// nonce {} {}\n", i, std::chrono::steady_clock::now().time_since_epoch().count());
      KV_TRY(artefact, (*nvrtc)->compile(fresh));
      cold.push_back(artefact.compile_ms);
    }
    data["cold_nvrtc_ms"] = median(cold);
    lines.push_back({"cold NVRTC", fmt::format("{:.0f} ms (median of {})", median(cold), kColdRuns)});
  }

  std::string folder = (fs::temp_directory_path() / "kvjit-bench-XXXXXX").string();
  if (!mkdtemp(folder.data())) return fail(Code::environment, fmt::format("{}: cannot be made", folder));
  const auto measure = [&]() -> Result<void> {
    Options fresh = cli.options;
    fresh.cache_dir = folder;
    fresh.device = facts.is_gpu ? DeviceKind::gpu : DeviceKind::cpu;
    KV_TRY(first, Context::open(fresh));
    KV_TRY(compiled, first->get(source));
    data["first_use_ms"] = compiled.ready_ms;
    lines.push_back({"first use", fmt::format("{:.1f} ms (compile, publish, load)", compiled.ready_ms)});
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kMemoryRuns; ++i) KV_CHECK(first->get(source));
    const double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kMemoryRuns;
    data["memory_hit_ns"] = ns;
    lines.push_back({"memory hit", fmt::format("{:.0f} ns (mean of {})", ns, kMemoryRuns)});
    KV_TRY(probe, run_probe(args.spec, folder, fresh.device));
    const double disk = std::strtod(probe.c_str(), nullptr);
    data["disk_hit_ms"] = disk;
    lines.push_back({"disk hit", fmt::format("{:.2f} ms (second process: read, verify, load)", disk)});
    return {};
  };
  const Result<void> measured = measure();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  KV_CHECK(measured);
  cli.print(data, facts_text(lines));
  return 0;
}

}  // namespace

void add_system_verbs(CLI::App& app, Cli& cli) {
  CLI::App* cache = app.add_subcommand("cache", "the folder of compiled kernels");
  cache->require_subcommand(1);
  CLI::App* stats = cache->add_subcommand("stats", "how much it holds");
  stats->fallthrough();
  stats->callback([&cli] { cli.action = [&cli] { return cache_stats(cli); }; });
  app.add_subcommand("doctor", "what of driver, compilers and cache is found, and what was searched")->callback([&cli] {
    cli.action = [&cli] { return doctor(cli); };
  });
  const auto args = std::make_shared<BenchArgs>();
  CLI::App* bench = app.add_subcommand("bench-jit", "what a kernel costs cold, from disk and from memory")->group("");
  bench->add_option("SPEC", args->spec, "spec file")->required();
  bench->add_option("--arch", args->arch, "instead of the device's");
  bench->add_flag("--probe", args->is_probe, "the second process");
  bench->callback([&cli, args] { cli.action = [&cli, args] { return bench_jit(cli, *args); }; });
}

}  // namespace kvjit
