// The CUDA back-end: one device through the driver API, on its primary context. The context is bound around each call,
// so any thread may call, and the engine's own current context stays as it was.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/device/backend.hpp"
#include "runtime/device/driver.hpp"

namespace kvjit {
namespace {

// Dynamic shared memory that a block gets without opting in (CUDA C++ Programming Guide, 16.2).
constexpr int kDefaultSharedBytes = 48 << 10;
constexpr int kWarmUps = 3;  // calls before a timing
// Microseconds. A shorter call is timed in a graph of kGraphCalls calls. A call that is timed alone takes some 4 us
// longer, which is 0.1 % of this limit.
constexpr double kShortUs = 4000;
constexpr int kGraphCalls = 20;

// The retained primary context. The back-end and its kernels share it.
struct Device {
  std::shared_ptr<const Driver> driver;
  CuDevice id = 0;
  CuContext context = nullptr;
  int shared_opt_in = 0;
  ~Device() {
    if (context) driver->cuDevicePrimaryCtxRelease_v2(id);
  }
};

class Bound {
 public:
  explicit Bound(const Device& device)
      : driver_(*device.driver), status_(driver_.cuCtxPushCurrent_v2(device.context)) {}
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() {
    CuContext popped = nullptr;
    if (status_ == 0) driver_.cuCtxPopCurrent_v2(&popped);
  }

 private:
  const Driver& driver_;
  CuResult status_;  // a failed push leaves no context bound: the call that follows reports it
};

// A handle of the driver that `destroy` releases. It must live inside the scope of a Bound.
template <class Handle>
class Owned {
 public:
  explicit Owned(CuResult (*destroy)(Handle)) : destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_) destroy_(handle_);
  }
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  CuResult (*destroy_)(Handle);
  Handle handle_ = nullptr;
};

struct Graph {
  explicit Graph(const Driver& driver) : graph(driver.cuGraphDestroy), exec(driver.cuGraphExecDestroy) {}
  Owned<CuGraph> graph;
  Owned<CuGraphExec> exec;
};

struct CudaKernel final : Kernel {
  std::shared_ptr<Device> device;
  std::string name;
  CuModule module = nullptr;
  CuFunction function = nullptr;
  unsigned threads = 0, shared_bytes = 0;
  bool may_overlap = false;
  ~CudaKernel() override {
    if (!module) return;
    const Bound bound(*device);
    device->driver->cuModuleUnload(module);
  }
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::shared_ptr<Device> device, DeviceInfo info)
      : device_(std::move(device)), driver_(*device_->driver), info_(std::move(info)) {}

  const DeviceInfo& info() const override { return info_; }

  Result<DevicePointer> allocate(std::size_t bytes) override {
    if (bytes == 0) return DevicePointer{0};
    const Bound bound(*device_);
    CuPointer pointer = 0;
    const CuResult status = driver_.cuMemAlloc_v2(&pointer, bytes);
    if (status == 0) return pointer;
    std::size_t free = 0, total = 0;
    if (status == kCuErrorOutOfMemory && driver_.cuMemGetInfo_v2(&free, &total) == 0)
      return fail(Code::environment,
                  fmt::format("{} bytes were requested, {} of {} are free on {}", bytes, free, total, info_.name));
    return driver_.error(status, fmt::format("allocating {} bytes", bytes));
  }

  void release(DevicePointer pointer) override {
    if (pointer == 0) return;
    const Bound bound(*device_);
    driver_.cuMemFree_v2(pointer);
  }

  Result<void> copy_to_device(DevicePointer to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return {};
    const Bound bound(*device_);
    KV_CHECK(check(driver_.cuMemcpyHtoD_v2(to, from, bytes), "copying to the device"));
    // A copy from pageable memory may return before its last bytes have arrived, and other streams do not wait for it.
    return check(driver_.cuStreamSynchronize(nullptr), "copying to the device");
  }

  Result<void> copy_to_host(void* to, DevicePointer from, std::size_t bytes) override {
    if (bytes == 0) return {};
    const Bound bound(*device_);
    return check(driver_.cuMemcpyDtoH_v2(to, from, bytes), "copying from the device");
  }

  Result<void> copy_on_device(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) override {
    const Bound bound(*device_);
    return check(driver_.cuMemcpyDtoDAsync_v2(to, from, bytes, static_cast<CuStream>(stream)), "copying on the device");
  }

  // Waits for the fill, because kernels may follow on a stream that is not ordered behind the default stream.
  Result<void> fill(DevicePointer to, std::uint8_t value, std::size_t bytes) override {
    if (bytes == 0) return {};
    const Bound bound(*device_);
    KV_CHECK(check(driver_.cuMemsetD8_v2(to, value, bytes), "filling device memory"));
    return check(driver_.cuStreamSynchronize(nullptr), "filling device memory");
  }

  Result<void> synchronize(Stream stream) override {
    const Bound bound(*device_);
    return check(driver_.cuStreamSynchronize(static_cast<CuStream>(stream)), "waiting for the stream");
  }

  Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact& artefact) override {
    const auto& bytes = artefact.bytes;
    const bool is_cubin =
        artefact.kind == ArtefactKind::cubin && bytes.size() >= 64 && std::memcmp(bytes.data(), "\177ELF", 4) == 0;
    // The driver reads PTX up to its terminating zero.
    const bool is_ptx = artefact.kind == ArtefactKind::ptx && !bytes.empty() && bytes.back() == 0;
    if (!is_cubin && !is_ptx)
      return fail(Code::integrity, source.name + " is neither a cubin nor PTX: the CUDA back-end loads nothing else");
    const Bound bound(*device_);
    auto kernel = std::make_shared<CudaKernel>();
    kernel->device = device_;
    kernel->name = source.name;
    kernel->threads = static_cast<unsigned>(source.threads);
    kernel->shared_bytes = static_cast<unsigned>(source.shared_bytes);
    kernel->may_overlap = source.may_overlap;
    KV_CHECK(load_module(kernel->module, source, artefact));
    KV_CHECK(check(driver_.cuModuleGetFunction(&kernel->function, kernel->module, source.entry.c_str()),
                   fmt::format("looking for {} in {}", source.entry, source.name)));

    int max_threads = 0, static_shared = 0, registers = 0;
    KV_CHECK(
        check(driver_.cuFuncGetAttribute(&max_threads, kCuFunctionMaxThreads, kernel->function), "reading attributes"));
    KV_CHECK(check(driver_.cuFuncGetAttribute(&static_shared, kCuFunctionStaticShared, kernel->function),
                   "reading attributes"));
    KV_CHECK(
        check(driver_.cuFuncGetAttribute(&registers, kCuFunctionRegisters, kernel->function), "reading attributes"));
    if (source.threads < 1 || source.threads > max_threads)
      return fail(Code::unsupported, fmt::format("{} wants {} threads a block; {} allows 1 to {} with its {} registers",
                                                 source.name, source.threads, info_.name, max_threads, registers));
    if (source.shared_bytes < 0 || source.shared_bytes > device_->shared_opt_in - static_shared)
      return fail(Code::unsupported,
                  fmt::format("{} wants {} bytes of shared memory a block beside its {} static ones; {} has {}",
                              source.name, source.shared_bytes, static_shared, info_.name, device_->shared_opt_in));
    if (source.shared_bytes + static_shared > kDefaultSharedBytes)
      KV_CHECK(check(driver_.cuFuncSetAttribute(kernel->function, kCuFunctionMaxDynamicShared, source.shared_bytes),
                     fmt::format("giving {} {} bytes of shared memory", source.name, source.shared_bytes)));
    return kernel;
  }

  Result<void> launch(const Kernel& kernel, Grid grid, const void* args, Stream stream) override {
    const auto* ours = dynamic_cast<const CudaKernel*>(&kernel);
    if (!ours || ours->device != device_) return fail(Code::internal, "a kernel of another back-end was launched");
    const Bound bound(*device_);
    void* parameters[] = {const_cast<void*>(args)};  // the driver copies args_bytes from here and writes nothing
    const CuLaunchAttribute overlap{kCuLaunchProgrammaticSerialization, 0, {1}};
    const CuLaunchConfig config{grid.x,
                                grid.y,
                                grid.z,
                                ours->threads,
                                1,
                                1,
                                ours->shared_bytes,
                                static_cast<CuStream>(stream),
                                &overlap,
                                ours->may_overlap ? 1u : 0u};
    const CuResult status = driver_.cuLaunchKernelEx(&config, ours->function, parameters, nullptr);
    if (status == 0) return {};
    return driver_.error(status, fmt::format("launching {} with grid {}x{}x{}, {} threads, {} bytes of shared memory",
                                             ours->name, grid.x, grid.y, grid.z, ours->threads, ours->shared_bytes));
  }

  // Times calls that follow each other on one stream. `buffer_sets` is the number of buffer sets. With one set, data
  // that fits the L2 cache stays in it, as in a short loop. With sets that together exceed the L2 several times, every
  // call reads from memory, as the layers of a model do.
  Result<Timing> time(const Work& work, int repeats, int buffer_sets) override {
    KV_CHECK(check_timing(repeats, buffer_sets));
    const Bound bound(*device_);
    KV_CHECK(check(driver_.cuStreamSynchronize(nullptr), "waiting for earlier work"));
    Owned<CuStream> stream(driver_.cuStreamDestroy_v2);
    Owned<CuEvent> start(driver_.cuEventDestroy_v2), stop(driver_.cuEventDestroy_v2);
    KV_CHECK(check(driver_.cuStreamCreate(stream.out(), kCuStreamNonBlocking), "creating a stream"));
    KV_CHECK(check(driver_.cuEventCreate(start.out(), 0), "creating an event"));
    KV_CHECK(check(driver_.cuEventCreate(stop.out(), 0), "creating an event"));

    const auto timed_us = [&](const auto& group) -> Result<double> {
      KV_CHECK(check(driver_.cuEventRecord(start.get(), stream.get()), "recording an event"));
      KV_CHECK(group());
      KV_CHECK(check(driver_.cuEventRecord(stop.get(), stream.get()), "recording an event"));
      KV_CHECK(check(driver_.cuEventSynchronize(stop.get()), "running the timed work"));
      float ms = 0;
      KV_CHECK(check(driver_.cuEventElapsedTime(&ms, start.get(), stop.get()), "reading a timer"));
      return 1000.0 * ms;
    };
    int buffer_set = 0;
    const auto once = [&] { return work(stream.get(), std::exchange(buffer_set, (buffer_set + 1) % buffer_sets)); };
    for (int i = 0; i < kWarmUps; ++i) KV_CHECK(once());
    KV_TRY(once_us, timed_us(once));

    // The graphs of kGraphCalls calls together use every buffer set. Each graph is launched once before
    // timing starts, which uploads it.
    const int calls = once_us < kShortUs ? kGraphCalls : 1;
    std::vector<std::unique_ptr<Graph>> graphs;
    if (calls > 1)
      for (int i = 0; i < (buffer_sets + calls - 1) / calls; ++i) {
        graphs.push_back(std::make_unique<Graph>(driver_));
        KV_CHECK(capture(*graphs.back(), stream.get(), once, calls));
        KV_CHECK(replay(*graphs.back(), stream.get()));
      }

    std::vector<double> samples;
    for (int i = 0; i < repeats; ++i) {
      KV_TRY(group_us, timed_us([&]() -> Result<void> {
               return calls > 1 ? replay(*graphs[static_cast<std::size_t>(i) % graphs.size()], stream.get()) : once();
             }));
      samples.push_back(group_us / calls);
    }
    std::sort(samples.begin(), samples.end());
    return Timing{samples[samples.size() / 2], samples.front(), samples.back(), repeats, calls};
  }

 private:
  Result<void> check(CuResult status, const std::string& doing) const {
    if (status == 0) return {};
    return driver_.error(status, doing);
  }

  // The driver compiles PTX here; what its compiler says becomes the notes of the error.
  Result<void> load_module(CuModule& module, const Source& source, const Artefact& artefact) const {
    std::array<char, 4096> log{};
    std::array<int, 2> options = {kCuJitErrorLog, kCuJitErrorLogBytes};
    std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
    const bool is_ptx = artefact.kind == ArtefactKind::ptx;
    auto loaded = check(driver_.cuModuleLoadDataEx(&module, artefact.bytes.data(), is_ptx ? options.size() : 0,
                                                   options.data(), values.data()),
                        fmt::format("loading {} ({} for {}) on {} ({})", source.name, is_ptx ? "PTX" : "made",
                                    source.arch, info_.name, info_.own_arch));
    if (!loaded && log[0] != 0) loaded.error().notes.emplace_back(log.data());
    return loaded;
  }

  Result<void> capture(Graph& graph, CuStream stream, const std::function<Result<void>()>& call, int calls) {
    KV_CHECK(check(driver_.cuStreamBeginCapture_v2(stream, kCuCaptureThreadLocal), "capturing the timed work"));
    Result<void> captured;
    for (int i = 0; i < calls && captured; ++i) captured = call();
    const CuResult ended = driver_.cuStreamEndCapture(stream, graph.graph.out());
    KV_CHECK(captured);
    KV_CHECK(check(ended, "capturing the timed work"));
    return check(driver_.cuGraphInstantiateWithFlags(graph.exec.out(), graph.graph.get(), 0),
                 "making a graph of the timed work");
  }

  Result<void> replay(const Graph& graph, CuStream stream) {
    return check(driver_.cuGraphLaunch(graph.exec.get(), stream), "launching the timed graph");
  }

  std::shared_ptr<Device> device_;
  const Driver& driver_;
  DeviceInfo info_;
};

}  // namespace

Result<std::shared_ptr<Backend>> open_cuda(const Options& options) {
  KV_TRY(driver, Driver::open(options));
  const auto check = [&driver](CuResult status, const char* doing) -> Result<void> {
    if (status == 0) return {};
    return driver->error(status, doing);
  };
  int count = 0;
  KV_CHECK(check(driver->cuDeviceGetCount(&count), "counting the CUDA devices"));
  if (options.device_ordinal < 0 || options.device_ordinal >= count)
    return fail(Code::environment,
                fmt::format("CUDA device {} was requested; the driver shows {} (CUDA_VISIBLE_DEVICES "
                            "hides devices)",
                            options.device_ordinal, count));

  auto device = std::make_shared<Device>();
  device->driver = driver;
  DeviceInfo info;
  info.is_gpu = true;
  int major = 0, minor = 0;
  char name[256] = {};
  KV_CHECK(check(driver->cuDriverGetVersion(&info.driver_version), "reading the driver's version"));
  info.driver_file = driver->library.path();
  KV_CHECK(check(driver->cuDeviceGet(&device->id, options.device_ordinal), "opening the device"));
  KV_CHECK(check(driver->cuDeviceGetName(name, sizeof name, device->id), "reading the device's name"));
  KV_CHECK(check(driver->cuDeviceTotalMem_v2(&info.memory_bytes, device->id), "reading the device's memory"));
  const std::pair<int, int*> attributes[] = {{kCuAttributeMultiprocessors, &info.multiprocessors},
                                             {kCuAttributeCapabilityMajor, &major},
                                             {kCuAttributeCapabilityMinor, &minor},
                                             {kCuAttributeSharedOptIn, &device->shared_opt_in},
                                             {kCuAttributeL2Bytes, &info.l2_bytes},
                                             {kCuAttributeMemoryClockKhz, &info.memory_clock_khz},
                                             {kCuAttributeMemoryBusBits, &info.memory_bus_bits}};
  for (const auto& [attribute, value] : attributes)
    KV_CHECK(check(driver->cuDeviceGetAttribute(value, attribute, device->id), "reading the device's attributes"));
  info.name = name;
  info.own_arch = arch_of(major, minor);
  KV_CHECK(choose_arch(options, info));
  KV_CHECK(check(driver->cuDevicePrimaryCtxRetain(&device->context, device->id), "retaining the primary context"));
  return std::make_shared<CudaBackend>(std::move(device), std::move(info));
}

}  // namespace kvjit
