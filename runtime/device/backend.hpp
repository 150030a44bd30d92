// Backend: the interface to a device that runs kernels. There are two: a CUDA device through the driver API (opened at
// run time, never linked), and the CPU back-end, which runs the same kernel text lane by lane. Callers launch on both
// alike.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/base/options.hpp"
#include "runtime/compile/artefact.hpp"

namespace kvjit {

struct DeviceInfo {
  bool is_gpu = false;
  std::string name;  // "NVIDIA H200", "CPU back-end"
  // The arch that kernels are generated for by default: that of the options, else the GPU's own, on the CPU back-end
  // "sm_90a".
  std::string arch;
  int multiprocessors = 1;
  std::size_t memory_bytes = 0;
  int l2_bytes = 0,              // size of the L2 cache; 0: unknown
      memory_clock_khz = 0,      // 0: unknown
      memory_bus_bits = 0;       // 0: unknown
  int driver_version = 0;        // 13000 = 13.0
  std::string driver_file = {};  // the libcuda in use
  std::string own_arch = {};     // the GPU's own arch, "sm_90a"; empty on the CPU back-end
  bool runs_ptx = false;         // kernels for `arch` are compiled to PTX, which the driver compiles for own_arch

  // Peak memory bandwidth in GB/s at two bits a pin and clock, as in datasheets; 0: unknown.
  double peak_gb_per_s() const { return 2.0 * memory_clock_khz * 1e3 * memory_bus_bits / 8 / 1e9; }
};

// "NVIDIA H200, text for sm_90a", or "NVIDIA H200, text for sm_80, run as PTX on sm_90". text_arch: the arch that
// kernels were generated for, which may be a spec's on the CPU back-end.
std::string device_text(const DeviceInfo& device, const std::string& text_arch);

// Sets arch and runs_ptx of a GPU whose name and own_arch are known. Fails with usage or unsupported if the GPU does
// not run what the options ask for, and says what would run it.
Result<void> choose_arch(const Options& options, DeviceInfo& gpu);

// Fails with unsupported if PTX of `arch` does not run on this GPU, and says why.
Result<void> check_runs_as_ptx(const std::string& arch, const DeviceInfo& gpu);

// How to run kernels for the first of `archs` that this GPU can run, as a note of an error; empty if it runs none.
std::string way_to_run(const std::vector<std::string>& archs, const DeviceInfo& gpu);

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

using DevicePointer = std::uint64_t;  // CUdeviceptr, or the address itself on the CPU back-end
using Stream = void*;                 // CUstream; null: the default stream. Ignored by the CPU back-end.

// A loaded kernel, which owns its module.
class Kernel {
 public:
  virtual ~Kernel() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& info() const = 0;

  // 0 bytes are legal and give pointer 0. Fails with environment when memory is short, and states the bytes requested
  // and free.
  virtual Result<DevicePointer> allocate(std::size_t bytes) = 0;
  virtual void release(DevicePointer pointer) = 0;
  virtual Result<void> copy_to_device(DevicePointer to, const void* from, std::size_t bytes) = 0;
  virtual Result<void> copy_to_host(void* to, DevicePointer from, std::size_t bytes) = 0;
  virtual Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) = 0;
  virtual Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes) = 0;
  virtual Result<void> synchronize(Stream stream) = 0;

  virtual Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact& artefact) = 0;
  // Queues a launch; the CPU back-end runs it to its end. args: one struct of source.args_bytes bytes.
  virtual Result<void> launch(const Kernel& kernel, Grid grid, const void* args, Stream stream) = 0;

  // The work that is timed. `buffer_set` is that of the call: 0, 1 .. buffer_sets - 1, 0 and so on.
  using Work = std::function<Result<void>(Stream, int buffer_set)>;
  // Duration of one call in microseconds, by device events on a GPU and by wall clock on the CPU: median and extremes
  // of `repeats` timed groups of `calls` calls.
  struct Timing {
    double median_us = 0, low_us = 0, high_us = 0;
    int repeats = 0, calls = 1;
  };
  virtual Result<Timing> time(const Work& work, int repeats, int buffer_sets) = 0;
};

// Fails unless both are at least 1.
Result<void> check_timing(int repeats, int buffer_sets);

// Fails with environment: the library names and folders that were searched, or that there is no device.
Result<std::shared_ptr<Backend>> open_cuda(const Options& options);
Result<std::shared_ptr<Backend>> open_cpu(const Options& options);

// Memory of Backend::allocate that frees itself.
class Buffer {
 public:
  Buffer() = default;
  static Result<Buffer> make(std::shared_ptr<Backend> backend, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  DevicePointer pointer() const { return pointer_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Backend> backend_;
  DevicePointer pointer_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace kvjit
