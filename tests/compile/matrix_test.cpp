// Every pair of formats for every architecture through NVRTC: it compiles, nothing spills, nothing is on the
// stack. No GPU.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "generator/program.hpp"
#include "runtime/compiler.hpp"

namespace kvjit {
namespace {

constexpr const char* kArchs[] = {"sm_75",   "sm_80",   "sm_86",   "sm_89",  "sm_90a",
                                  "sm_100a", "sm_103a", "sm_120a", "sm_121a"};
constexpr const char* kFormats = "\"f16\", \"bf16\", \"q8_0\", \"q4_0\", \"tbq4_0\"";
constexpr unsigned kThreads = 2;
constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE

template <class T>
T must(Result<T> result) {
  if (!result) FAIL(render(result.error()));
  return std::move(*result);
}

std::string matrix(const char* layout) {
  return fmt::format(
      "[k]\n[v]\n[cache]\nlayout = \"{}\"\n[matrix]\n\"k.format\" = [{}]\n\"v.format\" = "
      "[{}]\n\"attention.head_dim\" = [64, 128, 256]\n"
      "\"attention.q_heads_per_kv\" = [1, 4, 8]\n",
      layout, kFormats, kFormats);
}

TEST_CASE("25 pairs x head_dim x GQA for every arch: no spills, no stack") {
  const auto nvrtc = open_nvrtc(Options::from_environment());
  if (!nvrtc) {
    std::printf("skipped: no NVRTC to compile with: %s\n", nvrtc.error().message.c_str());
    std::exit(kSkipped);
  }
  const Registry registry = must(Registry::load(embedded_files()));
  const auto specs = must(parse_specs(matrix("planar"), "matrix"));
  const auto known = (*nvrtc)->archs();
  std::vector<Source> jobs;
  std::set<std::string> texts;
  std::size_t combinations = 0;
  for (const char* arch : kArchs) {
    const std::string base = std::string(arch).substr(0, std::string(arch).find_last_not_of("af") + 1);
    if (std::find(known.begin(), known.end(), base) == known.end()) {
      // An older NVRTC: its own list says so, and `kvjit build` refuses the arch by name.
      std::printf("not compiled: %s is unknown to %s\n", arch, (*nvrtc)->identity().c_str());
      continue;
    }
    for (const Spec& spec : specs) {
      // A head of 64 holds no whole block of tbq4_0; resolve() refuses it, and its own test says how.
      if (spec.head_dim == 64 && (spec.k.format == "tbq4_0" || spec.v.format == "tbq4_0")) continue;
      ++combinations;
      const ProgramSource program = must(make_program(must(resolve(spec, registry, arch)), registry));
      for (const auto& [role, source] : program.kernels)
        // The reference kernel loops over the group, so one group stands for all.
        if ((role != Role::reference || spec.q_heads_per_kv == 4) && texts.insert(source.text).second)
          jobs.push_back(source);
    }
  }
  std::vector<std::string> failures(jobs.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < jobs.size();) {
      const auto artefact = (*nvrtc)->compile(jobs[i]);
      if (!artefact)
        failures[i] = render(artefact.error());
      else if (artefact->stack_bytes || artefact->spill_store_bytes || artefact->spill_load_bytes)
        failures[i] =
            fmt::format("{}: stack {}, spills {} + {} bytes, {} registers", jobs[i].name, artefact->stack_bytes,
                        artefact->spill_store_bytes, artefact->spill_load_bytes, artefact->registers);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 1; i < kThreads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  for (const std::string& failure : failures) CHECK_MESSAGE(failure.empty(), failure);
  std::printf("compiled %zu kernels of %zu programs\n", jobs.size(), combinations);
}

}  // namespace
}  // namespace kvjit
