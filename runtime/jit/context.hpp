// Context: one device and its kernels. get() is the whole JIT. It takes a kernel from this context's memory, else from
// that of the device's other contexts. Else the Store finds or compiles the kernel, and get() loads it.
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

// Loaded machine code: of a context, and of all contexts of its device in this process.
struct ContextMemory {
  LoadedCode own, device;
  std::uint64_t shared_kernels = 0;  // kernels of this context that another context had loaded before
};

class Context {
 public:
  // Opens the device that options.device asks for; automatic: a GPU, else the CPU back-end. Does not open NVRTC.
  static Result<std::shared_ptr<Context>> open(const Options& options);
  virtual ~Context() = default;

  virtual const std::shared_ptr<Backend>& backend() const = 0;
  virtual const Options& options() const = 0;
  // Fails with cancelled if `stop` is requested, and with sealed if a sealed context would have to compile.
  virtual Result<KernelRecord> get(const Source& source, std::stop_token stop) = 0;
  Result<KernelRecord> get(const Source& source) { return get(source, {}); }
  // KernelPlaces are the names under which a kernel is looked up. A caller keeps them and may drop the kernel's text.
  struct KernelPlaces {
    std::string in_memory;  // SharedDevice::name_of
    Store::Places in_store;
  };
  virtual Result<KernelPlaces> places(const Source&) { return fail(Code::internal, "no store"); }
  // Whether get() would find the kernel without compiling it: in the memory of the device's contexts, in a bundle, or
  // in the folder. Nothing is loaded.
  virtual Presence presence(const KernelPlaces&) { return Presence::absent; }
  virtual CacheCounters counters() const = 0;
  // The store behind this context; null for the fake contexts of tests.
  virtual Store* store() { return nullptr; }
  virtual ContextMemory memory() const { return {}; }
};

// A Context on the device and the toolchain of the caller. Context::open chooses both; tests pass fakes.
Result<std::shared_ptr<Context>> make_context(const Options& options, std::shared_ptr<SharedDevice> device,
                                              Toolchain toolchain);

}  // namespace kvjit
