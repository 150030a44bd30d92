// Counts of attention nodes: served by which program, left to ggml and why. Printed when the process ends, if
// KVJIT_GGML_STATS=1.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <mutex>
#include <string>

namespace kvjit::plugin {

class Stats {
 public:
  void served(const std::string& program) { count(served_, program); }
  void left(const std::string& reason) { count(left_, reason); }
  void print();

 private:
  void count(std::map<std::string, long long>& counts, const std::string& what);
  std::mutex mutex_;
  std::map<std::string, long long> served_, left_;  // nodes by program, and by reason
};
Stats& stats();

}  // namespace kvjit::plugin
