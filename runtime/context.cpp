// get(): memory, then disk, then compile. Threads share one future a source, processes one lock a key.
// SPDX-License-Identifier: MIT
#include "runtime/context.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "runtime/cache.hpp"
#include "runtime/key.hpp"

namespace kvjit {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

auto fields(const Source& s) {
  return std::tie(s.name, s.entry, s.arch, s.threads, s.shared_bytes, s.args_bytes, s.text);
}

// The text enters the hash by its length only; equality compares it whole. Hashing tens of KB would cost more
// than the whole hit may (1 us), and texts of equal names and lengths hardly ever differ.
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
  JitContext(const Options& options, std::shared_ptr<Backend> backend, Toolchain toolchain)
      : options_(options), backend_(std::move(backend)), toolchain_(std::move(toolchain)), cache_(options) {}

  const std::shared_ptr<Backend>& backend() const override { return backend_; }
  const Options& options() const override { return options_; }

  CacheCounters counters() const override {
    CacheCounters c;
    c.memory_hits = memory_hits_;
    c.disk_hits = disk_hits_;
    c.misses = misses_;
    c.compiles = compiles_;
    c.rebuilt = cache_.rebuilt;
    c.lock_waits = cache_.lock_waits;
    c.write_failures = cache_.write_failures;
    return c;
  }

  Result<KernelRecord> get(const Source& source) override {
    const auto begin = Clock::now();
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
      if (!record) return record;  // the failure of the thread that was first; it is not kept
      ++memory_hits_;
      record->origin = Origin::memory;
      record->ready_ms = ms_since(begin);
      return record;
    }
    Result<KernelRecord> record = build(source);
    if (record) record->ready_ms = ms_since(begin);
    promise.set_value(record);
    if (!record) {
      const std::lock_guard guard(mutex_);
      ready_.erase(source);
    }
    return record;
  }

 private:
  Result<KernelRecord> build(const Source& source) {
    KV_TRY(options, key_options(source));
    const Key key = make_key(source, toolchain_.kind, options);
    if (auto record = from_disk(source, key)) return *record;
    const auto lock = cache_.lock(key, source.name);
    if (auto record = from_disk(source, key)) return *record;  // somebody may have published since

    ++misses_;
    KV_TRY(compiler, this->compiler());
    if (options_.log) options_.log("compiling " + source.name + " ...");
    KV_TRY(artefact, compiler->compile(source));
    ++compiles_;
    CacheEntry entry{source.name, compiler->identity(), std::move(artefact)};
    cache_.publish(key, entry);
    return load(source, key, Origin::compiled, entry.artefact);
  }

  // An entry that is whole but does not load (made for another driver, say) is a miss: it is compiled again and replaced.
  std::optional<KernelRecord> from_disk(const Source& source, const Key& key) {
    const auto entry = cache_.read(key);
    if (!entry) return std::nullopt;
    auto record = load(source, key, Origin::disk, entry->artefact);
    if (record) return *record;
    ++cache_.rebuilt;
    if (options_.log) options_.log("a cached kernel did not load and is compiled again: " + record.error().message);
    return std::nullopt;
  }

  Result<KernelRecord> load(const Source& source, const Key& key, Origin origin, const Artefact& artefact) {
    if (origin == Origin::disk) ++disk_hits_;
    KV_TRY(kernel, backend_->load(source, artefact));
    KernelRecord record;
    record.name = source.name;
    record.key = key.hex;
    record.origin = origin;
    record.registers = artefact.registers;
    record.stack_bytes = artefact.stack_bytes;
    record.spill_bytes = artefact.spill_store_bytes + artefact.spill_load_bytes;
    record.kernel = std::move(kernel);
    return record;
  }

  Result<std::vector<std::string>> key_options(const Source& source) {
    if (toolchain_.options) return toolchain_.options(source);
    KV_TRY(compiler, this->compiler());
    auto list = compiler->options(source);
    list.push_back("compiler " + compiler->identity());
    return list;
  }

  Result<std::shared_ptr<Compiler>> compiler() {
    const std::lock_guard guard(compiler_mutex_);
    if (!compiler_) {
      KV_TRY(opened, toolchain_.open());
      compiler_ = std::move(opened);
    }
    return compiler_;
  }

  Options options_;
  std::shared_ptr<Backend> backend_;
  Toolchain toolchain_;
  Cache cache_;
  std::mutex mutex_, compiler_mutex_;
  std::shared_ptr<Compiler> compiler_;
  std::unordered_map<Source, std::shared_future<Result<KernelRecord>>, SourceHash, SourceEqual> ready_;
  std::atomic<std::uint64_t> memory_hits_{0}, disk_hits_{0}, misses_{0}, compiles_{0};
};

Result<std::shared_ptr<Context>> open_gpu(const Options& options) {
  KV_TRY(backend, open_cuda(options));
  Toolchain nvrtc;
  nvrtc.kind = ArtefactKind::cubin;
  nvrtc.open = [options] { return open_nvrtc(options, ArtefactKind::cubin); };
  nvrtc.options = [](const Source& source) { return nvrtc_options(source, ArtefactKind::cubin); };
  return make_context(options, std::move(backend), std::move(nvrtc));
}

Result<std::shared_ptr<Context>> open_host(const Options& options) {
  KV_TRY(backend, open_cpu(options));
  Toolchain host;
  host.kind = ArtefactKind::host_object;
  host.open = [options] { return open_host_compiler(options); };
  return make_context(options, std::move(backend), std::move(host));
}

}  // namespace

std::shared_ptr<Context> make_context(const Options& options, std::shared_ptr<Backend> backend, Toolchain toolchain) {
  return std::make_shared<JitContext>(options, std::move(backend), std::move(toolchain));
}

Result<std::shared_ptr<Context>> Context::open(const Options& options) {
  if (!options.refused.empty())
    return fail(Code::usage, "the environment asks for what does not exist", {}, options.refused);
  if (options.device == DeviceKind::cpu) return open_host(options);
  auto gpu = open_gpu(options);
  if (gpu || options.device == DeviceKind::gpu || gpu.error().code != Code::environment) return gpu;
  if (options.log) options.log("no GPU (" + gpu.error().message + "): using the CPU back-end");
  return open_host(options);
}

}  // namespace kvjit
