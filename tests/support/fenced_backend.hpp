// A CPU back-end whose buffers end at unreadable pages. Every buffer has an unreadable page (a fence) before and behind
// it; it ends at the fence behind it, its size rounded up to whole chunks of 16 bytes. A kernel that reads or writes
// past an end kills the process, so tests run such calls in a child process (end_of).
// SPDX-License-Identifier: MIT
#pragma once
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <map>

#include "runtime/jit/context.hpp"
#include "tests/support/open_context.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {

class FencedBackend : public Backend {
 public:
  explicit FencedBackend(std::shared_ptr<Backend> cpu) : cpu_(std::move(cpu)) {}

  Result<DevicePointer> allocate(std::size_t bytes) override {
    constexpr std::size_t kChunk = 16, kPage = 4096;  // bytes; GPUs read whole chunks of 16 bytes, too
    if (bytes == 0) return DevicePointer{0};
    const std::size_t held = (bytes + kChunk - 1) / kChunk * kChunk, readable = (held + kPage - 1) / kPage * kPage;
    auto* const begin =
        static_cast<std::uint8_t*>(mmap(nullptr, readable + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(begin != MAP_FAILED);
    REQUIRE(mprotect(begin + kPage, readable, PROT_READ | PROT_WRITE) == 0);
    std::memset(begin + kPage, 0xff, readable);
    const auto pointer = reinterpret_cast<DevicePointer>(begin + kPage + readable - held);
    mapped_[pointer] = {begin, readable + 2 * kPage};
    return pointer;
  }
  void release(DevicePointer pointer) override {
    if (const auto found = mapped_.extract(pointer)) munmap(found.mapped().first, found.mapped().second);
  }

  const DeviceInfo& info() const override { return cpu_->info(); }
  Result<void> copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    return cpu_->copy_to_device(to, from, bytes);
  }
  Result<void> copy_to_host(void* to, DevicePointer from, std::size_t bytes) override {
    return cpu_->copy_to_host(to, from, bytes);
  }
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) override {
    return cpu_->copy_on_device(to, from, bytes, stream);
  }
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes) override {
    return cpu_->fill(to, value, bytes);
  }
  Result<void> synchronize(Stream stream) override { return cpu_->synchronize(stream); }
  Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact& artefact) override {
    return cpu_->load(source, artefact);
  }
  Result<void> launch(const Kernel& kernel, Grid grid, const void* args, Stream stream) override {
    return cpu_->launch(kernel, grid, args, stream);
  }
  Result<Timing> time(const Work& work, int repeats, int buffer_sets) override {
    return cpu_->time(work, repeats, buffer_sets);
  }

 private:
  std::shared_ptr<Backend> cpu_;
  std::map<DevicePointer, std::pair<void*, std::size_t>> mapped_;
};

inline std::shared_ptr<Context> open_fenced() {
  Options options = Options::from_environment();
  options.cache_dir = shared_cache();
  const auto device = std::make_shared<SharedDevice>(std::make_shared<FencedBackend>(must(open_cpu(options))));
  return must(make_context(options, device, host_toolchain(options)));
}

constexpr int kIsTrue = 0, kIsFalse = 1, kThrows = 2;  // ends of a child process that no signal kills

// Runs `work` in a child process and returns how the child ends: by what `work` returns, or by what it throws, or minus
// the number of the signal that kills it.
inline int end_of(const std::function<bool()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int fault : {SIGSEGV, SIGBUS}) std::signal(fault, SIG_DFL);
    int end = kThrows;
    try {
      end = work() ? kIsTrue : kIsFalse;
    } catch (...) {
    }
    _exit(end);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace kvjit::test
