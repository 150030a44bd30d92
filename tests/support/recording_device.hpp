// A device that runs nothing. Its memory is host memory, it records launches, and it returns the times that the test
// sets. Tests of code that launches and times kernels use it.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/jit/context.hpp"

namespace kvjit::test {

struct RecordedKernel : Kernel {
  Source source;
  explicit RecordedKernel(const Source& s) : source(s) {}
};

struct RecordedLaunch {
  std::string entry;
  Grid grid;
  std::vector<std::uint8_t> args;
  template <class Args>
  Args as() const {
    Args value;
    std::memcpy(&value, args.data(), sizeof value);
    return value;
  }
};

struct RecordingDevice : Backend {
  DeviceInfo device;
  std::vector<RecordedLaunch> launches;
  std::vector<double> medians;  // ms, returned by the next timings in order; afterwards 1

  const DeviceInfo& info() const override { return device; }
  Result<DevicePointer> allocate(std::size_t bytes) override {
    return reinterpret_cast<DevicePointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  void release(DevicePointer pointer) override { std::free(reinterpret_cast<void*>(pointer)); }
  Result<void> copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return {};
  }
  Result<void> copy_to_host(void* to, DevicePointer from, std::size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return {};
  }
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes, Stream) override {
    return copy_to_device(to, reinterpret_cast<const void*>(from), bytes);
  }
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes) override {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return {};
  }
  Result<void> synchronize(Stream) override { return {}; }
  Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact&) override {
    return std::make_shared<RecordedKernel>(source);
  }
  Result<void> launch(const Kernel& kernel, Grid grid, const void* args, Stream) override {
    const Source& source = dynamic_cast<const RecordedKernel&>(kernel).source;
    const auto* bytes = static_cast<const std::uint8_t*>(args);
    launches.push_back({source.entry, grid, {bytes, bytes + source.args_bytes}});
    return {};
  }
  // Calls `work` once for each buffer set.
  Result<Timing> time(const Work& work, int repeats, int buffer_sets) override {
    for (int set = 0; set < buffer_sets; ++set) KV_CHECK(work(nullptr, set));
    double median = 1;
    if (!medians.empty()) median = medians.front(), medians.erase(medians.begin());
    return Timing{median, median, median, repeats, 20};
  }
};

struct RecordingContext : Context {
  std::shared_ptr<RecordingDevice> device = std::make_shared<RecordingDevice>();
  std::shared_ptr<Backend> base = device;
  Options defaults;
  const std::shared_ptr<Backend>& backend() const override { return base; }
  const Options& options() const override { return defaults; }
  Result<KernelRecord> get(const Source& source, std::stop_token) override {
    KernelRecord record;
    record.name = source.name;
    record.registers = source.threads / 4;
    record.kernel = std::make_shared<RecordedKernel>(source);
    return record;
  }
  CacheCounters counters() const override { return {}; }
};

}  // namespace kvjit::test
