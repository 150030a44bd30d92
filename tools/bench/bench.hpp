// The results of `kvjit bench` as text, JSON and charts, computed from measured times. pool_bytes and copies_for give
// the size of the pool of caches with which no call finds its cache in the L2. Nothing here needs a device.
// SPDX-License-Identifier: MIT
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/probe.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

// A kernel that was launched, and its resources.
struct LaunchedKernel {
  std::string role;
  std::string name;
  int threads = 0;       // threads of a block
  int registers = 0;     // registers of a thread
  int spill_bytes = 0;   // spill stores and loads of a thread, bytes
  int shared_bytes = 0;  // shared memory of a block, bytes
};
// The kernels of a call in launch order. Fails with Code::internal if the report names a kernel that the program does
// not have.
Result<std::vector<LaunchedKernel>> launched_kernels(const Program& program, const LaunchReport& report);

// Floating-point operations of Q K^T and P V of a call, two a multiply-add: of the pairs of a query and a token that it
// sees by `causal` and `window`. Channels count as the caller has them, without padding.
double attention_flop(const Problem& problem, const CacheShape& shape);
// The same for sequences with so many queries each.
double attention_flop(const Problem& problem, const CacheShape& shape, const std::vector<int>& query_counts);

// Bytes of the caches over which timed calls alternate, so that none is found in the L2: 400 MB, or four times the L2
// if that is more.
double pool_bytes(const DeviceInfo& info);
// The number of caches of cache_bytes bytes in such a pool.
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
  double cache_bytes = 0;       // bytes that a call has to read
  double flop = 0;              // floating-point operations of the products of a call: attention_flop()
  Backend::Timing timing;       // time of a call
  ProbeTiming probe;            // time of reading as many bytes
  double peak_gb_per_s = 0;     // peak bandwidth of the device's memory; 0: unknown
  double clock_mhz = 0;         // of the multiprocessors right behind calls by prefill; 0: not measured
  double peak_tflop_per_s = 0;  // of the tensor cores at that clock, for fp16; 0: unknown
  int blocks = 0;               // blocks of the decode launch
  std::vector<LaunchedKernel> kernels;

  // Whether arithmetic binds the call, not memory: prefill attends, and rates are TFLOP/s.
  bool is_prefill() const;
  double tflop_per_s() const { return flop / timing.median_us / 1e6; }
  double of_tensor_peak() const { return peak_tflop_per_s > 0 ? tflop_per_s() / peak_tflop_per_s : 0; }
  double gb_per_s() const { return cache_bytes / timing.median_us / 1e3; }
  double probe_gb_per_s() const { return cache_bytes / probe.timing.median_us / 1e3; }
  double of_probe() const { return probe.timing.median_us / timing.median_us; }
  double of_peak() const { return peak_gb_per_s > 0 ? gb_per_s() / peak_gb_per_s : 0; }
};

nlohmann::ordered_json to_json(const BenchRow& row);
nlohmann::ordered_json to_json(const DeviceInfo& info);
// The lines above a table: the device with its peak, and how the rows were measured.
std::string bench_heading(const DeviceInfo& info, int kv_heads);
std::string bench_text(const std::vector<BenchRow>& rows);
// An HTML page with the table and charts: GB/s over bytes of cache, with the probe as the roof; TFLOP/s over tokens, if
// prefill attended; time over tokens.
std::string bench_page(const DeviceInfo& info, int kv_heads, const std::vector<BenchRow>& rows);

}  // namespace kvjit
