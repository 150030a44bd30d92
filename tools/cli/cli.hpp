// What every verb of the command shares: the global flags, where data and talk go, and how specs and devices
// are opened. Data goes to stdout (text, or one JSON document with --json), talk to stderr; nothing is
// coloured.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/spec/spec.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/program.hpp"

namespace CLI {
class App;
}

namespace kvjit {

using Json = nlohmann::ordered_json;

struct Cli {
  bool is_json = false, is_quiet = false;
  std::vector<std::string> spec_dirs;   // --specs, in order
  Options options;                      // environment first, then flags
  std::function<Result<int>()> action;  // of the chosen verb; its value is the exit code

  void talk(const std::string& line) const;  // stderr, unless --quiet
  void print(const Json& data, const std::string& text) const;

  Result<Registry> registry() const;                                             // embedded files and --specs
  Result<std::vector<Spec>> specs(const std::vector<std::string>& files) const;  // [matrix] and [layers] expanded
  Result<Spec> one_spec(const std::string& file) const;                          // a sweep is refused
  Result<std::shared_ptr<Context>> context() const;                              // opened on first use

  // The archs to generate for: those asked for, else the spec's, else the device's. needs_gpu: without a GPU
  // the last is an error; otherwise the CPU back-end's default arch serves, and talk() says so.
  Result<std::vector<std::string>> archs(const Spec& spec, const std::vector<std::string>& asked, bool needs_gpu) const;

 private:
  mutable std::shared_ptr<Context> context_;
  mutable bool has_said_arch_ = false;
};

// A spec on a device, ready to launch.
struct Ready {
  Problem problem;
  std::shared_ptr<Program> program;
};
Result<Ready> make_ready(const Spec& spec, const Registry& registry, const std::shared_ptr<Context>& context);

// "wht_signed:128": a rotation and the channels of one group; "none:128" too, where only the group matters.
struct RotationFlag {
  Rotation rotation;
  int group = 0;
};
Result<RotationFlag> rotation_flag(const Registry& registry, const std::string& text);

Json to_json(const Error& error);

void add_spec_verbs(CLI::App& app, Cli& cli);    // check, emit, explain, build
void add_run_verb(CLI::App& app, Cli& cli);      // run
void add_verify_verb(CLI::App& app, Cli& cli);   // verify
void add_bench_verb(CLI::App& app, Cli& cli);    // bench
void add_pack_verb(CLI::App& app, Cli& cli);     // pack
void add_codec_verbs(CLI::App& app, Cli& cli);   // quantize, dequantize, requantize
void add_formats_verb(CLI::App& app, Cli& cli);  // formats
void add_quality_verb(CLI::App& app, Cli& cli);  // quality
void add_weights_verb(CLI::App& app, Cli& cli);  // rotate-weights
// explain --key: for each kernel its key, where it would come from, and what a miss differs in from the nearest entry
// on disk.
Result<int> explain_keys(const Cli& cli, const std::vector<ProgramSource>& programs);

void add_cache_verbs(CLI::App& app, Cli& cli);  // cache stats, list, inspect, verify, gc, clear
void add_doctor_verb(CLI::App& app, Cli& cli);  // doctor

struct RuntimeBench {
  std::string spec;
  std::string probe;  // of the second process: where its kernel must come from
};
Result<int> bench_runtime(const Cli& cli, const RuntimeBench& args);  // bench --runtime

}  // namespace kvjit
