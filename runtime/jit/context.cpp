// Context::get() searches this context's memory, then the device's, then the store. Threads that request one source
// wait for one future, so it is built once.
// SPDX-License-Identifier: MIT
#include "runtime/jit/context.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace kvjit {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

auto fields(const Source& s) {
  return std::tie(s.name, s.entry, s.arch, s.threads, s.shared_bytes, s.args_bytes, s.text);
}

// Hashes name, entry and the length of the text. Hashing a text of a hundred KB would cost more than a whole memory hit
// may (1 us), and texts of equal names and lengths hardly ever differ. Equality compares whole texts, unless both are
// copies of one shared text.
struct SourceHash {
  std::size_t operator()(const Source& s) const {
    return std::hash<std::string>{}(s.name) * 31 + std::hash<std::string>{}(s.entry) * 17 + s.text.size();
  }
};
struct SourceEqual {
  bool operator()(const Source& a, const Source& b) const { return fields(a) == fields(b); }
};

class JitContext final : public Context {
 public:
  JitContext(const Options& options, std::shared_ptr<SharedDevice> device, std::unique_ptr<Store> store)
      : options_(options), device_(std::move(device)), store_(std::move(store)) {}

  const std::shared_ptr<Backend>& backend() const override { return device_->backend(); }
  const Options& options() const override { return options_; }
  Store* store() override { return store_.get(); }

  CacheCounters counters() const override {
    CacheCounters c = store_->counters();
    c.memory_hits = memory_hits_;
    return c;
  }

  Result<KernelPlaces> places(const Source& source) override {
    KV_TRY(in_store, store_->places(source));
    return KernelPlaces{SharedDevice::name_of(source, store_->request_key(source)), std::move(in_store)};
  }

  Presence presence(const KernelPlaces& places) override {
    const Presence in_memory = device_->presence(places.in_memory);
    if (in_memory == Presence::here) return in_memory;
    return store_->has(places.in_store) ? Presence::here : in_memory;
  }

  ContextMemory memory() const override { return {{kernels_, bytes_}, device_->loaded(), shared_kernels_}; }

  Result<KernelRecord> get(const Source& source, std::stop_token stop) override {
    const auto begin = Clock::now();
    for (;;) {
      std::promise<Result<KernelRecord>> promise;
      std::shared_future<Result<KernelRecord>> found;
      {
        const std::lock_guard guard(mutex_);
        if (const auto at = ready_.find(source); at != ready_.end())
          found = at->second;
        else
          ready_.emplace(source, promise.get_future().share());
      }
      if (found.valid()) {
        Result<KernelRecord> record = found.get();
        if (!record) {
          // The first thread's failure is not cached. If that thread was cancelled, this one builds the kernel.
          if (record.error().code == Code::cancelled && !stop.stop_requested()) continue;
          return record;
        }
        ++memory_hits_;
        record->origin = Origin::memory;
        record->ready_ms = ms_since(begin);
        return record;
      }
      // Whatever happens, threads that wait for the future get an answer, and a failure is forgotten.
      try {
        Result<KernelRecord> record = build(source, stop);
        if (record)
          record->ready_ms = ms_since(begin);
        else
          forget(source);
        promise.set_value(record);
        return record;
      } catch (...) {
        forget(source);
        promise.set_exception(std::current_exception());
        throw;
      }
    }
  }

 private:
  void forget(const Source& source) {
    const std::lock_guard guard(mutex_);
    ready_.erase(source);
  }

  Result<KernelRecord> build(const Source& source, std::stop_token stop) {
    const Key request = store_->request_key(source);
    bool is_shared = true;
    const auto make = [&] {
      is_shared = false;
      return load(source, request, stop);
    };
    KV_TRY(record, device_->get(source, request, !store_->is_sealed(), stop, make));
    ++kernels_;
    bytes_ += record.code_bytes;
    memory_hits_ += is_shared;
    shared_kernels_ += is_shared;
    return record;
  }

  Result<KernelRecord> load(const Source& source, const Key& request, std::stop_token stop) {
    KernelRecord record;
    record.name = source.name;
    const auto use = [&](const Store::Hit& hit) -> Result<void> {
      const Artefact& artefact = hit.entry.artefact;
      KV_TRY(kernel, device_->backend()->load(source, artefact));
      record.kernel = std::move(kernel);
      record.key = hit.key.hex;
      record.origin = hit.origin;
      record.registers = artefact.registers;
      record.stack_bytes = artefact.stack_bytes;
      record.spill_bytes = artefact.spill_store_bytes + artefact.spill_load_bytes;
      record.compile_ms = artefact.compile_ms;
      record.code_bytes = artefact.bytes.size();
      return {};
    };
    KV_CHECK(store_->get(source, request, use, stop));
    return record;
  }

  Options options_;
  std::shared_ptr<SharedDevice> device_;
  std::unique_ptr<Store> store_;
  std::mutex mutex_;
  std::unordered_map<Source, std::shared_future<Result<KernelRecord>>, SourceHash, SourceEqual> ready_;
  std::atomic<std::uint64_t> memory_hits_{0}, kernels_{0}, bytes_{0}, shared_kernels_{0};
};

Result<std::shared_ptr<Context>> open_gpu(const Options& options) {
  KV_TRY(device, SharedDevice::open_gpu(options));
  const DeviceInfo& info = device->backend()->info();
  if (info.runs_ptx && options.log) options.log(device_text(info, info.arch));
  return make_context(options, device,
                      nvrtc_toolchain(options, info.runs_ptx ? ArtefactKind::ptx : ArtefactKind::cubin));
}

Result<std::shared_ptr<Context>> open_host(const Options& options) {
  KV_TRY(device, SharedDevice::open_host(options));
  return make_context(options, std::move(device), host_toolchain(options));
}

}  // namespace

Result<std::shared_ptr<Context>> make_context(const Options& options, std::shared_ptr<SharedDevice> device,
                                              Toolchain toolchain) {
  KV_TRY(store, Store::open(options, std::move(toolchain)));
  return std::make_shared<JitContext>(options, std::move(device), std::move(store));
}

Result<std::shared_ptr<Context>> Context::open(const Options& options) {
  if (!options.refused.empty())
    return fail(Code::usage, "the environment asks for what does not exist", {}, options.refused);
  if (options.device == DeviceKind::cpu) return open_host(options);
  auto gpu = open_gpu(options);
  if (gpu || options.device == DeviceKind::gpu || options.as_ptx || gpu.error().code != Code::environment) return gpu;
  if (options.log) options.log("no GPU (" + gpu.error().message + "): using the CPU back-end");
  return open_host(options);
}

}  // namespace kvjit
