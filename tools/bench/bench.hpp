// The results of `kvjit bench` as text, JSON and charts, computed from measured times; and how large the pool of caches
// must be so that no call finds its cache in the L2. Nothing here needs a device.
// SPDX-License-Identifier: MIT
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/probe.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

// A kernel that ran, and the resources that it takes.
struct LaunchedKernel {
  std::string role;
  std::string name;
  int threads = 0;       // of a block
  int registers = 0;     // of a thread
  int spill_bytes = 0;   // of a thread: stores and loads
  int shared_bytes = 0;  // of a block
};
// The kernels of a call in launch order. Fails with Code::internal if the report names a kernel that the program does
// not have.
Result<std::vector<LaunchedKernel>> launched_kernels(const Program& program, const LaunchReport& report);

// Bytes of the caches that timed calls go through in turn, so that none is found in the L2: 400 MB, or four times the
// L2 if that is more.
double pool_bytes(const DeviceInfo& info);
// How many caches of cache_bytes bytes make such a pool.
int copies_for(double cache_bytes, const DeviceInfo& info);
// Fails with Code::environment, naming both sizes, if the caches do not fit the device's memory.
Result<void> check_memory(const ProgramSource& source, const CacheShape& shape, const DeviceInfo& info);

// The measurement of one program over caches of one shape.
struct BenchRow {
  std::string program;  // its id
  std::string k_format;
  std::string v_format;
  int head_dim = 0;
  int q_heads_per_kv = 0;
  int query_length = 0;
  bool is_causal = false;
  CacheShape shape;
  double cache_bytes = 0;    // bytes that a call has to read
  Backend::Timing timing;    // of a call
  ProbeTiming probe;         // of reading as many bytes
  double peak_gb_per_s = 0;  // of the device's memory; 0: unknown
  int blocks = 0;            // of the decode launch
  std::vector<LaunchedKernel> kernels;

  double gb_per_s() const { return cache_bytes / timing.median_us / 1e3; }
  double probe_gb_per_s() const { return cache_bytes / probe.timing.median_us / 1e3; }
  double of_probe() const { return probe.timing.median_us / timing.median_us; }
  double of_peak() const { return peak_gb_per_s > 0 ? gb_per_s() / peak_gb_per_s : 0; }
};

nlohmann::ordered_json to_json(const BenchRow& row);
nlohmann::ordered_json to_json(const DeviceInfo& info);
// Lines above a table: the device with its peak, and how the rows were measured.
std::string bench_heading(const DeviceInfo& info, int kv_heads);
std::string bench_text(const std::vector<BenchRow>& rows);
// An HTML page with the table and two charts: GB/s over bytes of cache, with the probe as the roof, and time over
// tokens.
std::string bench_page(const DeviceInfo& info, int kv_heads, const std::vector<BenchRow>& rows);

}  // namespace kvjit
