// `kvjit bench --runtime`: the cost of the runtime on this machine. It times a cold compile, a kernel from disk, from a
// bundle, from memory and from another context, the compile of many kernels, and a launch compared with the driver's
// own. Disk and bundle are timed in a second process, which starts without kernels in memory.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "generator/program.hpp"
#include "runtime/base/input_file.hpp"
#include "runtime/store/bundle.hpp"
#include "tools/bench/bench_runtime.hpp"
#include "tools/cli/cli.hpp"
#include "tools/io/files.hpp"
#include "tools/io/report.hpp"
#include "tools/pack/pack.hpp"

extern char** environ;

namespace kvjit {
namespace {

namespace fs = std::filesystem;

// Runs this program again with the arguments `words`, and returns the number that it prints. hides_compilers: the
// second process cannot find a compiler.
Result<double> in_second_process(std::vector<std::string> words, bool hides_compilers) {
  std::vector<std::string> variables;
  for (char** at = environ; *at; ++at) variables.emplace_back(*at);
  if (hides_compilers) {
    std::erase_if(variables, [](const std::string& variable) {
      return variable.rfind("KVJIT_NVRTC=", 0) == 0 || variable.rfind("KVJIT_CXX=", 0) == 0;
    });
    variables.insert(variables.end(), {"KVJIT_NVRTC=/nonexistent", "KVJIT_CXX=/nonexistent"});
  }
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  };
  int ends[2];
  if (pipe(ends) != 0) return fail(Code::environment, "no pipe for the second process");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t child = 0;
  const int refused =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char chunk[256];
  for (ssize_t n; refused == 0 && (n = read(ends[0], chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  if (refused == 0) waitpid(child, &status, 0);
  if (refused != 0 || status != 0) return fail(Code::environment, "the second process failed");
  return std::strtod(text.c_str(), nullptr);
}

// A temporary folder that is removed in the end.
struct Folder {
  Folder() : path((fs::temp_directory_path() / "kvjit-bench-XXXXXX").string()) { is_made = mkdtemp(path.data()); }
  ~Folder() {
    std::error_code ignored;
    if (is_made) fs::remove_all(path, ignored);
  }
  std::string path;
  bool is_made = false;
};

// The decode kernel of the spec on this device.
Result<Source> decode_of(const Cli& cli, const Spec& spec, const DeviceInfo& info) {
  KV_TRY(registry, cli.registry());
  KV_TRY(problem, resolve(spec, registry, info.arch));
  if (info.is_gpu) problem.device = info.name;
  KV_TRY(program, make_program(problem, registry));
  if (problem.varlen)
    return fail(Code::unsupported, "--runtime times specs with a number of queries",
                spec.where("attention.query_length"));
  return program.kernels.at(Role::decode);
}

}  // namespace

Result<int> bench_runtime(const Cli& cli, const RuntimeBench& args) {
  KV_TRY(spec, cli.one_spec(args.spec));
  KV_TRY(context, cli.context());
  const DeviceInfo& info = context->backend()->info();
  KV_TRY(source, decode_of(cli, spec, info));
  if (!args.probe.empty()) {
    KV_TRY(record, context->get(source));
    if (to_string(record.origin) != args.probe)
      return fail(Code::environment,
                  fmt::format("the kernel came from {}, not from {}", to_string(record.origin), args.probe));
    cli.print(record.ready_ms, fmt::format("{}\n", record.ready_ms));
    return 0;
  }
  Json data = {{"kernel", source.name}, {"device", info.name}};
  std::vector<std::pair<std::string, std::string>> lines = {{"kernel", source.name}, {"device", info.name}};
  const auto note = [&](const char* key, double value, const char* label, const std::string& text) {
    data[key] = value;
    lines.emplace_back(label, text);
  };

  const int cold_runs = info.is_gpu ? 5 : 1, many = info.is_gpu ? 100 : 8;
  KV_TRY(cold, cold_compiles(cli.options, info.is_gpu, source, cold_runs));
  note("cold_compile_ms", median(cold), "cold compile",
       fmt::format("{:.0f} ms (median of {})", median(cold), cold_runs));
  KV_TRY(sizes, kernel_sizes(cli.options, info.is_gpu, source));
  data["text_bytes"] = sizes.text, data["ptx_bytes"] = sizes.ptx, data["object_bytes"] = sizes.object;
  const auto size = [](std::size_t bytes) { return byte_count(static_cast<double>(bytes)); };
  lines.emplace_back("sizes", fmt::format("{} of text, {}{} of machine code", size(sizes.text),
                                          sizes.ptx > 0 ? size(sizes.ptx) + " of PTX, " : "", size(sizes.object)));

  const Folder folder;
  if (!folder.is_made) return fail(Code::environment, fmt::format("{}: cannot be made", folder.path));
  Options fresh = cli.options;
  fresh.cache_dir = folder.path + "/cache";
  fresh.bundles.clear();
  fresh.device = info.is_gpu ? DeviceKind::gpu : DeviceKind::cpu;
  KV_TRY(first, Context::open(fresh));
  KV_TRY(compiled, first->get(source));
  note("first_use_ms", compiled.ready_ms, "first use",
       fmt::format("{:.1f} ms (compile, publish, load)", compiled.ready_ms));

  const std::string device = info.is_gpu ? "gpu" : "cpu", bundle = folder.path + "/kernels.kvb";
  KV_TRY(disk, in_second_process({"kvjit", "--quiet", "--cache-dir", fresh.cache_dir, "--device", device, "bench",
                                  args.spec, "--runtime", "--probe", "disk"},
                                 false));
  note("disk_hit_ms", disk, "disk hit", fmt::format("{:.2f} ms (second process: read, verify, load)", disk));
  KV_TRY(entries, entries_of(compile_ahead(*first->store(), {source}, {})));
  KV_CHECK(write_bytes(bundle, write_bundle(entries, nullptr)));
  fs::permissions(bundle, fs::perms::owner_read | fs::perms::owner_write);
  KV_TRY(bundled, in_second_process({"kvjit", "--quiet", "--cache-dir", "off", "--device", device, "--bundle", bundle,
                                     "bench", args.spec, "--runtime", "--probe", "bundle"},
                                    true));
  note("bundle_hit_ms", bundled, "bundle hit", fmt::format("{:.2f} ms (second process, no compiler)", bundled));

  KV_TRY(same_ns, memory_hit(*first, source));
  note("same_kernel_ns", same_ns, "memory hit",
       fmt::format("{:.0f} ns for a context to find the kernel again", same_ns));
  Source equal = source;
  equal.text = std::string(source.text.str());
  KV_TRY(equal_ns, memory_hit(*first, equal));
  note("equal_text_ns", equal_ns, "",
       fmt::format("{:.0f} ns of a text generated anew ({} bytes compared)", equal_ns, source.text.size()));
  if (cli.spec_dirs.empty()) {
    KV_TRY(toml, read_text(args.spec));
    KV_TRY(again_ns, program_again(fresh, toml));
    note("same_spec_ns", again_ns, "", fmt::format("{:.0f} ns for kvjit_program_create of a spec in use", again_ns));
    KV_TRY(questions, question_cost(fresh, toml, info.arch));
    note("new_question_us", questions.new_us, "a question",
         fmt::format("{:.0f} us for kvjit_supported of a new text", questions.new_us));
    note("same_question_ns", questions.again_ns, "",
         fmt::format("{:.0f} ns of a text that was asked about before", questions.again_ns));
    note("readiness_ns", questions.readiness_ns, "",
         fmt::format("{:.0f} ns for kvjit_readiness of a loaded spec", questions.readiness_ns));
  }
  KV_TRY(registry, cli.registry());
  KV_TRY(ready, make_ready(spec, registry, first));
  constexpr int kMemoryRuns = 10000;
  const Role attends = ready.program->record(Role::decode) ? Role::decode : Role::prefill;
  const auto lookup = std::chrono::steady_clock::now();
  std::size_t found = 0;
  for (int i = 0; i < kMemoryRuns; ++i) found += ready.program->record(attends) != nullptr;
  const double record_ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - lookup).count() / kMemoryRuns;
  if (found != kMemoryRuns) return fail(Code::internal, "a program without the kernel that attends");
  note("memory_hit_ns", record_ns, "",
       fmt::format("{:.0f} ns for a program to find its own, once a launch", record_ns));

  Options apart = fresh;
  apart.cache_dir = "off";
  KV_TRY(second, Context::open(apart));
  KV_TRY(shared, second->get(source));
  const ContextMemory memory = second->memory();
  if (memory.shared_kernels != 1 || second->counters().compiles != 0)
    return fail(Code::internal, "a second context did not share the kernel of the first");
  data["shared_kernels"] = memory.shared_kernels, data["device_kernels"] = memory.device.kernels;
  data["device_code_bytes"] = memory.device.bytes;
  note("shared_ms", shared.ready_ms, "two contexts",
       fmt::format(
           "{:.2f} ms for the second, with no cache, to share the first one's kernel; on the device {} kernel(s), "
           "{}, once for both",
           shared.ready_ms, memory.device.kernels, byte_count(static_cast<double>(memory.device.bytes))));

  constexpr int kFew = 8;
  constexpr unsigned kFewThreads = 2;
  KV_TRY(few_ms, warm_many(fresh, source, kFew, kFewThreads));
  note("few_ms", few_ms, "a model",
       fmt::format("{:.0f} ms for {} kernels on {} threads, {:.1f} ms each", few_ms, kFew, kFewThreads, few_ms / kFew));
  KV_TRY(all_ms, warm_many(fresh, source, many, std::max(1u, std::thread::hardware_concurrency())));
  note("warm_ms", all_ms, "warm-up",
       fmt::format("{:.0f} ms for {} kernels in parallel, {:.1f} ms each", all_ms, many, all_ms / many));
  if (info.is_gpu) {
    KV_TRY(cost, launch_cost(first, ready.program));
    data["driver_launch_us"] = cost.driver_us;
    note("attention_launch_us", cost.attention_us, "launch",
         fmt::format(
             "{:.2f} us of this thread for a call of attention ({} kernel(s)), {:.2f} us for the driver's launch "
             "of an empty kernel: {:+.2f} us",
             cost.attention_us, cost.kernels, cost.driver_us, cost.attention_us - cost.driver_us));
  } else {
    lines.emplace_back("launch", "not measured: the CPU back-end runs kernels in the call");
  }
  cli.print(data, info_text(lines));
  return 0;
}

}  // namespace kvjit
