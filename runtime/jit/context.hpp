// Context: one device and its kernels. get() is the whole JIT: memory, its own and that of the device's other contexts,
// then what the Store finds or compiles, loaded.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/base/options.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/jit/kernel_record.hpp"
#include "runtime/jit/shared_device.hpp"
#include "runtime/store/store.hpp"

namespace kvjit {

// What a context holds in memory, and what all contexts of its device in this process hold together.
struct ContextMemory {
  LoadedCode own, device;
  std::uint64_t shared_kernels = 0;  // of its own, those that another context had loaded
};

class Context {
 public:
  // Opens the device that options.device asks for (automatic: GPU, else CPU). NVRTC is not opened here.
  static Result<std::shared_ptr<Context>> open(const Options& options);
  virtual ~Context() = default;

  virtual const std::shared_ptr<Backend>& backend() const = 0;
  virtual const Options& options() const = 0;
  virtual Result<KernelRecord> get(const Source& source, std::stop_token stop) = 0;
  Result<KernelRecord> get(const Source& source) { return get(source, {}); }
  virtual CacheCounters counters() const = 0;
  // Null where there is none: contexts of tests.
  virtual Store* store() { return nullptr; }
  virtual ContextMemory memory() const { return {}; }
};

// The Context over given parts; Context::open chooses them. Tests give fakes.
Result<std::shared_ptr<Context>> make_context(const Options& options, std::shared_ptr<SharedDevice> device,
                                              Toolchain toolchain);

}  // namespace kvjit
