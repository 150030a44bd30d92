// Bench: what `kvjit bench` says of one call, computed from what was measured. No device is needed for that.
// SPDX-License-Identifier: MIT
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/probe.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

// A kernel that ran, and what it takes of a multiprocessor.
struct LaunchedKernel {
  std::string role, name;
  int threads = 0, registers = 0, spill_bytes = 0;
  int shared_bytes = 0;  // a block
};
// In launch order. Fails with internal if the report names a kernel that the program does not have.
Result<std::vector<LaunchedKernel>> launched_kernels(const Program& program, const LaunchReport& report);

// What calls take turns over, so that no cache is found in the L2: 400 MB, or four times the L2 where that is more; and
// how many caches of these bytes that is.
double pool_bytes(const DeviceFacts& facts);
int copies_for(double cache_bytes, const DeviceFacts& facts);
// Fails with environment, saying what is needed and what there is, if the caches do not fit the device's memory.
Result<void> check_memory(const ProgramSource& source, const CacheShape& shape, const DeviceFacts& facts);

struct BenchRow {
  std::string program, k_format, v_format;
  int head_dim = 0, q_heads_per_kv = 0, query_length = 0;
  bool is_causal = false;
  CacheShape shape;
  double cache_bytes = 0;  // what a call has to read
  Backend::Timing timing;
  ProbeTiming probe;  // over as many bytes
  double peak_gb_per_s = 0;
  int blocks = 0;
  std::vector<LaunchedKernel> kernels;

  double gb_per_s() const { return cache_bytes / timing.median_us / 1e3; }
  double probe_gb_per_s() const { return cache_bytes / probe.timing.median_us / 1e3; }
  double of_probe() const { return probe.timing.median_us / timing.median_us; }
  double of_peak() const { return peak_gb_per_s > 0 ? gb_per_s() / peak_gb_per_s : 0; }
};

nlohmann::ordered_json to_json(const BenchRow& row);
nlohmann::ordered_json to_json(const DeviceFacts& facts);
// "NVIDIA H200, peak 4814 GB/s: ...", and how the rows below it were measured.
std::string bench_heading(const DeviceFacts& facts, int kv_heads);
std::string bench_text(const std::vector<BenchRow>& rows);
// Table and two charts: GB/s over bytes of cache, with the probe as the roof; time over tokens.
std::string bench_page(const DeviceFacts& facts, int kv_heads, const std::vector<BenchRow>& rows);

}  // namespace kvjit
