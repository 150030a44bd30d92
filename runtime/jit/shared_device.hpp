// SharedDevice: one back-end for each device of the process, and the kernels that are loaded on it. Contexts of one
// device (two models, a trunk and its draft head) share both by reference: a kernel that several ask for is compiled
// and loaded once, and modules, with the tables and matrices in them, are there once.
// SPDX-License-Identifier: MIT
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/jit/kernel_record.hpp"
#include "runtime/store/key.hpp"

namespace kvjit {

// Machine code that is loaded, in bytes as it was compiled.
struct LoadedCode {
  std::uint64_t kernels = 0, bytes = 0;
};

class SharedDevice {
 public:
  explicit SharedDevice(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  // What this process already has open for the same options, else opened now.
  static Result<std::shared_ptr<SharedDevice>> open_gpu(const Options& options);
  static Result<std::shared_ptr<SharedDevice>> open_host(const Options& options);

  const std::shared_ptr<Backend>& backend() const { return backend_; }

  // The kernel of a source that some context uses (origin memory), else what `make` gives. Who asks while another makes
  // it waits for that; unless it may not, as sealed contexts, or is stopped.
  using Make = std::function<Result<KernelRecord>()>;
  Result<KernelRecord> get(const Source& source, const Key& request, bool may_wait, std::stop_token stop,
                           const Make& make);
  LoadedCode loaded() const;  // by all contexts of the process

 private:
  struct Entry {
    KernelRecord facts;  // without the kernel, which belongs to who uses it
    std::weak_ptr<Kernel> kernel;
    bool is_being_made = false;
  };
  KernelRecord keep(const std::string& name, KernelRecord made);

  std::shared_ptr<Backend> backend_;
  mutable std::mutex mutex_;
  std::condition_variable_any made_;
  std::map<std::string, Entry> kernels_;  // by key and facts of the launch
};

}  // namespace kvjit
