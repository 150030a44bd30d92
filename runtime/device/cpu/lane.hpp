// The state of lanes and warps in the block scheduler. Internal to block_scheduler.cpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <fmt/format.h>

#include <boost/context/fiber.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu.hpp"
#include "runtime/device/cpu/async_copies.hpp"
#include "runtime/device/cpu/fiber_stack.hpp"

namespace kvjit {

// The state of a lane: ready to run, waiting at a collective or barrier, or done.
enum class State { ready, at_warp, at_team, at_block, at_barrier, done };

// A source line of a kernel.
struct Site {
  const char* file = "";
  int line = 0;
  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

inline std::string to_string(const Site& site) { return fmt::format("{}:{}", site.file, site.line); }

struct LaneState {
  kv::cpu::Lane view{};
  Stack stack;
  boost::context::fiber context;
  State state = State::done;
  Site site;
  int team = 0;                    // at_team: warps of the team
  bool vote = false;               // at_team: the lane's vote, then the team's
  void* barrier = nullptr;         // at_barrier: the barrier of bulk copies
  unsigned parity = 0;             // at_barrier: parity of the phase that it waits for
  std::size_t next_agreement = 0;  // warp-uniform conditions that the lane has reported
  CopyQueue copies;
};

inline const char* awaited(State state) {
  return state == State::at_warp      ? "warp"
         : state == State::at_team    ? "team"
         : state == State::at_barrier ? "copies"
                                      : "block";
}

struct WarpState {
  int live = 0, at_warp = 0, at_team = 0;
  std::vector<std::pair<Site, bool>>
      agreements;  // warp-uniform conditions of this block: source line, and the first lane's value

  // Records a lane's value of a warp-uniform condition. Returns the rule that is broken, or an empty text.
  std::string agree(LaneState& lane, bool says, const Site& site) {
    const std::size_t at = lane.next_agreement++;
    if (at == agreements.size()) agreements.emplace_back(site, says);
    const auto& [where, what] = agreements[at];
    if (!(where == site)) return fmt::format("divergent agreement: {} against {}", to_string(where), to_string(site));
    return what == says ? std::string() : fmt::format("{}: lanes of a warp do not agree", to_string(site));
  }
  // Returns the first condition that an ended lane did not report, or an empty text. Only the count of the lane's
  // reports shows that one is missing.
  std::string left_out(const LaneState& lane) const {
    if (lane.next_agreement == agreements.size()) return {};
    return fmt::format("{}: left out", to_string(agreements[lane.next_agreement].first));
  }
};

}  // namespace kvjit
