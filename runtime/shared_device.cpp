// Devices and kernels of this process, held by who uses them and no longer.
// SPDX-License-Identifier: MIT
#include "runtime/shared_device.hpp"

#include <fmt/format.h>

#include <functional>

namespace kvjit {
namespace {

std::string name_of(const Source& source, const Key& key) {
  return fmt::format("{} {} {} {} {}", key.hex, source.name, source.threads, source.shared_bytes, source.may_overlap);
}

Result<std::shared_ptr<SharedDevice>> open_once(const std::string& name,
                                                const std::function<Result<std::shared_ptr<Backend>>()>& open) {
  // Never destroyed: a context may outlive the statics of the process.
  static auto& mutex = *new std::mutex;
  static auto& devices = *new std::map<std::string, std::weak_ptr<SharedDevice>>;
  const std::lock_guard guard(mutex);
  std::weak_ptr<SharedDevice>& known = devices[name];
  if (auto device = known.lock()) return device;
  KV_TRY(backend, open());
  auto device = std::make_shared<SharedDevice>(std::move(backend));
  known = device;
  return device;
}

}  // namespace

Result<std::shared_ptr<SharedDevice>> SharedDevice::open_gpu(const Options& options) {
  return open_once(fmt::format("gpu {} {}", options.device_ordinal, options.cuda_library),
                   [&] { return open_cuda(options); });
}

Result<std::shared_ptr<SharedDevice>> SharedDevice::open_host(const Options& options) {
  return open_once(fmt::format("cpu {}", options.fiber_seed), [&] { return open_cpu(options); });
}

std::shared_ptr<Kernel> SharedDevice::find(const Source& source, const Key& key) const {
  const std::lock_guard guard(mutex_);
  const auto known = kernels_.find(name_of(source, key));
  return known == kernels_.end() ? nullptr : known->second.kernel.lock();
}

Result<std::shared_ptr<Kernel>> SharedDevice::load(const Source& source, const Key& key, const Artefact& artefact) {
  if (auto known = find(source, key)) return known;
  KV_TRY(kernel, backend_->load(source, artefact));
  const std::lock_guard guard(mutex_);
  std::erase_if(kernels_, [](const auto& entry) { return entry.second.kernel.expired(); });
  Entry& entry = kernels_[name_of(source, key)];
  if (auto first = entry.kernel.lock()) return first;  // another context was quicker: this one's module goes
  entry = {kernel, artefact.bytes.size()};
  return kernel;
}

LoadedCode SharedDevice::loaded() const {
  const std::lock_guard guard(mutex_);
  LoadedCode all;
  for (const auto& [name, entry] : kernels_)
    if (!entry.kernel.expired()) ++all.kernels, all.bytes += entry.bytes;
  return all;
}

}  // namespace kvjit
