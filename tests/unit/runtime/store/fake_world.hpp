// A device that executes no kernel and a compiler whose artefact is the text itself, for tests of contexts and stores.
// SPDX-License-Identifier: MIT
#pragma once
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "runtime/jit/context.hpp"
#include "tests/support/temp_folder.hpp"

namespace kvjit::test {

namespace fs = std::filesystem;

struct FakeKernel : Kernel {
  std::vector<std::uint8_t> bytes;
};

class FakeBackend : public Backend {
 public:
  const DeviceInfo& info() const override { return info_; }
  Result<DevicePointer> allocate(std::size_t) override { return DevicePointer{0}; }
  void release(DevicePointer) override {}
  Result<void> copy_to_device(DevicePointer, const void*, std::size_t) override { return {}; }
  Result<void> copy_to_host(void*, DevicePointer, std::size_t) override { return {}; }
  Result<void> copy_on_device(DevicePointer, DevicePointer, std::size_t, Stream) override { return {}; }
  Result<void> fill(DevicePointer, std::uint8_t, std::size_t) override { return {}; }
  Result<void> synchronize(Stream) override { return {}; }
  Result<std::shared_ptr<Kernel>> load(const Source&, const Artefact& artefact) override {
    auto kernel = std::make_shared<FakeKernel>();
    kernel->bytes = artefact.bytes;
    return kernel;
  }
  Result<void> launch(const Kernel&, Grid, const void*, Stream) override { return {}; }
  Result<Timing> time(const Work&, int, int) override { return Timing{}; }

 private:
  DeviceInfo info_;
};

// State that all contexts of a test share: counters, and the behaviour of the fakes.
struct World {
  std::atomic<int> opened{0}, compiled{0};
  std::atomic<bool> fails{false}, heeds_stop{false};
  std::chrono::milliseconds takes{0};
  std::string version = "fake 1.0";
  std::string marker;  // a file that each compile appends a byte to; counts across processes
};

class FakeCompiler : public Compiler {
 public:
  explicit FakeCompiler(World& world) : world_(world) {}
  std::string identity() const override { return world_.version; }
  std::vector<std::string> options(const Source&) const override { return {"-fake"}; }
  std::vector<std::string> archs() const override { return {}; }
  Result<Artefact> compile(const Source& source, std::stop_token stop) override {
    ++world_.compiled;
    if (!world_.marker.empty()) std::ofstream(world_.marker, std::ios::app) << 'x' << std::flush;
    for (const auto end = std::chrono::steady_clock::now() + world_.takes; std::chrono::steady_clock::now() < end;) {
      if (world_.heeds_stop && stop.stop_requested()) return fail(Code::cancelled, "cancelled");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (world_.fails) return fail(Code::compile, "refused");
    Artefact artefact;
    artefact.bytes.assign(source.text.str().begin(), source.text.str().end());
    artefact.registers = 33;
    artefact.spill_store_bytes = 4;
    artefact.spill_load_bytes = 8;
    return artefact;
  }

 private:
  World& world_;
};

struct StoreFixture {
  StoreFixture() {
    options.cache_dir = folder + "/cache";
    options.log = [this](const std::string& line) {
      const std::lock_guard guard(mutex);
      lines.push_back(line);
    };
  }

  std::shared_ptr<Context> context(bool options_are_known = true) {
    Toolchain toolchain;
    toolchain.open = [this]() -> Result<std::shared_ptr<Compiler>> {
      ++world.opened;
      return std::make_shared<FakeCompiler>(world);
    };
    toolchain.options = [](const Source&) { return std::vector<std::string>{"-fake"}; };
    toolchain.is_identity_in_key = !options_are_known;
    auto made = make_context(options, device ? device : std::make_shared<SharedDevice>(std::make_shared<FakeBackend>()),
                             toolchain);
    REQUIRE(made);
    return *made;
  }
  int lines_with(const std::string& part) const {
    int count = 0;
    for (const auto& line : lines) count += line.find(part) != std::string::npos;
    return count;
  }
  std::string only_entry() const {
    for (const auto& file : fs::recursive_directory_iterator(options.cache_dir))
      if (file.path().extension() == ".kvc") return file.path();
    return {};
  }

  test::TempFolder temporary;
  const std::string& folder = temporary.path;
  Options options;
  World world;
  std::shared_ptr<SharedDevice> device;  // shared by all contexts of the test; null: one for each
  std::mutex mutex;
  std::vector<std::string> lines;
};

inline Source sample(const std::string& text = "kernel text") {
  Source source;
  source.name = "decode.sample";
  source.entry = "kv_decode";
  source.arch = "sm_90a";
  source.text = text;
  return source;
}

inline std::string text_of(const KernelRecord& record) {
  const auto& bytes = static_cast<const FakeKernel&>(*record.kernel).bytes;
  return {bytes.begin(), bytes.end()};
}

}  // namespace kvjit::test
