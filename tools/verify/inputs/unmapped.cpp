// Takes pages away and records who touches them: see unmapped.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/inputs/unmapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <mutex>

namespace kvjit {
namespace {

constexpr int kMostWild = 4096;  // pages at addresses without memory; then the process ends as it would without this

// Of the call that runs on this thread. The signal handler reads and writes it, and nothing else does meanwhile.
struct Record {
  bool is_active = false;
  const Unmapped::Range* pages = nullptr;
  std::size_t page_count = 0;
  int touched = 0;
  DevicePointer first = 0;
  int wild_count = 0;
  std::array<void*, kMostWild> wild;
};
thread_local Record record;

struct sigaction before;
int users = 0;
std::mutex users_mutex;

std::uintptr_t page_bytes() {
  static const auto bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

void on_fault(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::uintptr_t size = page_bytes(), page = address / size * size;
  if (record.is_active && page != 0) {
    for (std::size_t i = 0; i < record.page_count; ++i) {
      if (page < record.pages[i].first || page >= record.pages[i].second) continue;
      if (mprotect(reinterpret_cast<void*>(page), size, PROT_READ | PROT_WRITE) != 0) break;
      if (record.touched++ == 0) record.first = address;
      return;
    }
    if (record.wild_count < kMostWild) {
      void* const page_memory = mmap(reinterpret_cast<void*>(page), size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      if (page_memory == reinterpret_cast<void*>(page)) {
        for (std::uintptr_t i = 0; i < size; ++i) static_cast<unsigned char*>(page_memory)[i] = 0xff;
        record.wild[static_cast<std::size_t>(record.wild_count++)] = page_memory;
        if (record.touched++ == 0) record.first = address;
        return;
      }
      if (page_memory != MAP_FAILED) munmap(page_memory, size);
    }
  }
  sigaction(SIGSEGV, &before, nullptr);  // the instruction runs again, and the process ends
}

}  // namespace

Unmapped::Unmapped(const std::vector<Range>& ranges) {
  const DevicePointer size = page_bytes();
  for (const auto& [first, last] : ranges) {
    const DevicePointer begin = (first + size - 1) / size * size, end = last / size * size;
    if (begin < end) pages_.push_back({begin, end});
  }
  {
    const std::lock_guard lock(users_mutex);
    if (users++ == 0) {
      struct sigaction action {};
      action.sa_sigaction = on_fault;
      action.sa_flags = SA_SIGINFO;
      sigaction(SIGSEGV, &action, &before);
    }
  }
  record.pages = pages_.data(), record.page_count = pages_.size();
  record.touched = record.wild_count = 0, record.first = 0;
  record.is_active = true;
  for (const auto& [begin, end] : pages_) mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_NONE);
}

Unmapped::~Unmapped() {
  for (const auto& [begin, end] : pages_) mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE);
  for (int i = 0; i < record.wild_count; ++i) munmap(record.wild[static_cast<std::size_t>(i)], page_bytes());
  record.is_active = false, record.pages = nullptr, record.page_count = 0, record.wild_count = 0;
  const std::lock_guard lock(users_mutex);
  if (--users == 0) sigaction(SIGSEGV, &before, nullptr);
}

int Unmapped::count() { return record.touched; }
DevicePointer Unmapped::first() { return record.first; }

}  // namespace kvjit
