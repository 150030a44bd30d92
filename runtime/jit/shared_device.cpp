// The devices and kernels of this process: see shared_device.hpp. Both are held by weak references, so they live as
// long as somebody uses them.
// SPDX-License-Identifier: MIT
#include "runtime/jit/shared_device.hpp"

#include <fmt/format.h>

#include <functional>
#include <utility>

namespace kvjit {
namespace {

Result<std::shared_ptr<SharedDevice>> open_once(const std::string& name,
                                                const std::function<Result<std::shared_ptr<Backend>>()>& open) {
  // Never destroyed, because a context may outlive the statics of the process.
  static auto& mutex = *new std::mutex;
  static auto& devices = *new std::map<std::string, std::weak_ptr<SharedDevice>>;
  const std::lock_guard guard(mutex);
  std::weak_ptr<SharedDevice>& entry = devices[name];
  if (auto device = entry.lock()) return device;
  KV_TRY(backend, open());
  auto device = std::make_shared<SharedDevice>(std::move(backend));
  entry = device;
  return device;
}

}  // namespace

Result<std::shared_ptr<SharedDevice>> SharedDevice::open_gpu(const Options& options) {
  // Contexts whose kernels are for different archs, or differ in machine code and PTX, share no kernels.
  return open_once(
      fmt::format("gpu {} {} {} {}", options.device_ordinal, options.arch, options.as_ptx, options.cuda_library),
      [&] { return open_cuda(options); });
}

Result<std::shared_ptr<SharedDevice>> SharedDevice::open_host(const Options& options) {
  // Host objects depend on the compiler that made them, unlike cubins. So contexts that name different compilers share
  // no kernels.
  return open_once(
      fmt::format("cpu {} {} {} {}", options.fiber_seed, options.arch, options.as_ptx, options.host_compiler),
      [&] { return open_cpu(options); });
}

Result<KernelRecord> SharedDevice::get(const Source& source, const Key& request, bool may_wait, std::stop_token stop,
                                       const Make& make) {
  const std::string name = name_of(source, request);
  std::unique_lock lock(mutex_);
  const auto is_idle = [&] { return !kernels_[name].is_being_made; };
  if (may_wait && !changed_.wait(lock, stop, is_idle))
    return fail(Code::cancelled, fmt::format("waiting for {} was cancelled", source.name));
  Entry& entry = kernels_[name];
  if (auto kernel = entry.kernel.lock()) {
    KernelRecord record = entry.info;
    record.kernel = std::move(kernel);
    record.origin = Origin::memory;
    return record;
  }
  const bool is_first = !std::exchange(entry.is_being_made, true);
  lock.unlock();
  // Runs even if `make` throws, so that waiting threads try for themselves.
  const auto end = [&](void*) {
    const std::lock_guard guard(mutex_);
    if (is_first) kernels_[name].is_being_made = false;
    std::erase_if(kernels_, [](const auto& one) { return one.second.kernel.expired() && !one.second.is_being_made; });
    changed_.notify_all();
  };
  const std::unique_ptr<void, decltype(end)> ending(this, end);
  KV_TRY(record, make());
  return keep(name, std::move(record));
}

KernelRecord SharedDevice::keep(const std::string& name, KernelRecord record) {
  const std::lock_guard guard(mutex_);
  Entry& entry = kernels_[name];
  if (auto first = entry.kernel.lock()) {  // another context was quicker: its module stays, this one is dropped
    record.kernel = std::move(first);
    return record;
  }
  entry.kernel = record.kernel;
  entry.info = record;
  entry.info.kernel.reset();
  return record;
}

std::string SharedDevice::name_of(const Source& source, const Key& request) {
  return fmt::format("{} {} {} {} {}", request.hex, source.name, source.threads, source.shared_bytes,
                     source.may_overlap);
}

Presence SharedDevice::presence(const std::string& name) const {
  const std::lock_guard guard(mutex_);
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) return Presence::absent;
  if (!found->second.kernel.expired()) return Presence::here;
  return found->second.is_being_made ? Presence::being_made : Presence::absent;
}

LoadedCode SharedDevice::loaded() const {
  const std::lock_guard guard(mutex_);
  LoadedCode all;
  for (const auto& [name, entry] : kernels_)
    if (!entry.kernel.expired()) ++all.kernels, all.bytes += entry.info.code_bytes;
  return all;
}

}  // namespace kvjit
