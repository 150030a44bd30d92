// The timing loops of the runtime's measurements: see bench_runtime.hpp.
// SPDX-License-Identifier: MIT
#include "tools/bench/bench_runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "runtime/base/parallel.hpp"
#include "runtime/device/driver.hpp"
#include "runtime/kvjit.hpp"
#include "runtime/launch/kv_layout.hpp"

namespace kvjit {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// The source with a comment that makes its text unique.
Source with_nonce(Source source, int number) {
  source.text = fmt::format("{}\n// nonce {} {}\n", source.text.str(), number, Clock::now().time_since_epoch().count());
  return source;
}

// Nanoseconds of a call: the median over kRuns groups of kCalls calls, after one group that is not counted.
Result<double> ns_each(const std::function<Result<void>()>& call) {
  constexpr int kRuns = 11, kCalls = 1000;
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) KV_CHECK(call());
    if (run > 0) times.push_back(us_since(begin) * 1000 / kCalls);
  }
  return median(times);
}

constexpr int kGroups = 21;
constexpr int kLaunches = 100;  // launches of a group: fewer than the driver queues before it blocks

// Microseconds of a launch: the median over kGroups groups, after one group that is not counted.
Result<double> time_launches(Backend& backend, const std::function<Result<void>()>& launch) {
  std::vector<double> times;
  for (int group = 0; group <= kGroups; ++group) {
    const auto begin = Clock::now();
    for (int i = 0; i < kLaunches; ++i) KV_CHECK(launch());
    if (group > 0) times.push_back(us_since(begin) / kLaunches);
    KV_CHECK(backend.synchronize(nullptr));
  }
  return median(times);
}

// A kernel that does nothing, with the arch, threads and bytes of arguments of `like`.
Source empty_kernel(const Source& like) {
  Source source;
  source.name = "nothing";
  source.entry = "kv_nothing";
  source.arch = like.arch;
  source.threads = like.threads;
  source.args_bytes = like.args_bytes;
  source.text = fmt::format(
      "struct Args {{ long long words[{}]; }};\nextern \"C\" __global__ void kv_nothing(const Args args) {{}}\n",
      (like.args_bytes + 7) / 8);
  return source;
}

// Microseconds of a launch of such a kernel by the driver, without the runtime in between.
Result<double> driver_launch(const Context& context, const Source& attend) {
  KV_TRY(driver, Driver::open(context.options()));
  KV_TRY(compiler, open_nvrtc(context.options()));
  const Source source = empty_kernel(attend);
  KV_TRY(artefact, compiler->compile(source));
  const auto check = [&driver](CuResult status, const char* doing) -> Result<void> {
    if (status == 0) return {};
    return driver->error(status, doing);
  };
  CuDevice device = 0;
  CuContext primary = nullptr, popped = nullptr;
  KV_CHECK(check(driver->cuDeviceGet(&device, context.options().device_ordinal), "opening the device"));
  KV_CHECK(check(driver->cuDevicePrimaryCtxRetain(&primary, device), "retaining the primary context"));
  KV_CHECK(check(driver->cuCtxPushCurrent_v2(primary), "binding the primary context"));
  CuModule module = nullptr;
  CuFunction function = nullptr;
  const auto timed = [&]() -> Result<double> {
    KV_CHECK(check(driver->cuModuleLoadDataEx(&module, artefact.bytes.data(), 0, nullptr, nullptr), "loading"));
    KV_CHECK(check(driver->cuModuleGetFunction(&function, module, source.entry.c_str()), "looking for the kernel"));
    std::vector<long long> args(static_cast<std::size_t>(source.args_bytes + 7) / 8);
    void* parameters[] = {args.data()};
    return time_launches(*context.backend(), [&] {
      return check(driver->cuLaunchKernel(function, 1, 1, 1, static_cast<unsigned>(source.threads), 1, 1, 0, nullptr,
                                          parameters, nullptr),
                   "launching");
    });
  }();
  if (module) driver->cuModuleUnload(module);
  driver->cuCtxPopCurrent_v2(&popped);
  driver->cuDevicePrimaryCtxRelease_v2(device);
  return timed;
}

}  // namespace

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

Result<std::vector<double>> cold_compiles(const Options& options, bool is_gpu, const Source& source, int runs) {
  KV_TRY(compiler, is_gpu ? open_nvrtc(options) : open_host_compiler(options));
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    KV_TRY(artefact, compiler->compile(with_nonce(source, i)));
    times.push_back(artefact.compile_ms);
  }
  return times;
}

Result<KernelSizes> kernel_sizes(const Options& options, bool is_gpu, const Source& source) {
  KernelSizes sizes{source.text.size(), 0, 0};
  KV_TRY(compiler, is_gpu ? open_nvrtc(options) : open_host_compiler(options));
  KV_TRY(object, compiler->compile(source));
  sizes.object = object.bytes.size();
  if (!is_gpu) return sizes;
  KV_TRY(to_ptx, open_nvrtc(options, ArtefactKind::ptx));
  KV_TRY(ptx, to_ptx->compile(source));
  sizes.ptx = ptx.bytes.size();
  return sizes;
}

Result<double> memory_hit(Context& context, const Source& source) {
  return ns_each([&]() -> Result<void> {
    KV_TRY(record, context.get(source));
    if (record.origin != Origin::memory) return fail(Code::internal, source.name + " was not in memory");
    return {};
  });
}

namespace {

// A session of the C interface on the device that the options ask for.
struct Session {
  kvjit_error error = api::sized<kvjit_error>();
  api::Context context;

  Result<void> check(kvjit_status status) const {
    if (status == KVJIT_OK) return {};
    return fail(static_cast<Code>(status), error.message);
  }
  Result<void> open(const Options& options) {
    auto requested = api::sized<kvjit_context_options>();
    requested.device = options.device == DeviceKind::gpu ? KVJIT_DEVICE_GPU : KVJIT_DEVICE_CPU;
    requested.ordinal = options.device_ordinal;
    requested.cache_dir = options.cache_dir.c_str();
    return check(context.open(requested, error));
  }
};

}  // namespace

Result<double> program_again(const Options& options, const std::string& toml) {
  Session session;
  KV_CHECK(session.open(options));
  api::Program first;
  KV_CHECK(session.check(first.open(session.context, toml.c_str(), "spec", nullptr, session.error)));
  return ns_each([&]() -> Result<void> {
    api::Program again;
    return session.check(again.open(session.context, toml.c_str(), "spec", nullptr, session.error));
  });
}

Result<QuestionCost> question_cost(const Options& options, const std::string& toml, const std::string& arch) {
  constexpr int kNew = 101;
  QuestionCost cost;
  std::vector<double> times;
  for (int i = 0; i < kNew; ++i) {
    const std::string text = fmt::format("# {}\n{}", i, toml);
    const auto begin = Clock::now();
    const kvjit_status status = kvjit_supported(text.c_str(), arch.c_str(), nullptr, 0);
    times.push_back(us_since(begin));
    if (status != KVJIT_OK) return fail(static_cast<Code>(status), "the spec is not supported");
  }
  cost.new_us = median(times);
  KV_TRY(again, ns_each([&]() -> Result<void> {
           if (kvjit_supported(toml.c_str(), arch.c_str(), nullptr, 0) == KVJIT_OK) return {};
           return fail(Code::internal, "another answer than before");
         }));
  cost.again_ns = again;
  Session session;
  KV_CHECK(session.open(options));
  api::Program program;
  KV_CHECK(session.check(program.open(session.context, toml.c_str(), "spec", nullptr, session.error)));
  const char* const specs[] = {toml.c_str()};
  auto call = api::sized<kvjit_readiness_call>();
  call.specs = specs, call.spec_count = 1;
  KV_TRY(readiness, ns_each([&]() -> Result<void> {
           int state = 0;
           KV_CHECK(session.check(kvjit_readiness(session.context.get(), &call, &state, &session.error)));
           if (state == KVJIT_READY) return {};
           return fail(Code::internal, "a loaded program is not ready");
         }));
  cost.readiness_ns = readiness;
  return cost;
}

Result<double> warm_many(const Options& options, const Source& source, int count, unsigned threads) {
  Options fresh = options;
  fresh.cache_dir = "off";
  fresh.log = {};
  KV_TRY(context, Context::open(fresh));
  std::vector<Source> sources;
  for (int i = 0; i < count; ++i) sources.push_back(with_nonce(source, i));
  std::mutex mutex;
  Result<void> outcome;
  const auto begin = Clock::now();
  in_parallel(sources.size(), threads, [&](std::size_t i) {
    const auto record = context->get(sources[i]);
    const std::lock_guard guard(mutex);
    if (!record && outcome) outcome = tl::unexpected(record.error());
  });
  KV_CHECK(outcome);
  return us_since(begin) / 1000;
}

Result<LaunchCost> launch_cost(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program) {
  const ProgramSource& source = program->source();
  if (source.features.any() || source.page_tokens > 0 || source.append || source.checks)
    return fail(Code::unsupported, "a launch is timed for specs without features, pages, checks and append");
  constexpr int kTokens = 256;
  const std::shared_ptr<Backend>& backend = context->backend();
  const SideGeometry k = side_geometry(source, source.k, 1, 1, kTokens),
                     v = side_geometry(source, source.v, 1, 1, kTokens);
  const std::size_t rows =
      static_cast<std::size_t>(source.query_length) * static_cast<std::size_t>(source.q_heads_per_kv);
  KV_TRY(k_memory, Buffer::make(backend, k.total_bytes));
  KV_TRY(v_memory, Buffer::make(backend, v.total_bytes));
  KV_TRY(q, Buffer::make(backend, rows * static_cast<std::size_t>(source.head_dim) * 4));
  KV_TRY(out, Buffer::make(backend, rows * static_cast<std::size_t>(source.head_dim_v) * 4));
  for (const Buffer* buffer : {&k_memory, &v_memory, &q})
    KV_CHECK(backend->fill(buffer->pointer(), 0, buffer->bytes()));
  AttentionCall call;
  const auto rows_of = [&](const Buffer& buffer, long long dim) {
    return kv::Rows{reinterpret_cast<void*>(buffer.pointer()), 0, source.q_heads_per_kv * dim, dim};
  };
  call.q = rows_of(q, source.head_dim);
  call.out = rows_of(out, source.head_dim_v);
  call.k = at(k, k_memory.pointer());
  call.v = at(v, v_memory.pointer());
  call.tokens = kTokens;
  KV_TRY(workspace, Buffer::make(backend, program->workspace_bytes(call)));
  KV_CHECK(backend->fill(workspace.pointer(), 0, kCounterBytes));

  LaunchCost cost;
  KV_TRY(attention_us, time_launches(*backend, [&]() -> Result<void> {
           KV_TRY(report, program->attention(call, workspace.pointer(), nullptr));
           cost.kernels = report.kernels.size();
           return {};
         }));
  cost.attention_us = attention_us;
  KV_TRY(driver_us, driver_launch(*context, source.kernels.at(Role::decode)));
  cost.driver_us = driver_us;
  return cost;
}

}  // namespace kvjit
