// What features cost in registers: the bytes that decode and prefill spill with each feature, with each pair, and with
// all of them, through NVRTC. By default the worst combinations are compiled and held to a bound; KVJIT_FULL=1 compiles
// all and prints the table of tests/figures/runtime.md. Needs no GPU.
// SPDX-License-Identifier: MIT
#include <fmt/ranges.h>

#include <map>

#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

struct Feature {
  const char *name, *keys;  // its name in the table; lines of [attention]
  bool is_listed;           // whether the name stands in `features`
};
constexpr Feature kFeatures[] = {{"softcap", "softcap = 50.0\n", false},
                                 {"alibi", "", true},
                                 {"window", "window = [1000, -1]\n", false},
                                 {"mask", "", true},
                                 {"packed_mask", "", true},
                                 {"position_offset", "", true},
                                 {"token_ranges", "", true},
                                 {"sinks", "", true},
                                 {"lse", "", true},
                                 {"hook", "hook = \"log_distance\"\n", false}};
using Combination = std::vector<const Feature*>;

std::string name_of(const Combination& features) {
  std::vector<std::string> names;
  for (const Feature* feature : features) names.push_back(feature->name);
  return names.empty() ? "causal" : fmt::format("{}", fmt::join(names, ", "));
}

// The columns of the table. All are causal, with 4 query heads a KV head and heads of 128 dimensions.
struct Kind {
  const char* name;
  const char *format, *arch;
  int queries;
  Role role;
  bool is_second_pass;
};
constexpr Kind kKinds[] = {{"prefill f16", "f16", "sm_90a", 512, Role::prefill, false},
                           {"prefill q8_0", "q8_0", "sm_90a", 512, Role::prefill, false},
                           {"prefill kv4", "kv4", "sm_90a", 512, Role::prefill, false},
                           {"second pass", "kv4", "sm_90a", 2048, Role::prefill, true},
                           {"mma.sync, sm_80", "f16", "sm_80", 2048, Role::prefill, false},
                           {"decode 4 rows", "kv4", "sm_90a", 1, Role::decode, false},
                           {"16 rows", "kv4", "sm_90a", 4, Role::decode, false},
                           {"64 rows", "kv4", "sm_90a", 16, Role::decode, false},
                           {"4 rows, sm_80", "kv4", "sm_80", 1, Role::decode, false},
                           {"64 rows, sm_80", "kv4", "sm_80", 16, Role::decode, false}};

// The kernel of a kind with these features; nothing if they contradict each other.
std::optional<Source> kernel_of(const Kind& kind, const Combination& features) {
  std::string keys;
  std::vector<std::string> listed = {"\"causal\""};
  for (const Feature* feature : features) {
    keys += feature->keys;
    if (feature->is_listed) listed.push_back(fmt::format("\"{}\"", feature->name));
  }
  const std::string toml = fmt::format(
      "k = {{ format = \"{0}\" }}\nv = {{ format = \"{0}\" }}\n[attention]\nq_heads_per_kv = 4\nquery_length = {1}\n"
      "features = [{2}]\n{3}",
      kind.format, kind.queries, fmt::join(listed, ", "), keys);
  const auto problem = resolve(must(parse_specs(toml, toml)).front(), registry(), kind.arch);
  if (!problem) return std::nullopt;
  const ProgramSource program = must(make_program(*problem, registry()));
  const ProgramSource* const second = kind.is_second_pass ? second_pass_of(program) : &program;
  return second->kernels.at(kind.role);
}

Combination combination(std::initializer_list<const char*> names) {
  Combination features;
  for (const char* name : names)
    for (const Feature& feature : kFeatures)
      if (std::string(feature.name) == name) features.push_back(&feature);
  REQUIRE(features.size() == names.size());
  return features;
}

// What the assembler reported of a kernel.
struct Spills {
  int stores = 0, loads = 0, stack = 0;  // bytes
  std::string cell() const { return stores + loads + stack == 0 ? "0" : fmt::format("{}/{}", stores, loads); }
};

// Compiles kernels of combinations; spills[combination][kind]. Contradictions are missing.
std::map<std::string, std::map<std::string, Spills>> compile_all(const std::vector<Combination>& combinations) {
  struct Job {
    std::string combination, kind;
    Source source;
    Result<Artefact> artefact = Artefact{};
  };
  std::vector<Job> jobs;
  for (const Combination& features : combinations)
    for (const Kind& kind : kKinds)
      if (auto source = kernel_of(kind, features)) jobs.push_back({name_of(features), kind.name, *std::move(source)});
  const auto compiler = nvrtc();
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < jobs.size();) jobs[i].artefact = compiler->compile(jobs[i].source);
  };
  std::vector<std::thread> workers;
  for (unsigned i = 1; i < kThreads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  std::map<std::string, std::map<std::string, Spills>> spills;
  for (const Job& job : jobs) {
    const Artefact artefact = must(job.artefact);
    spills[job.combination][job.kind] = {artefact.spill_store_bytes, artefact.spill_load_bytes, artefact.stack_bytes};
  }
  return spills;
}

// Bounds are what NVRTC 13.0 spills, in bytes; --no-skip prints the table of all combinations. A kernel of decode with
// up to 16 rows spills nothing with any of them.
TEST_CASE("features that spill most stay below their bounds") {
  const std::map<std::string, int> most = {
      {"prefill f16", 0}, {"prefill q8_0", 60}, {"prefill kv4", 184}, {"second pass", 144}, {"mma.sync, sm_80", 0}};
  for (const auto& [combination, kinds] : compile_all({combination({"softcap", "sinks", "lse"})}))
    for (const auto& [kind, spills] : kinds) {
      INFO(combination, ", ", kind, ": ", spills.cell());
      const auto bound = most.find(kind);
      CHECK(std::max(spills.stores, spills.loads) <= (bound == most.end() ? 0 : bound->second));
    }
}

TEST_CASE("spills of every feature, of every pair, and of all together: a table" *
          doctest::skip(std::getenv("KVJIT_FULL") == nullptr)) {
  std::vector<Combination> combinations = {{}};
  for (const Feature& feature : kFeatures) combinations.push_back({&feature});
  const std::size_t n_single = combinations.size();
  for (const Feature& one : kFeatures)
    for (const Feature& other : kFeatures)
      if (&one < &other) combinations.push_back({&one, &other});
  const std::size_t n_pairs = combinations.size();
  combinations.push_back(combination({"softcap", "sinks", "lse"}));
  Combination all;
  for (const Feature& feature : kFeatures) all.push_back(&feature);
  combinations.push_back(all);
  const auto spills = compile_all(combinations);

  // Rows: single features, of each kind the pair that spills most, more than two.
  std::vector<std::string> rows;
  const auto add = [&](const Combination& features) {
    if (const std::string name = name_of(features); std::find(rows.begin(), rows.end(), name) == rows.end())
      rows.push_back(name);
  };
  for (std::size_t i = 0; i < n_single; ++i) add(combinations[i]);
  std::string header, line;
  for (const Kind& kind : kKinds) {
    std::size_t worst = n_single;
    const auto bytes = [&](std::size_t i) {
      const auto& kinds = spills.at(name_of(combinations[i]));
      const auto at = kinds.find(kind.name);
      return at == kinds.end() ? -1 : at->second.stores + at->second.loads;
    };
    for (std::size_t i = n_single; i < n_pairs; ++i)
      if (spills.count(name_of(combinations[i])) && bytes(i) > bytes(worst)) worst = i;
    add(combinations[worst]);
    header += fmt::format(" {} |", kind.name), line += "---|";
  }
  for (std::size_t i = n_pairs; i < combinations.size(); ++i) add(combinations[i]);
  fmt::print("{}\n| causal and |{}\n|---|{}\n", nvrtc()->identity(), header, line);
  for (const std::string& row : rows) {
    fmt::print("| {} |", row);
    for (const Kind& kind : kKinds) {
      const auto kinds = spills.find(row);
      const bool is_there = kinds != spills.end() && kinds->second.count(kind.name) > 0;
      fmt::print(" {} |", is_there ? kinds->second.at(kind.name).cell() : "");
    }
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace kvjit::test
