// The CPU back-end as a Backend: device memory is the heap, a kernel is a shared object that is loaded from memory, and
// a launch runs to its end. It serves tests and machines without a GPU, and is slow.
// SPDX-License-Identifier: MIT
#include "runtime/device/backend.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

constexpr std::size_t kAlignment = 256;  // bytes: the alignment that cudaMalloc guarantees
constexpr int kPoison = 0xff;            // NaN in every float type, so that reads of unwritten memory are noticed

std::size_t physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : 0;
}

std::string error_of_loader() {
  const char* text = dlerror();
  return text ? text : "no reason given";
}

class CpuKernel : public Kernel {
 public:
  static Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact& artefact);
  ~CpuKernel() override;

  const std::string& name() const { return name_; }
  const LaneProgram& program() const { return program_; }
  int threads() const { return threads_; }
  std::size_t shared_bytes() const { return shared_bytes_; }

 private:
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_); }
  Result<void> fill(const std::vector<std::uint8_t>& bytes) const;

  std::string name_;
  int file_ = -1;
  void* object_ = nullptr;
  LaneProgram program_;
  int threads_ = 0;
  std::size_t shared_bytes_ = 0;
};

// Unloads the object, then closes its descriptor. The loader identifies objects by path, and the path is the
// descriptor's number: if the object were still loaded, the next kernel with that number would silently be this one.
CpuKernel::~CpuKernel() {
  if (object_) {
    dlclose(object_);
    if (dlopen(path().c_str(), RTLD_LAZY | RTLD_NOLOAD)) return;
  }
  if (file_ >= 0) close(file_);
}

Result<void> CpuKernel::fill(const std::vector<std::uint8_t>& bytes) const {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return fail(Code::environment, fmt::format("cannot hold the {} bytes of kernel {} in memory: {}", bytes.size(),
                                                 name_, std::strerror(errno)));
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Result<std::shared_ptr<Kernel>> CpuKernel::load(const Source& source, const Artefact& artefact) {
  if (artefact.kind != ArtefactKind::host_object)
    return fail(Code::integrity, fmt::format("the artefact of {} is not for the CPU back-end", source.name));
  const auto kernel = std::make_shared<CpuKernel>();
  kernel->name_ = source.name;
  kernel->threads_ = source.threads;
  kernel->shared_bytes_ = static_cast<std::size_t>(std::max(source.shared_bytes, 0));
  kernel->file_ = memfd_create(source.name.substr(0, 200).c_str(), MFD_CLOEXEC);
  if (kernel->file_ < 0) return fail(Code::environment, fmt::format("memfd_create: {}", std::strerror(errno)));
  KV_CHECK(kernel->fill(artefact.bytes));

  kernel->object_ = dlopen(kernel->path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!kernel->object_)
    return fail(Code::integrity, fmt::format("cannot load kernel {}: {}", source.name, error_of_loader()));
  const auto symbol = [&](const std::string& name) { return dlsym(kernel->object_, name.c_str()); };
  const std::string entry = source.entry + "_on_host";
  kernel->program_.bind = reinterpret_cast<void (*)(const kv::cpu::Host*)>(symbol("kv_cpu_bind"));
  kernel->program_.entry = reinterpret_cast<void (*)(const void*)>(symbol(entry));
  if (!kernel->program_.bind || !kernel->program_.entry)
    return fail(Code::integrity, fmt::format("the object of kernel {} has no symbol {}", source.name,
                                             kernel->program_.bind ? entry : "kv_cpu_bind"));
  return kernel;
}

class CpuBackend : public Backend {
 public:
  CpuBackend(unsigned seed, const std::string& arch) : seed_(seed) {
    info_.name = "CPU back-end";
    info_.arch = arch.empty() ? "sm_90a" : arch;
    info_.memory_bytes = physical_memory();
  }

  const DeviceInfo& info() const override { return info_; }
  Result<DevicePointer> allocate(std::size_t bytes) override;
  void release(DevicePointer pointer) override { std::free(reinterpret_cast<void*>(pointer)); }
  Result<void> copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    return copy(reinterpret_cast<void*>(to), from, bytes);
  }
  Result<void> copy_to_host(void* to, DevicePointer from, std::size_t bytes) override {
    return copy(to, reinterpret_cast<const void*>(from), bytes);
  }
  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) override;
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes) override;
  Result<void> synchronize(Stream) override { return {}; }
  Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact& artefact) override {
    return CpuKernel::load(source, artefact);
  }
  Result<void> launch(const Kernel& kernel, Grid grid, const void* args, Stream) override;
  Result<Timing> time(const Work& work, int repeats, int buffer_sets) override;

 private:
  static Result<void> copy(void* to, const void* from, std::size_t bytes);
  DeviceInfo info_;
  unsigned seed_;
};

Result<DevicePointer> CpuBackend::allocate(std::size_t bytes) {
  if (bytes == 0) return DevicePointer{0};
  // Exactly the requested bytes, so that AddressSanitizer detects reads behind them.
  void* memory = nullptr;
  if (bytes > info_.memory_bytes || posix_memalign(&memory, kAlignment, bytes) != 0)
    return fail(Code::environment,
                fmt::format("no memory for {} bytes; this machine has {}", bytes, info_.memory_bytes));
  std::memset(memory, kPoison, bytes);
  return reinterpret_cast<DevicePointer>(memory);
}

Result<void> CpuBackend::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  if (!to || !from)
    return fail(Code::bad_input, fmt::format("copy of {} bytes {} a null pointer", bytes, to ? "from" : "to"));
  std::memcpy(to, from, bytes);
  return {};
}

Result<void> CpuBackend::copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes, Stream) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return {};
}

Result<void> CpuBackend::fill(DevicePointer to, std::uint8_t value, std::size_t bytes) {
  if (bytes == 0) return {};
  if (to == 0) return fail(Code::bad_input, fmt::format("fill of {} bytes at a null pointer", bytes));
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return {};
}

Result<void> CpuBackend::launch(const Kernel& kernel, Grid grid, const void* args, Stream) {
  const auto* loaded = dynamic_cast<const CpuKernel*>(&kernel);
  if (!loaded) return fail(Code::internal, "a kernel of another back-end was launched on the CPU back-end");
  Result<void> ran = run_grid(loaded->program(), grid, loaded->threads(), loaded->shared_bytes(), args, seed_);
  if (!ran) ran.error().notes.push_back(fmt::format("in kernel {}", loaded->name()));
  return ran;
}

Result<Backend::Timing> CpuBackend::time(const Work& work, int repeats, int buffer_sets) {
  KV_CHECK(check_timing(repeats, buffer_sets));
  std::vector<double> us;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    KV_CHECK(work(nullptr, i % buffer_sets));
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(us.begin(), us.end());
  return Timing{us[us.size() / 2], us.front(), us.back(), repeats, 1};
}

}  // namespace

Result<std::shared_ptr<Backend>> open_cpu(const Options& options) {
  if (options.as_ptx)
    return fail(Code::usage, "as-ptx: only GPUs run PTX", {},
                {"the CPU back-end runs the text of any arch itself: --arch alone names it"});
  return std::make_shared<CpuBackend>(options.fiber_seed, options.arch);
}

}  // namespace kvjit
