// Cli: the common code of all verbs. It holds the global flags, opens specs and devices, and prints. Data goes to
// stdout, as text or as one JSON document with --json; messages go to stderr. Each add_..._verb
// registers a verb with its options; the chosen verb sets Cli::action, which main runs.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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
  bool is_json = false;                 // --json
  bool is_quiet = false;                // --quiet
  std::vector<std::string> spec_dirs;   // --specs, in order
  Options options;                      // from the environment, overridden by flags
  std::vector<std::string> words;       // the command line after "kvjit"
  std::function<Result<int>()> action;  // runs the chosen verb and returns the exit code

  // None of them fails. What stdout could not take is known at the end, by close_output.
  void talk(const std::string& line) const;                     // to stderr, unless --quiet
  void print_error(const std::string& text) const;              // to stderr, as it is
  void print(const Json& data, const std::string& text) const;  // to stdout: `data` with --json, else `text`
  // Writes what is buffered. Fails if stdout did not take everything: a full disk, a closed pipe.
  Result<void> close_output() const;

  bool shows_progress() const;  // stderr is a terminal, and not --quiet
  bool shows_rows() const;      // stdout is a terminal and text is asked for: rows are printed as they come
  // Says that Ctrl-C ended the verb and with which line it goes on: that of this call, with these flags and values
  // instead. Returns the exit code.
  int interrupted(std::size_t done, std::size_t count,
                  const std::vector<std::pair<std::string, std::string>>& flags) const;

  Result<Registry> registry() const;                                             // embedded files and --specs
  Result<std::vector<Spec>> specs(const std::vector<std::string>& files) const;  // with [matrix] and [layers] expanded
  Result<Spec> one_spec(const std::string& file) const;                          // fails if the file expands to several
  Result<std::shared_ptr<Context>> context() const;                              // opened on first use
  // Fails if options.arch (--arch of run and verify, KVJIT_ARCH) is none that the registry knows.
  Result<void> check_arch(const Registry& registry) const;

  // The archs for which kernels are generated: `requested`, else the spec's, else the device's. Without a GPU the
  // device's arch is an error if needs_gpu; otherwise it is the CPU back-end's default arch, and talk() says so.
  Result<std::vector<std::string>> archs(const Spec& spec, const Registry& registry,
                                         const std::vector<std::string>& requested, bool needs_gpu) const;

 private:
  mutable std::shared_ptr<Context> context_;
  mutable std::shared_ptr<Context> arch_context_;  // of archs(), which runs nothing on the device and so says nothing
  mutable bool has_said_arch_ = false;             // whether talk() has named the assumed arch already
};

// A spec on a device, ready to launch.
struct Ready {
  Problem problem;
  std::shared_ptr<Program> program;
};
Result<Ready> make_ready(const Spec& spec, const Registry& registry, const std::shared_ptr<Context>& context);

// What a report says of the text besides the device's name, for JSON: its arch, and the arch on which it runs as PTX.
Json text_json(const DeviceInfo& device, const std::string& text_arch);
// The device of a report over several specs: its name, and the text that runs on it if an arch was asked for.
std::string shown_device(const Context& context);

// The value of a flag --rotation: "wht_signed:128" is a rotation and the channels of one group. "none:128" has no
// rotation and names only the group.
struct RotationFlag {
  Rotation rotation;
  int group = 0;  // channels
};
Result<RotationFlag> rotation_flag(const Registry& registry, const std::string& text);

Json to_json(const Error& error);

// The parser of the whole command line. Its verbs set cli.action.
std::shared_ptr<CLI::App> make_app(Cli& cli);
// Chooses cli.action and sets the flags of `cli` by the words after "kvjit"; it runs nothing. A mistake is an error
// with the code `usage`.
Result<void> parse_command_line(const std::vector<std::string>& args, Cli& cli);

void add_spec_verbs(CLI::App& app, Cli& cli);    // check, emit, explain
void add_build_verbs(CLI::App& app, Cli& cli);   // build, warm
void add_run_verb(CLI::App& app, Cli& cli);      // run
void add_verify_verb(CLI::App& app, Cli& cli);   // verify
void add_bench_verb(CLI::App& app, Cli& cli);    // bench
void add_pack_verb(CLI::App& app, Cli& cli);     // pack
void add_codec_verbs(CLI::App& app, Cli& cli);   // quantize, dequantize, requantize
void add_formats_verb(CLI::App& app, Cli& cli);  // formats
void add_schema_verb(CLI::App& app, Cli& cli);   // schema
void add_quality_verb(CLI::App& app, Cli& cli);  // quality
void add_weights_verb(CLI::App& app, Cli& cli);  // rotate-weights
// explain --key: prints each kernel's key, the place where the kernel would be found, and for a miss how the key
// differs from that of the nearest entry on disk.
Result<int> explain_keys(const Cli& cli, const std::vector<ProgramSource>& programs);

void add_cache_verbs(CLI::App& app, Cli& cli);  // cache stats, list, inspect, verify, gc, clear
void add_doctor_verb(CLI::App& app, Cli& cli);  // doctor

struct RuntimeBench {
  std::string spec;   // the spec file
  std::string probe;  // set in the second process only: "disk" or "bundle", where its kernel must come from
};
Result<int> bench_runtime(const Cli& cli, const RuntimeBench& args);  // bench --runtime

}  // namespace kvjit
