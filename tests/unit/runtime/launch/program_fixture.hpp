// ProgramFixture: a program over a back-end that records its launches.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <cstring>

#include "runtime/launch/kv_layout.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit::test {

struct NamedKernel : Kernel {
  std::string name;
  explicit NamedKernel(std::string n) : name(std::move(n)) {}
};

struct Launch {
  std::string name;
  Grid grid;
  std::vector<std::uint8_t> args;
  template <class T>
  T as() const {
    T value;
    REQUIRE(args.size() == sizeof value);
    std::memcpy(&value, args.data(), sizeof value);
    return value;
  }
};

struct RecordingBackend : Backend {
  DeviceInfo device{true, "fake", "sm_90a", 132, 0, 0};
  std::map<std::string, std::size_t> args_bytes;
  std::vector<Launch> launches;

  const DeviceInfo& info() const override { return device; }
  Result<DevicePointer> allocate(std::size_t) override { return 0; }
  void release(DevicePointer) override {}
  Result<void> copy_to_device(DevicePointer, const void*, std::size_t) override { return {}; }
  Result<void> copy_to_host(void*, DevicePointer, std::size_t) override { return {}; }
  Result<void> copy_on_device(DevicePointer, DevicePointer, std::size_t, Stream) override { return {}; }
  Result<void> fill(DevicePointer, std::uint8_t, std::size_t) override { return {}; }
  Result<void> synchronize(Stream) override { return {}; }
  Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact&) override {
    return std::make_shared<NamedKernel>(source.name);
  }
  Result<void> launch(const Kernel& kernel, Grid grid, const void* args, Stream) override {
    const std::string& name = dynamic_cast<const NamedKernel&>(kernel).name;
    const auto* bytes = static_cast<const std::uint8_t*>(args);
    launches.push_back({name, grid, {bytes, bytes + args_bytes.at(name)}});
    return {};
  }
  Result<Timing> time(const Work&, int, int) override { return Timing{}; }
};

struct FakeContext : Context {
  std::shared_ptr<RecordingBackend> recorder = std::make_shared<RecordingBackend>();
  std::shared_ptr<Backend> base = recorder;
  Options nothing;
  std::vector<std::string> got;
  const std::shared_ptr<Backend>& backend() const override { return base; }
  const Options& options() const override { return nothing; }
  Result<KernelRecord> get(const Source& source, std::stop_token) override {
    got.push_back(source.name);
    recorder->args_bytes[source.name] = static_cast<std::size_t>(source.args_bytes);
    KernelRecord record;
    record.name = source.name;
    record.kernel = std::make_shared<NamedKernel>(source.name);
    return record;
  }
  CacheCounters counters() const override { return {}; }
};

inline ProgramSource make_source(bool k_rotated, bool v_rotated, bool planar = true) {
  ProgramSource source;
  source.id = "test";
  source.layout = planar ? Layout::planar : Layout::rows;
  source.head_dim = source.head_dim_v = 128;
  source.q_heads_per_kv = 4;
  source.query_length = 2;
  source.rows = 8;
  source.tile_tokens = 64;
  source.timing = {24576, 33e3, 7, 1.2, 0.65, 1.8, 0.001};
  source.k = {"key_format", k_rotated, 72, 64, 8, 4.5, 128, 128};
  source.v = {"value_format", v_rotated, 50, 48, 2, 3.125, 128, 128};
  const auto add = [&](Role role, const char* name, int threads, std::size_t args) {
    Source kernel;
    kernel.name = kernel.entry = name;
    kernel.threads = threads;
    kernel.args_bytes = static_cast<int>(args);
    if (role == Role::merge) kernel.row_threads = threads;
    source.kernels[role] = kernel;
  };
  if (k_rotated) add(Role::rotate_q, "rotate_q", 256, sizeof(kv::RotateArgs));
  if (v_rotated) add(Role::rotate_out, "rotate_out", 256, sizeof(kv::RotateArgs));
  add(Role::decode, "decode", 128, sizeof(kv::AttentionArgs));
  add(Role::merge, "merge", 128, sizeof(kv::MergeArgs));
  add(Role::reference, "reference", 32, sizeof(kv::AttentionArgs));
  add(Role::quantize_k, "quantize_k", 128, sizeof(kv::CodecArgs));
  add(Role::dequantize_v, "dequantize_v", 128, sizeof(kv::CodecArgs));
  return source;
}

constexpr DevicePointer kBase = 1 << 20;
template <class T>
T* pointer(DevicePointer address) {
  return reinterpret_cast<T*>(address);
}
inline DevicePointer address(const void* p) { return reinterpret_cast<DevicePointer>(p); }

struct ProgramFixture {
  std::shared_ptr<FakeContext> context = std::make_shared<FakeContext>();
  std::shared_ptr<Program> program;
  AttentionCall call;
  std::vector<Launch>& launches = context->recorder->launches;

  explicit ProgramFixture(ProgramSource source) {
    call.sequences = 3;
    call.kv_heads = 2;
    call.tokens = 1000;
    call.q = {pointer<void>(kBase), 2048, 1024, 128};
    call.out = {pointer<void>(2 * kBase), 2048, 1024, 128};
    call.k = at(side_geometry(source, source.k, 3, 2, 1000), 3 * kBase);
    call.v = at(side_geometry(source, source.v, 3, 2, 1000), 9 * kBase);
    const auto made = Program::create(context, std::move(source));
    REQUIRE(made);
    program = *made;
  }
  LaunchReport attend() {
    const auto report = program->attention(call, 64 * kBase, nullptr);
    REQUIRE(report);
    return *report;
  }
  // Changes the call and checks that it is refused with a message that contains `message`.
  template <class Change>
  void refuses(Change change, const std::string& message) const {
    AttentionCall changed = call;
    change(changed);
    const auto ran = program->attention(changed, 64 * kBase, nullptr);
    REQUIRE_FALSE(ran);
    CHECK(ran.error().code == Code::bad_input);
    CHECK_MESSAGE(ran.error().message.find(message) != std::string::npos, ran.error().message);
  }
};

}  // namespace kvjit::test
