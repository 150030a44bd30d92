// SharedDevice: one back-end for each device of the process, and the kernels that are loaded on it. Contexts of one device (two
// models, a trunk and its draft head) share both by reference: modules, and the tables and matrices in them, are there once.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "generator/result.hpp"
#include "generator/source.hpp"
#include "runtime/backend.hpp"
#include "runtime/key.hpp"

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
  // A kernel that is in use under this key, or null.
  std::shared_ptr<Kernel> find(const Source& source, const Key& key) const;
  // That kernel, else the artefact loaded.
  Result<std::shared_ptr<Kernel>> load(const Source& source, const Key& key, const Artefact& artefact);
  LoadedCode loaded() const;  // by all contexts of the process

 private:
  struct Entry {
    std::weak_ptr<Kernel> kernel;
    std::uint64_t bytes = 0;
  };
  std::shared_ptr<Backend> backend_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> kernels_;  // by key and facts of the launch
};

}  // namespace kvjit
