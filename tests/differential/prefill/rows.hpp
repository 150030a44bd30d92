// Shared by the tests of prefill: calls that ask for prefill, judged by the oracle.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "tests/differential/harness.hpp"
#include "tests/support/every_format.hpp"

namespace kvjit::test {

inline KernelHarness::Call prefill_call(const std::vector<int>& lengths, int blocks) {
  KernelHarness::Call call{0, lengths, blocks, false};
  call.many_rows = ManyRows::prefill;
  return call;
}

// Compiles the kernels that prefill alone needs on two threads, in batches that fit in memory, and checks each case
// over sequences of these lengths in each of these numbers of blocks (0: chosen). Of six cases and more every third
// one runs (every_nth).
inline void check_prefill(const std::vector<Case>& all, const std::vector<int>& lengths, const std::vector<int>& blocks,
                          const std::string& arch = "sm_90a") {
  const std::vector<Case> cases = all.size() < 6 ? all : every_nth(all, 3);
  constexpr std::size_t kBatch = 16;
  constexpr unsigned kThreads = 2;
  for (std::size_t first = 0; first < cases.size(); first += kBatch) {
    const auto context = open_context(DeviceKind::cpu);
    std::vector<Planned> batch;
    for (std::size_t i = first; i < std::min(first + kBatch, cases.size()); ++i) {
      batch.push_back(planned(registry(), cases[i], arch));
      for (const Role role : {Role::merge, Role::decode}) batch.back().source.kernels.erase(role);
    }
    warm_up(context, batch, kThreads);
    for (const Planned& one : batch) {
      REQUIRE_MESSAGE(one.source.kernels.count(Role::prefill) == 1, one.test.name());
      for (const PagePlaces places : {PagePlaces::own, PagePlaces::other}) {
        if (places != PagePlaces::own && one.test.page_tokens == 0) continue;
        Judge judge(context, one, int(lengths.size()), *std::max_element(lengths.begin(), lengths.end()), places);
        for (const int count : blocks) judge.check(prefill_call(lengths, count));
      }
    }
  }
}

}  // namespace kvjit::test
