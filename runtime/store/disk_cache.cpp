// The disk cache: see disk_cache.hpp. Every entry is checked when it is read, entries appear by rename, a lock lets one
// process compile a key, and sweeps bound the size.
// SPDX-License-Identifier: MIT
#include "runtime/store/disk_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/file.hpp"
#include "runtime/base/temporary.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

constexpr auto kLockPoll = std::chrono::milliseconds(5);
constexpr std::time_t kTouchEvery = 24 * 3600;  // seconds: the time of use is exact to a day, so that hits rarely write
constexpr std::time_t kSweepEvery = 3600;       // seconds between sweeps
constexpr std::time_t kLeftoverAge = 3600;      // seconds: an older temporary file or lock belongs to a dead process

const std::string kVersionFolder = fmt::format("/v{}", kCacheFormat);
constexpr const char* kQuarantine = "/quarantine";

bool is_private(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && is_only_ours(status);
}

std::string why() { return std::strerror(errno); }

// mkdir -p with mode 0700, as the XDG base directory specification asks.
bool make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    if (::mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST) {
      // For a parent that exists on a read-only file system or in a foreign folder, mkdir reports that instead of
      // EEXIST.
      struct stat status {};
      if (const int error = errno; ::stat(path.substr(0, at).c_str(), &status) != 0) {
        errno = error;
        return false;
      }
    }
    if (at == std::string::npos) return true;
  }
}

bool write_all(int fd, std::span<const std::uint8_t> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

// The folders of this process in which a wait for a lock was in vain. Its holder hangs, or the file system gives no
// lock back, and then every kernel would wait again.
struct StuckFolders {
  std::mutex mutex;
  std::set<std::string> folders;
  bool has(const std::string& folder) {
    const std::lock_guard guard(mutex);
    return folders.count(folder) > 0;
  }
  bool add(const std::string& folder) {  // false: it is there already
    const std::lock_guard guard(mutex);
    return folders.insert(folder).second;
  }
};
StuckFolders& stuck_folders() {
  static StuckFolders all;
  return all;
}

enum class Reading { ok, absent, unreadable, foreign, damaged };

// Reads and checks one entry. Reading::foreign: another user could have written it, or it is no regular file.
// Reading::unreadable: this user may not read it, or the disk fails.
Reading read_entry(const std::string& path, std::string_view key_hex, CacheEntry& entry, struct stat& status,
                   std::string& reason) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    const int error = errno;
    reason = why();
    if (error == ELOOP) return Reading::foreign;
    return error == ENOENT || error == ENOTDIR ? Reading::absent : Reading::unreadable;
  }
  if (::fstat(file.fd(), &status) != 0) return reason = why(), Reading::unreadable;
  if (!S_ISREG(status.st_mode) || !is_only_ours(status)) {
    reason = "not a regular file that only this user or root can write";
    return Reading::foreign;
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > kMaxEntryBytes) {
    reason = fmt::format("{} bytes are more than the {} an entry may have", size, kMaxEntryBytes);
    return Reading::damaged;
  }
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::read(file.fd(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return reason = why(), Reading::unreadable;  // an error of the disk does not make the entry damaged
    if (got == 0) bytes.resize(done);
    done += static_cast<std::size_t>(got);
  }
  auto decoded = decode_entry(key_hex, bytes);
  if (!decoded) {
    reason = decoded.error().message;
    return Reading::damaged;
  }
  entry = std::move(*decoded);
  return Reading::ok;
}

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

constexpr std::size_t kShardDigits = 2, kKeyDigits = 64;

// Whether the name is one that write_file() gives to a file before its rename: ".XXXXXX.tmp".
bool is_temporary(const fs::path& path) {
  const std::string name = path.filename();
  return name[0] == '.' && name.ends_with(".tmp");
}

tl::unexpected<Error> unreadable(const std::string& path, const std::string& reason) {
  return fail(Code::environment, fmt::format("{}: cannot be read: {}", path, reason), {},
              {"`kvjit doctor` judges the cache folder"});
}

// Calls visit(path, status) for everything in a folder. A folder that does not exist is empty.
template <class Visit>
Result<void> for_each_in(const std::string& folder, Visit visit) {
  std::error_code error;
  auto at = fs::directory_iterator(folder, error);
  for (; !error && at != fs::end(at); at.increment(error)) {
    struct stat status {};
    const std::string path = at->path();
    if (::lstat(path.c_str(), &status) == 0) {
      visit(at->path(), status);
    } else if (errno != ENOENT) {  // another process may have removed it
      return unreadable(path, why());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) return unreadable(folder, error.message());
  return {};
}

// Calls visit(path, key, status) for every entry of a cache folder, of whatever type its file is.
template <class Visit>
Result<void> for_each_entry(const std::string& folder, Visit visit) {
  std::vector<std::string> shards;
  KV_CHECK(for_each_in(folder + kVersionFolder, [&](const fs::path& path, const struct stat& status) {
    if (S_ISDIR(status.st_mode) && is_hex(path.filename(), kShardDigits)) shards.push_back(path);
  }));
  for (const std::string& shard : shards)
    KV_CHECK(for_each_in(shard, [&](const fs::path& path, const struct stat& status) {
      if (path.extension() == ".kvc") visit(path.string(), path.stem().string(), status);
    }));
  return {};
}

}  // namespace

std::string cache_folder(const Options& options) {
  if (options.cache_dir == "off") return {};
  return options.cache_dir.empty() ? options.user_cache_dir : options.cache_dir;
}

Result<std::string> open_cache_folder(const Options& options) {
  if (options.cache_dir == "off") return std::string();
  const std::string base = cache_folder(options), versioned = base + kVersionFolder;
  const auto refused = [](const std::string& reason) { return fail(Code::environment, reason); };
  if (base.empty()) return refused("no cache folder is known: set KVJIT_CACHE_DIR, XDG_CACHE_HOME or HOME");
  if (base[0] != '/') return refused("cache folder '" + base + "' is not an absolute path");
  if (!make_folders(versioned)) return refused("cache folder " + base + ": " + why());
  if (const auto& open = !is_private(base) ? base : versioned; !is_private(open))
    return refused(open + " can be written by others: it needs this user as owner and `chmod go-w`");
  return base;
}

Cache::Cache(const Options& options) : max_bytes_(options.cache_max_bytes), log_(options.log) {
  if (const auto folder = open_cache_folder(options))
    base_ = *folder;
  else
    warn_once("folder", folder.error().message + "; kernels are cached in memory only");
}

void Cache::warn_once(const std::string& about, const std::string& message) {
  const std::lock_guard guard(warned_mutex_);
  if (warned_.insert(about).second && log_) log_("warning: " + message);
}

std::string Cache::entry_path(const std::string& key) const {
  return fmt::format("{}{}/{}/{}.kvc", base_, kVersionFolder, key.substr(0, 2), key);
}

std::optional<CacheEntry> Cache::read(const Key& key) {
  if (base_.empty()) return std::nullopt;
  const std::string path = entry_path(key.hex);
  CacheEntry entry;
  struct stat status {};
  std::string reason;
  switch (read_entry(path, key.hex, entry, status, reason)) {
    case Reading::ok:
      if (std::time(nullptr) - status.st_mtime > kTouchEvery)
        ::utimensat(AT_FDCWD, path.c_str(), nullptr,
                    AT_SYMLINK_NOFOLLOW);  // fails on a read-only cache, which is harmless
      return entry;
    case Reading::absent:
      return std::nullopt;
    case Reading::foreign:  // once, although the store reads twice: before and after it has the key's lock
      warn_once(path, path + " is skipped: " + reason);
      return std::nullopt;
    case Reading::unreadable:  // once for all entries of a folder
      warn_once("read: " + reason, path + " cannot be read: " + reason);
      return std::nullopt;
    case Reading::damaged:
      ++rebuilt;
      if (log_) log_("warning: " + path + " is rebuilt: " + reason);
      // Another process that read the same damaged entry may rename it first, which is harmless.
      if (const std::string quarantine = base_ + kQuarantine; make_folders(quarantine))
        ::rename(path.c_str(), (quarantine + "/" + key.hex + ".kvc").c_str());
      return std::nullopt;
  }
  return std::nullopt;
}

bool Cache::write_file(const std::string& path, std::span<const std::uint8_t> bytes) {
  const std::string folder = path.substr(0, path.rfind('/'));
  std::string temporary = folder + "/.XXXXXX.tmp";
  if (!make_folders(folder)) return false;
  const File file(::mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!file) return false;
  const TemporaryMark mark(temporary);
  const bool is_written =
      write_all(file.fd(), bytes) && ::fsync(file.fd()) == 0 && ::rename(temporary.c_str(), path.c_str()) == 0;
  if (const int error = errno; !is_written) {
    ::unlink(temporary.c_str());
    errno = error;
    return false;
  }
  if (const File opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); opened) ::fsync(opened.fd());
  return true;
}

int Cache::complete_kernels(const std::string& list) const {
  if (base_.empty()) return 0;
  const File file(::open((base_ + kVersionFolder + "/warm/" + list).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!file || ::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode) || !is_only_ours(status)) return 0;
  constexpr std::size_t kLine = 65;  // a key and its newline
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size % kLine != 0 || size > kMaxEntryBytes) return 0;
  std::string keys(size, '\0');
  if (::read(file.fd(), keys.data(), size) != status.st_size) return 0;
  for (std::size_t at = 0; at < size; at += kLine)
    if (!has(keys.substr(at, kLine - 1))) return 0;
  return static_cast<int>(size / kLine);
}

void Cache::mark_complete(const std::string& list, const std::vector<std::string>& keys) {
  if (base_.empty()) return;
  std::vector<std::uint8_t> text;
  for (const std::string& key : keys) {
    text.insert(text.end(), key.begin(), key.end());
    text.push_back('\n');
  }
  if (!write_file(base_ + kVersionFolder + "/warm/" + list, text)) ++write_failures;
}

void Cache::publish(const CacheEntry& entry) {
  if (base_.empty()) return;
  const auto bytes = encode_entry(entry);
  if (bytes.size() > kMaxEntryBytes) return;
  const std::string path = entry_path(entry.key.hex);
  if (!write_file(path, bytes)) {
    const std::string reason = why();
    ++write_failures;
    return warn_once(reason, path + " could not be written: " + reason + "; this kernel is cached in memory only");
  }
  sweep_if_due();
}

void Cache::sweep_if_due() {
  const std::string stamp = base_ + kVersionFolder + "/swept";
  struct stat status {};
  if (::stat(stamp.c_str(), &status) == 0 && std::time(nullptr) - status.st_mtime < kSweepEvery) return;
  // The stamp is written before the sweep, so that other processes leave the sweep to this one.
  if (const File file(::open(stamp.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      file && ::futimens(file.fd(), nullptr) == 0)
    if (const auto stats = read_stats(base_)) sweep(base_, stats->bytes > max_bytes_ ? max_bytes_ / 5 * 4 : max_bytes_);
}

Cache::Lock::Lock(Lock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), waited_(other.waited_) {}

Cache::Lock::~Lock() {
  if (fd_ < 0) return;
  // The file is removed before close() unlocks it, so that a waiting process sees that its file is gone and opens anew.
  ::unlink(path_.c_str());
  ::close(fd_);
}

bool Cache::has(const std::string& key) const {
  struct stat status {};
  return !base_.empty() && ::lstat(entry_path(key).c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

Cache::Lock Cache::lock(const Key& key, const std::string& name, std::stop_token stop) {
  Lock lock;
  if (base_.empty()) return lock;
  const std::string folder = base_ + kVersionFolder + "/locks";
  if (!make_folders(folder)) return lock;  // publish() reports a folder that cannot be written
  lock.path_ = folder + "/" + key.hex;
  const auto deadline = std::chrono::steady_clock::now() + lock_patience;
  for (;;) {
    const int fd = ::open(lock.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return lock;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {  // the file system has no locks
        ::close(fd);
        return lock;
      }
      if (stuck_folders().has(base_)) {
        ::close(fd);
        return lock;
      }
      if (!lock.waited_) {
        lock.waited_ = true;
        ++lock_waits;
        // The holder writes its process id after it has the lock, so a process that comes in between reads nothing.
        char holder[32] = {};
        const bool is_named = ::pread(fd, holder, sizeof holder - 1, 0) > 0;
        if (log_)
          log_(fmt::format("waiting for {}, which compiles {}",
                           is_named ? fmt::format("process {}", holder) : "another process", name));
      }
      if (std::chrono::steady_clock::now() > deadline || stop.stop_requested()) {
        if (!stop.stop_requested() && stuck_folders().add(base_) && log_)
          log_(fmt::format(
              "warning: waited {:g} s for {}, compiling it here too; this process waits for no other lock of "
              "{}/locks",
              std::chrono::duration<double>(lock_patience).count(), name, base_ + kVersionFolder));
        ::close(fd);
        return lock;
      }
      std::this_thread::sleep_for(kLockPoll);
    }
    struct stat ours {
    }, named{};
    if (::fstat(fd, &ours) == 0 && ::stat(lock.path_.c_str(), &named) == 0 && ours.st_ino == named.st_ino) {
      const std::string pid = std::to_string(::getpid());
      if (::ftruncate(fd, 0) == 0)
        (void)!::pwrite(fd, pid.data(), pid.size(), 0);  // for the message of a process that waits
      lock.fd_ = fd;
      return lock;
    }
    ::close(fd);  // the holder removed the file during the wait
  }
}

Result<CacheStats> read_stats(const std::string& folder) {
  CacheStats stats;
  stats.folder = folder;
  if (folder.empty()) return stats;
  KV_CHECK(for_each_entry(folder, [&](const std::string&, const std::string&, const struct stat& status) {
    ++stats.entries;
    stats.bytes += static_cast<std::uint64_t>(status.st_size);
  }));
  KV_CHECK(for_each_in(folder + kQuarantine, [&](const fs::path&, const struct stat&) { ++stats.quarantined; }));
  return stats;
}

Result<std::vector<CacheListing>> list_entries(const std::string& folder) {
  std::vector<CacheListing> list;
  if (folder.empty()) return list;
  KV_CHECK(for_each_entry(folder, [&](const std::string& path, const std::string& key, const struct stat& status) {
    CacheEntry entry;
    struct stat opened {};
    CacheListing row;
    const Reading reading = read_entry(path, key, entry, opened, row.damage);
    if (reading == Reading::absent) return;  // another process removed it
    row.is_unreadable = reading == Reading::unreadable;
    row.key = key;
    row.name = entry.name;
    row.compiler = entry.compiler;
    row.kind = entry.artefact.kind;
    row.bytes = static_cast<std::uint64_t>(status.st_size);
    row.last_used = status.st_mtime;
    list.push_back(std::move(row));
  }));
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return list;
}

Result<CacheEntry> find_entry(const std::string& folder, const std::string& prefix) {
  std::vector<std::pair<std::string, std::string>> found;  // key, path
  KV_CHECK(for_each_entry(folder, [&](const std::string& path, const std::string& key, const struct stat&) {
    if (key.rfind(prefix, 0) == 0) found.emplace_back(key, path);
  }));
  if (found.size() != 1)
    return fail(Code::bad_input,
                fmt::format("{} entries of {} have a key that begins with '{}'", found.size(), folder, prefix), {},
                {"`kvjit cache list` names them"});
  CacheEntry entry;
  struct stat status {};
  std::string reason;
  const Reading reading = read_entry(found[0].second, found[0].first, entry, status, reason);
  if (reading == Reading::unreadable || reading == Reading::absent) return unreadable(found[0].second, reason);
  if (reading != Reading::ok) return fail(Code::integrity, fmt::format("{}: {}", found[0].second, reason));
  return entry;
}

Result<std::vector<CacheEntry>> entries_named(const std::string& folder, const std::string& name) {
  std::vector<CacheEntry> found;
  if (folder.empty()) return found;
  KV_CHECK(for_each_entry(folder, [&](const std::string& path, const std::string& key, const struct stat&) {
    CacheEntry entry;
    struct stat status {};
    std::string reason;
    if (read_entry(path, key, entry, status, reason) == Reading::ok && entry.name == name)
      found.push_back(std::move(entry));
  }));
  return found;
}

Result<std::uint64_t> sweep(const std::string& folder, std::uint64_t max_bytes) {
  struct Candidate {
    timespec used;
    std::uint64_t bytes;
    std::string path;
  };
  std::vector<Candidate> entries;
  std::uint64_t total = 0, removed = 0;
  KV_CHECK(for_each_entry(folder, [&](const std::string& path, const std::string&, const struct stat& status) {
    if (!S_ISREG(status.st_mode)) return;
    entries.push_back({status.st_mtim, static_cast<std::uint64_t>(status.st_size), path});
    total += entries.back().bytes;
  }));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  Result<void> outcome;
  for (const auto& entry : entries) {
    if (total <= max_bytes) break;
    if (::unlink(entry.path.c_str()) == 0)
      removed += entry.bytes;
    else if (errno != ENOENT && outcome)
      outcome = fail(Code::environment, fmt::format("{}: cannot be removed: {}", entry.path, why()));
    total -= entry.bytes;
  }
  KV_CHECK(outcome);
  std::error_code error;
  for (auto file = fs::recursive_directory_iterator(folder + kVersionFolder, error); !error && file != fs::end(file);
       file.increment(error)) {
    const fs::path& path = file->path();
    struct stat status {};
    const bool is_leftover = is_temporary(path) || path.parent_path().filename() == "locks";
    if (is_leftover && ::lstat(path.c_str(), &status) == 0 && std::time(nullptr) - status.st_mtime > kLeftoverAge)
      ::unlink(path.c_str());
  }
  return removed;
}

Result<std::uint64_t> clear(const std::string& folder) {
  std::vector<fs::path> own;      // what the naming scheme says is the cache's
  std::vector<std::string> held;  // folders of these, removed if they are empty then
  std::uint64_t removed = 0;
  const auto collect = [&](const std::string& in, auto is_own) {
    held.push_back(in);
    return for_each_in(in, [&](const fs::path& path, const struct stat& status) {
      if (!is_own(path)) return;
      own.push_back(path);
      if (S_ISREG(status.st_mode)) removed += static_cast<std::uint64_t>(status.st_size);
    });
  };
  const auto is_entry = [](const fs::path& path) {
    return (path.extension() == ".kvc" && is_hex(path.stem(), kKeyDigits)) || is_temporary(path);
  };
  const std::string versioned = folder + kVersionFolder;
  std::vector<std::string> shards;
  KV_CHECK(for_each_in(versioned, [&](const fs::path& path, const struct stat& status) {
    if (S_ISDIR(status.st_mode) && is_hex(path.filename(), kShardDigits)) shards.push_back(path);
  }));
  for (const std::string& shard : shards) KV_CHECK(collect(shard, is_entry));
  KV_CHECK(collect(folder + kQuarantine, is_entry));
  KV_CHECK(collect(versioned + "/warm",
                   [](const fs::path& path) { return is_hex(path.filename(), kKeyDigits) || is_temporary(path); }));
  KV_CHECK(collect(versioned + "/locks", [](const fs::path& path) {
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    return is_hex(path.filename(), kKeyDigits) && (!file || ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0);
  }));
  Result<void> outcome;
  for (const fs::path& path : own) {
    std::error_code error;
    fs::remove_all(path, error);  // a folder may lie in place of an entry; links are not followed
    if (error && outcome)
      outcome = fail(Code::environment, fmt::format("{}: cannot be removed: {}", path.string(), error.message()));
  }
  for (const std::string& each : held) ::rmdir(each.c_str());
  KV_CHECK(outcome);
  return removed;
}

}  // namespace kvjit
