// Store: Source -> a verified entry, from the first place that has one: bundles, disk, the engine's callbacks, a
// server; else it is compiled, once a key however many threads and processes ask. Needs no device.
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

// How sources are compiled: which compiler, opened when, and what of it belongs in the key.
struct Toolchain {
  ArtefactKind kind = ArtefactKind::cubin;
  std::function<Result<std::shared_ptr<Compiler>>()> open;  // called at most once with success
  // The compiler's options, without opening it. They make the request key, by which bundles are searched.
  std::function<std::vector<std::string>(const Source&)> options;
  // Host objects depend on the compiler's own world, so the key of all but bundles holds its identity: it is opened
  // first.
  bool is_identity_in_key = false;
  bool reads_ptx = false;  // where a bundle has no machine code for a source, its PTX serves
};
Toolchain nvrtc_toolchain(const Options& options, ArtefactKind kind = ArtefactKind::cubin);
Toolchain host_toolchain(const Options& options);

struct CacheCounters {
  std::uint64_t memory_hits = 0, disk_hits = 0, bundle_hits = 0, callback_hits = 0, remote_hits = 0, misses = 0,
                compiles = 0, rebuilt = 0 /* damaged entries */, lock_waits = 0, write_failures = 0;
};

class Store {
 public:
  // Fails with integrity: a bundle that is not signed by a trusted key, where keys are given.
  static Result<std::unique_ptr<Store>> open(const Options& options, Toolchain toolchain);

  struct Found {
    Key key;
    Origin origin = Origin::compiled;
    CacheEntry entry;
  };
  // `use` gets what was found. If it fails on what was stored (made for another driver, say) that counts as a miss: the
  // next place is asked, and in the end it is compiled again and replaced. request: its request_key.
  using Use = std::function<Result<void>(const Found&)>;
  Result<void> get(const Source& source, const Key& request, const Use& use, std::stop_token stop = {});
  Result<void> get(const Source& source, const Use& use, std::stop_token stop = {}) {
    return get(source, request_key(source), use, std::move(stop));
  }

  Result<Key> key(const Source& source) { return key(source, request_key(source)); }  // of all places but bundles
  Key request_key(const Source& source) const;                                        // of bundles
  void seal() { is_sealed_ = true; }  // from now on what would have to be compiled is an error
  bool is_sealed() const { return is_sealed_; }
  CacheCounters counters() const;  // all but memory_hits
  const std::string& folder() const { return cache_.folder(); }
  const std::vector<std::unique_ptr<Layer>>& bundles() const { return bundles_; }
  bool is_on_disk(const Key& key) const { return cache_.has(key.hex); }
  // Lists of kernels (runtime/jit/warm.hpp), by a digest: how many it has, if it was marked and all of them are still
  // there; else 0.
  int complete_kernels(const std::string& list) const { return cache_.complete_kernels(list); }
  void mark_complete(const std::string& list, const std::vector<std::string>& keys) {
    cache_.mark_complete(list, keys);
  }

 private:
  Store(const Options& options, Toolchain toolchain);
  bool from_bundles(const Source& source, const Key& request, const Use& use);
  Result<Key> key(const Source& source, const Key& request);
  bool from_layer(Layer& layer, const Key& key, const Use& use, std::vector<std::string>& complaints,
                  CacheEntry* kept = nullptr);
  bool from_disk(const Key& key, const Use& use);
  bool is_used(const Found& found, const Use& use, std::vector<std::string>& complaints);
  Result<void> make(const Source& source, const Key& key, const Use& use, std::stop_token stop);
  Result<std::shared_ptr<Compiler>> compiler();
  void say(const std::string& line) const;

  Options options_;
  Toolchain toolchain_;
  Cache cache_;
  std::vector<std::unique_ptr<Layer>> bundles_, behind_;
  std::mutex mutex_;
  std::shared_ptr<Compiler> compiler_;
  std::atomic<bool> is_sealed_{false};
  std::atomic<std::uint64_t> hits_[6] = {}, misses_{0}, compiles_{0}, rebuilt_{0};
};

}  // namespace kvjit
