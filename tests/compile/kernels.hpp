// Shared by the compile tests: compiles kernels through NVRTC on several threads and checks that nothing spills and
// nothing is on the stack. Half of the kernels of a test are compiled, by a number that their text gives, so that a
// changed kernel takes its turn; KVJIT_FULL=1 compiles all. Without NVRTC the test is skipped and says why.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "generator/program.hpp"
#include "runtime/compile/compiler.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/skip.hpp"

namespace kvjit::test {

constexpr unsigned kThreads = 2;

inline std::shared_ptr<Compiler> nvrtc() {
  static const auto opened = open_nvrtc(Options::from_environment());
  if (!opened) skip("no NVRTC to compile with: " + opened.error().message);
  return *opened;
}

// Returns whether NVRTC lists the arch. An older NVRTC does not know every arch; `kvjit build` refuses such an arch by
// name.
inline bool is_known(const std::string& arch, const Compiler& compiler) {
  const auto known = compiler.archs();
  const std::string base = arch.substr(0, arch.find_last_not_of("af") + 1);
  if (std::find(known.begin(), known.end(), base) != known.end()) return true;
  std::printf("not compiled: %s is unknown to %s\n", arch.c_str(), compiler.identity().c_str());
  return false;
}
inline bool is_known(const std::string& arch) { return is_known(arch, *nvrtc()); }

// A set of kernels with different texts, compiled together.
class Kernels {
 public:
  void add(const Source& source) {
    static const bool is_complete = std::getenv("KVJIT_FULL") != nullptr;
    add(source, is_complete);
  }
  // is_certain: whether it is compiled without taking its turn.
  void add(const Source& source, bool is_certain) {
    const std::string text = source.text.str();
    if (!texts_.insert(text).second) return;
    if (is_certain || jobs_.empty() || std::hash<std::string>{}(text) / 8 % 2 == 0) jobs_.push_back(source);
  }
  std::size_t size() const { return jobs_.size(); }

  // most_spilled: bytes that the spill instructions in a kernel's text may store and load.
  void compile(unsigned threads, int most_spilled = 0) const { compile(threads, most_spilled, nvrtc()); }
  void compile(unsigned threads, int most_spilled, const std::shared_ptr<Compiler>& compiler) const {
    using Clock = std::chrono::steady_clock;
    struct Outcome {
      std::string failure;
      int registers = 0;
      double seconds = 0;
    };
    std::vector<Outcome> outcomes(jobs_.size());
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i; (i = next++) < jobs_.size();) {
        const auto began = Clock::now();
        const auto artefact = compiler->compile(jobs_[i]);
        outcomes[i].seconds = std::chrono::duration<double>(Clock::now() - began).count();
        if (!artefact) {
          outcomes[i].failure = render(artefact.error());
          continue;
        }
        outcomes[i].registers = artefact->registers;
        if (artefact->spill_store_bytes > most_spilled || artefact->spill_load_bytes > most_spilled ||
            (most_spilled == 0 && artefact->stack_bytes > 0))
          outcomes[i].failure =
              fmt::format("{}: stack {}, spills {} + {} bytes, {} registers", jobs_[i].name, artefact->stack_bytes,
                          artefact->spill_store_bytes, artefact->spill_load_bytes, artefact->registers);
      }
    };
    const auto began = Clock::now();
    std::vector<std::thread> workers;
    for (unsigned i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
    for (std::thread& worker : workers) worker.join();
    const double total = std::chrono::duration<double>(Clock::now() - began).count();
    std::size_t slowest = 0, largest = 0;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      CHECK_MESSAGE(outcomes[i].failure.empty(), outcomes[i].failure);
      if (outcomes[i].seconds > outcomes[slowest].seconds) slowest = i;
      if (outcomes[i].registers > outcomes[largest].registers) largest = i;
    }
    REQUIRE(!jobs_.empty());
    fmt::print("compiled {} kernels in {:.0f} s on {} threads; slowest {:.1f} s: {}; most registers {}: {}\n",
               jobs_.size(), total, threads, outcomes[slowest].seconds, jobs_[slowest].name,
               outcomes[largest].registers, jobs_[largest].name);
  }

 private:
  std::vector<Source> jobs_;
  std::set<std::string> texts_;
};

}  // namespace kvjit::test
