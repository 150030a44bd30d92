// Counts attention nodes: see stats.hpp.
// SPDX-License-Identifier: MIT
#include "stats.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "settings.hpp"

namespace kvjit::plugin {

void Stats::count(std::map<std::string, long long>& counts, const std::string& what) {
  if (!settings().prints_stats) return;
  const std::lock_guard guard(mutex_);
  ++counts[what];
}

void Stats::print() {
  const std::lock_guard guard(mutex_);
  long long served = 0, left = 0;
  for (const auto& [program, count] : served_) served += count;
  for (const auto& [reason, count] : left_) left += count;
  say(fmt::format("{} attention nodes served, {} left to ggml", served, left));
  for (const auto& [program, count] : served_) say(fmt::format("  served {:>8}  {}", count, program));
  for (const auto& [reason, count] : left_) say(fmt::format("  left   {:>8}  {}", count, reason));
}

Stats& stats() {
  static auto& stats = *new Stats;  // never destroyed: ggml's threads may outlive the statics
  static const bool is_printed_at_exit = [] {
    if (settings().prints_stats) std::atexit([] { plugin::stats().print(); });
    return true;
  }();
  (void)is_printed_at_exit;
  return stats;
}

}  // namespace kvjit::plugin
