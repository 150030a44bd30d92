// Marks, locks and removes temporary files: see temporary.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/base/temporary.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <system_error>

namespace kvjit {
namespace {

namespace fs = std::filesystem;

// A table of fixed size, because a signal handler may neither allocate nor lock. A compile marks six paths.
constexpr int kSlots = 1024;
constexpr std::size_t kPathBytes = 256;
enum SlotState : int { kFree, kBeingWritten, kMarked };
struct Slot {
  std::atomic<int> state{kFree};
  char path[kPathBytes];
};
Slot slots[kSlots];
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::string_view kPrefix = "kvjit-";
constexpr std::size_t kRandomLetters = 6;  // of mkdtemp
constexpr std::time_t kLeastAge = 3600;    // seconds: processes of older versions do not lock their folders
constexpr std::size_t kProbeBytes = 4096;  // a block of usual file systems

// SA_RESETHAND has restored the default meaning of the signal. It is blocked until the handler returns, and then ends
// the process.
void end_by_signal(int number) {
  remove_temporaries();
  ::raise(number);
}

}  // namespace

TemporaryMark::TemporaryMark(const std::string& path) {
  if (path.empty() || path.size() >= kPathBytes) return;
  for (int i = 0; i < kSlots; ++i) {
    int expected = kFree;
    if (!slots[i].state.compare_exchange_strong(expected, kBeingWritten)) continue;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state = kMarked;
    slot_ = i;
    return;
  }
}

TemporaryMark::~TemporaryMark() {
  if (slot_ >= 0) slots[slot_].state = kFree;
}

void remove_temporaries() noexcept {
  for (const Slot& slot : slots)
    if (slot.state == kMarked) ::unlink(slot.path);
  for (int depth = 0; depth < 2; ++depth)  // a folder in a folder
    for (const Slot& slot : slots)
      if (slot.state == kMarked) ::rmdir(slot.path);
}

void remove_temporaries_on_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXFSZ}) {
    struct sigaction old {};
    if (::sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;  // nohup
    struct sigaction action {};
    action.sa_handler = end_by_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(number, &action, nullptr);
  }
}

Result<TemporaryFolder> TemporaryFolder::make() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  if (error) return fail(Code::environment, fmt::format("no folder for temporary files: {}", error.message()));
  std::string name = (base / (std::string(kPrefix) + "XXXXXX")).string();
  if (!mkdtemp(name.data()))
    return fail(Code::environment, fmt::format("cannot make a folder in {}: {}", base.string(), std::strerror(errno)));
  File lock(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock) (void)!::flock(lock.fd(), LOCK_EX | LOCK_NB);  // without locks the sweep goes by age
  TemporaryFolder folder(name, std::move(lock));
  KV_CHECK(folder.check_space());
  return folder;
}

Result<void> TemporaryFolder::check_space() const {
  const std::string file = path_ / "space";
  const TemporaryMark mark(file);
  std::ofstream out(file, std::ios::binary);
  out << std::string(kProbeBytes, ' ');
  out.close();
  const int error = errno;
  ::unlink(file.c_str());
  if (out) return {};
  return fail(Code::environment,
              fmt::format("cannot write to {}: {}", path_.parent_path().string(), std::strerror(error)), {},
              {"TMPDIR names another folder for temporary files"});
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

std::size_t sweep_temporary_folders() {
  std::size_t removed = 0;
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  for (auto at = fs::directory_iterator(base, error); !error && at != fs::end(at); at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.rfind(kPrefix, 0) != 0 || name.size() != kPrefix.size() + kRandomLetters) continue;
    const File folder(::open(at->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status {};
    if (!folder || ::fstat(folder.fd(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    if (std::time(nullptr) - status.st_mtime < kLeastAge) continue;
    if (::flock(folder.fd(), LOCK_EX | LOCK_NB) != 0) continue;  // its process lives
    std::error_code problem;
    fs::remove_all(at->path(), problem);
    removed += !problem;
  }
  return removed;
}

}  // namespace kvjit
