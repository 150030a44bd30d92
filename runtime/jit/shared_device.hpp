// SharedDevice: one back-end for each device of the process, and the kernels that are loaded on it. Contexts of one
// device (two models, a trunk and its draft head) share both by reference. So a kernel that several contexts need is
// compiled and loaded once, and the tables and matrices of its module are in memory once.
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

// Loaded machine code: the number of kernels, and their size in bytes as compiled.
struct LoadedCode {
  std::uint64_t kernels = 0, bytes = 0;
};

class SharedDevice {
 public:
  explicit SharedDevice(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
  // The device that this process has open for the same options, else a device that is opened now.
  static Result<std::shared_ptr<SharedDevice>> open_gpu(const Options& options);
  static Result<std::shared_ptr<SharedDevice>> open_host(const Options& options);

  const std::shared_ptr<Backend>& backend() const { return backend_; }

  // Returns a kernel that some context uses (origin memory), else the one that `make` returns. While one thread makes
  // the kernel, other threads wait for it, unless may_wait is false, as for sealed contexts. `stop` ends the wait with
  // the error cancelled.
  using Make = std::function<Result<KernelRecord>()>;
  Result<KernelRecord> get(const Source& source, const Key& request, bool may_wait, std::stop_token stop,
                           const Make& make);
  LoadedCode loaded() const;  // machine code of all contexts of the process

  // The name under which kernels are kept: the request key and the numbers of a launch.
  static std::string name_of(const Source& source, const Key& request);
  Presence presence(const std::string& name) const;

 private:
  struct Entry {
    KernelRecord info;  // without the kernel, which its users own
    std::weak_ptr<Kernel> kernel;
    bool is_being_made = false;
  };
  KernelRecord keep(const std::string& name, KernelRecord record);

  std::shared_ptr<Backend> backend_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Entry> kernels_;  // by name_of
};

}  // namespace kvjit
