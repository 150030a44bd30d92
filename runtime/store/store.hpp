// Store: finds a compiled kernel for a Source. It searches bundles, the folder on disk, the engine's callbacks and a
// server, in this order, and checks each entry that it gets. If none has the kernel, the store compiles it: once for
// each key, however many threads and processes request it. It needs no device.
// SPDX-License-Identifier: MIT
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/base/options.hpp"
#include "runtime/compile/compiler.hpp"
#include "runtime/store/disk_cache.hpp"
#include "runtime/store/entry_source.hpp"

namespace kvjit {

// How sources are compiled, and which of the compiler's properties belong in the key.
struct Toolchain {
  ArtefactKind kind = ArtefactKind::cubin;
  std::function<Result<std::shared_ptr<Compiler>>()>
      open;  // opens the compiler, on the first miss; not called again after success
  // The compiler's options, without opening it. They are part of the request key, by which bundles are searched.
  std::function<std::vector<std::string>(const Source&)> options;
  // Whether keys hold the compiler's identity, for all layers but bundles. If so, the compiler is opened before those
  // layers are searched. True for host objects, which link against the compiler's libraries.
  bool is_identity_in_key = false;
  bool reads_ptx = false;  // whether a bundle's PTX serves a source for which no bundle has machine code
};
Toolchain nvrtc_toolchain(const Options& options, ArtefactKind kind = ArtefactKind::cubin);
Toolchain host_toolchain(const Options& options);

struct CacheCounters {
  std::uint64_t memory_hits = 0,  // kernels that this process had loaded
      disk_hits = 0,              // kernels from the cache folder
      bundle_hits = 0,            // kernels from bundles
      callback_hits = 0,          // kernels from the engine's callbacks
      remote_hits = 0,            // kernels from the server
      misses = 0,                 // kernels that no store had
      compiles = 0,               // compiles that succeeded
      rebuilt = 0,                // stored entries that were damaged or of no use
      lock_waits = 0,             // waits for another process
      write_failures = 0;         // entries that could not be written
};

class Store {
 public:
  // Fails with integrity if trusted keys are given and none of them has signed a bundle.
  static Result<std::unique_ptr<Store>> open(const Options& options, Toolchain toolchain);

  struct Hit {
    Key key;
    Origin origin = Origin::compiled;
    CacheEntry entry;
  };
  // Calls `use` with the entry. If `use` fails on a stored entry (which may be for another driver), that is a miss: the
  // next layer is searched, and in the end the kernel is compiled and replaces the entry. request: request_key(source).
  using Use = std::function<Result<void>(const Hit&)>;
  Result<void> get(const Source& source, const Key& request, const Use& use, std::stop_token stop = {});
  Result<void> get(const Source& source, const Use& use, std::stop_token stop = {}) {
    return get(source, request_key(source), use, std::move(stop));
  }

  Result<Key> key(const Source& source) { return key(source, request_key(source)); }  // key in all layers but bundles
  Key request_key(const Source& source) const;                                        // key in bundles
  void seal() { is_sealed_ = true; }  // a compile is an error from now on
  bool is_sealed() const { return is_sealed_; }
  CacheCounters counters() const;  // all but memory_hits
  const std::string& folder() const { return cache_.folder(); }
  const std::vector<std::unique_ptr<Layer>>& bundles() const { return bundles_; }
  bool is_on_disk(const Key& key) const { return cache_.has(key.hex); }
  // The keys under which a kernel is searched, for has().
  struct Places {
    std::vector<Key> bundled;
    Key stored;
  };
  Result<Places> places(const Source& source);
  // Whether a bundle or the folder has an entry. Engines' callbacks and servers are not asked.
  bool has(const Places& places) const;
  // Kernels of a marked list (runtime/jit/warm.hpp), by its digest; 0 if it is not marked or an entry of it is gone.
  int complete_kernels(const std::string& list) const { return cache_.complete_kernels(list); }
  void mark_complete(const std::string& list, const std::vector<std::string>& keys) {
    cache_.mark_complete(list, keys);
  }

 private:
  Store(const Options& options, Toolchain toolchain);
  bool from_bundles(const Source& source, const Key& request, const Use& use);
  std::vector<Key> bundle_keys(const Source& source, const Key& request) const;
  Result<Key> key(const Source& source, const Key& request);
  bool from_layer(Layer& layer, const Key& key, const Use& use, std::vector<std::string>& complaints,
                  CacheEntry* copy = nullptr);
  bool from_disk(const Key& key, const Use& use);
  bool is_used(const Hit& hit, const Use& use, std::vector<std::string>& complaints);
  Result<void> make(const Source& source, const Key& key, const Use& use, std::stop_token stop);
  Result<std::shared_ptr<Compiler>> compiler();
  void say(const std::string& line) const;

  Options options_;
  Toolchain toolchain_;
  Cache cache_;
  std::vector<std::unique_ptr<Layer>> bundles_, later_layers_;
  std::mutex mutex_;
  std::shared_ptr<Compiler> compiler_;
  std::atomic<bool> is_sealed_{false};
  std::atomic<std::uint64_t> hits_[6] = {}, misses_{0}, compiles_{0}, rebuilt_{0};
};

}  // namespace kvjit
