// Cache: artefacts on disk, one file an entry. It never fails: what cannot be read is a miss, what cannot be
// written stays in memory and is said once. Nobody but the user (or root) can have written what is read.
//
//   <base>/v2/<2 hex>/<64 hex>.kvc   entries; never change after their rename
//   <base>/v2/locks/<64 hex>         one compile a key across processes; removed by its holder
//   <base>/v2/warm/<64 hex>          keys of a list of kernels that was made as a whole
//   <base>/v2/swept                  its modification time: the last sweep
//   <base>/quarantine/               damaged entries, for a person to look at
// SPDX-License-Identifier: MIT
#pragma once
#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/base/options.hpp"
#include "runtime/store/entry.hpp"
#include "runtime/store/key.hpp"

namespace kvjit {

class Cache {
 public:
  // The folder that options ask for; created (0700) if it is missing. Without a usable one: memory only, said
  // once.
  explicit Cache(const Options& options);

  const std::string& folder() const { return base_; }  // "" : memory only
  std::optional<CacheEntry> read(const Key& key);
  void publish(const CacheEntry& entry);

  // Held while a key is compiled. Waits for another holder up to a minute, then gives up: duplicates are
  // harmless.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();
    bool waited() const { return waited_; }  // somebody else may have published in the meantime

   private:
    friend class Cache;
    std::string path_;
    int fd_ = -1;
    bool waited_ = false;
  };
  Lock lock(const Key& key, const std::string& name, std::stop_token stop = {});
  bool has(const std::string& key_hex) const;  // whether a file is there; it is not looked into

  int complete_kernels(const std::string& list) const;
  void mark_complete(const std::string& list, const std::vector<std::string>& key_hexes);

  std::atomic<std::uint64_t> rebuilt{0}, lock_waits{0}, write_failures{0};

 private:
  void warn_once(const std::string& message);
  void sweep_if_due();
  std::string entry_path(const std::string& key_hex) const;
  bool write_file(const std::string& path, std::span<const std::uint8_t> bytes);

  std::string base_;
  std::uint64_t max_bytes_;
  std::function<void(const std::string&)> log_;
  std::once_flag warned_;
};

struct CacheStats {
  std::string folder;  // "": memory only
  std::uint64_t entries = 0, bytes = 0, quarantined = 0;
};
struct CacheListing {
  std::string key, name, compiler;
  ArtefactKind kind = ArtefactKind::cubin;
  std::uint64_t bytes = 0;
  std::time_t last_used = 0;  // to a day
  std::string damage;         // "": the entry is whole
};

// The folder that these options lead to, whether or not it exists; "" is memory only.
std::string cache_folder(const Options& options);
CacheStats read_stats(const std::string& folder);
// The one entry whose key begins so. Fails with bad_input: there is none, or there are several.
Result<CacheEntry> find_entry(const std::string& folder, const std::string& key_prefix);
// Every whole entry of a kernel's name: what a miss is compared with.
std::vector<CacheEntry> entries_named(const std::string& folder, const std::string& name);
std::vector<CacheListing> list_entries(const std::string& folder);  // reads and checks every entry
// Removes the least recently used entries until at most max_bytes are left, and leftovers of dead processes;
// returns the bytes removed.
std::uint64_t sweep(const std::string& folder, std::uint64_t max_bytes);

}  // namespace kvjit
