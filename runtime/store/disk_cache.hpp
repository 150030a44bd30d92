// Cache: compiled kernels on disk, one file for each. It never fails. An entry that cannot be read is a miss; an entry
// that cannot be written stays in memory, which is logged once a reason. The cache reads only files that nobody but the
// user or root can have written.
//
//   <base>/v2/<2 hex>/<64 hex>.kvc   entries; they never change after their rename
//   <base>/v2/locks/<64 hex>         lock of a key, so that one process compiles it; its holder removes it
//   <base>/v2/warm/<64 hex>          marker of a complete list of kernels (runtime/jit/warm.hpp): their keys
//   <base>/v2/swept                  its modification time is that of the last sweep
//   <base>/quarantine/               damaged entries, for a person to inspect
// SPDX-License-Identifier: MIT
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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
  // Uses the folder of open_cache_folder. Without a usable folder the cache is off, which is logged once.
  explicit Cache(const Options& options);

  const std::string& folder() const { return base_; }  // "": memory only
  std::optional<CacheEntry> read(const Key& key);
  void publish(const CacheEntry& entry);

  // The lock of a key, which a process holds while it compiles the key. lock() waits for another holder for up to
  // lock_patience and then goes on without the lock, because a duplicate is harmless. After one wait in vain this
  // process waits for no lock of the folder any more.
  class Lock {
   public:
    Lock() = default;
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    ~Lock();
    bool waited() const { return waited_; }  // another process may have published in the meantime

   private:
    friend class Cache;
    std::string path_;
    int fd_ = -1;
    bool waited_ = false;
  };
  Lock lock(const Key& key, const std::string& name, std::stop_token stop = {});
  std::chrono::milliseconds lock_patience = std::chrono::minutes(1);  // set before locks are taken
  bool has(const std::string& key_hex) const;  // whether the entry's file exists; its content is not read

  // Kernels of a marked list, by its digest; 0 if it is not marked or an entry of it is gone.
  int complete_kernels(const std::string& list) const;
  void mark_complete(const std::string& list, const std::vector<std::string>& key_hexes);

  std::atomic<std::uint64_t> rebuilt{0},  // damaged entries
      lock_waits{0},                      // waits for the lock of another process
      write_failures{0};                  // entries that could not be written

 private:
  void warn_once(const std::string& about, const std::string& message);  // once for each `about`
  void sweep_if_due();
  std::string entry_path(const std::string& key_hex) const;
  bool write_file(const std::string& path, std::span<const std::uint8_t> bytes);

  std::string base_;
  std::uint64_t max_bytes_;
  std::function<void(const std::string&)> log_;
  std::mutex warned_mutex_;
  std::set<std::string> warned_;
};

struct CacheStats {
  std::string folder;         // "": memory only
  std::uint64_t entries = 0,  // entries in the folder
      bytes = 0,              // size of all entries, bytes
      quarantined = 0;        // damaged entries in quarantine/
};
struct CacheListing {
  std::string key,  // 64 hex digits
      name,         // Source::name
      compiler;     // Compiler::identity()
  ArtefactKind kind = ArtefactKind::cubin;
  std::uint64_t bytes = 0;
  std::time_t last_used = 0;   // exact to a day
  std::string damage;          // what is wrong with the entry; "": it is undamaged
  bool is_unreadable = false;  // `damage` says why this user cannot read the entry
};

// The cache folder by these options, whether or not it exists; "": memory only.
std::string cache_folder(const Options& options);
// The cache folder, which is created (mode 0700) if it is missing; "" if the options say "off". Fails with environment
// if there is none that only this user or root can write.
Result<std::string> open_cache_folder(const Options& options);
// The functions below fail with environment if the folder or a folder in it cannot be read. One that does not exist is
// empty.
Result<CacheStats> read_stats(const std::string& folder);
// The one entry whose key begins with key_prefix. Fails with bad_input if there is none or there are several.
Result<CacheEntry> find_entry(const std::string& folder, const std::string& key_prefix);
// Every undamaged entry of the kernel `name`. `explain --key` compares a miss with them.
Result<std::vector<CacheEntry>> entries_named(const std::string& folder, const std::string& name);
Result<std::vector<CacheListing>> list_entries(const std::string& folder);  // reads and checks every entry
// Removes the least recently used entries until at most max_bytes are left, and the leftovers of dead processes.
// Returns the bytes that were removed.
Result<std::uint64_t> sweep(const std::string& folder, std::uint64_t max_bytes);
// Removes every entry, whatever lies in place of one, quarantined ones, markers, temporary files, and locks that nobody
// holds. Files of other names stay. Returns the bytes that were removed.
Result<std::uint64_t> clear(const std::string& folder);

}  // namespace kvjit
