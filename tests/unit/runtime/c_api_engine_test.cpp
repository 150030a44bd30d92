// What an engine needs beside calls: programs in the background, warm lists, stores of its own, sealing, and what it is told of
// kernels. All on the CPU back-end with one small spec, so that it is compiled once.
// SPDX-License-Identifier: MIT
#include <atomic>
#include <filesystem>
#include <map>

#include "tests/unit/runtime/c_api.hpp"

namespace kvjit::test {
namespace {

namespace fs = std::filesystem;

struct Engine {
  Engine() {
    std::string name = (fs::temp_directory_path() / "kvjit-engine-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    folder = name;
    options.device = KVJIT_DEVICE_CPU;
    options.cache_dir = folder.c_str();
    options.cache_user = this;
    options.cache_get = [](void* user, const char* key, void (*give)(void*, const void*, size_t), void* to) {
      const auto& kept = static_cast<Engine*>(user)->kept;
      if (const auto known = kept.find(key); known != kept.end()) give(to, known->second.data(), known->second.size());
    };
    options.cache_put = [](void* user, const char* key, const void* entry, size_t bytes) {
      static_cast<Engine*>(user)->kept[key] = std::string(static_cast<const char*>(entry), bytes);
    };
  }
  ~Engine() { fs::remove_all(folder); }

  api::Context open() {
    api::Context context;
    INFO(error.message);
    REQUIRE(context.open(options, error) == KVJIT_OK);
    return context;
  }
  kvjit_stats stats(const api::Context& context) {
    auto stats = sized<kvjit_stats>();
    CHECK(kvjit_context_stats(context.get(), &stats, &error) == KVJIT_OK);
    return stats;
  }

  std::string folder;
  std::map<std::string, std::string> kept;
  kvjit_context_options options = sized<kvjit_context_options>();
  kvjit_error error = sized<kvjit_error>();
  const std::string toml = spec("none", "planar");
};

TEST_CASE_FIXTURE(Engine, "a program comes in the background; its kernels are kept, shared, and served when sealed") {
  const auto first = open();
  std::atomic<int> said = -1;
  kvjit_request* request = nullptr;
  const auto done = [](void* user, kvjit_status status) { *static_cast<std::atomic<int>*>(user) = status; };
  REQUIRE(kvjit_program_request(first.get(), toml.c_str(), "spec", nullptr, done, &said, &request, &error) == KVJIT_OK);
  kvjit_program* program = reinterpret_cast<kvjit_program*>(1);
  CHECK(kvjit_request_wait(request, 0, &program, &error) == KVJIT_OK);
  CHECK(program == nullptr);  // a compile takes longer than that
  REQUIRE(kvjit_request_wait(request, -1, &program, &error) == KVJIT_OK);
  REQUIRE(program != nullptr);
  kvjit_program* twice = nullptr;
  CHECK(kvjit_request_wait(request, -1, &twice, &error) == KVJIT_USAGE);
  kvjit_request_destroy(request);
  CHECK(said == KVJIT_OK);

  int count = 0;
  CHECK(kvjit_program_kernel_count(program, &count, &error) == KVJIT_OK);
  REQUIRE(count == 1);
  auto facts = sized<kvjit_kernel_facts>();
  CHECK(kvjit_program_kernel(program, 1, &facts, &error) == KVJIT_USAGE);
  REQUIRE(kvjit_program_kernel(program, 0, &facts, &error) == KVJIT_OK);
  CHECK(std::string(facts.role) == "attend");
  CHECK(std::string(facts.origin) == "compiled");
  CHECK(std::string(facts.key).size() == 64);
  CHECK(facts.threads > 0);
  CHECK(facts.code_bytes > 1000);
  CHECK(facts.compile_ms > 0);
  CHECK(facts.ready_ms >= facts.compile_ms);
  REQUIRE(kept.size() == 1);
  CHECK(kept.begin()->first == facts.key);

  // Another context of the device, sealed: from disk, and the module that is there.
  const auto second = open();
  CHECK(kvjit_seal(second.get(), &error) == KVJIT_OK);
  api::Program again;
  REQUIRE(again.open(second, toml.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  kvjit_stats seen = stats(second);
  CHECK(seen.disk_hits == 1);
  CHECK(seen.compiles == 0);
  CHECK(seen.kernels == 1);
  CHECK(seen.shared_kernels == 1);
  CHECK(seen.code_bytes == facts.code_bytes);
  CHECK(seen.device_kernels == 1);
  CHECK(seen.device_code_bytes == facts.code_bytes);
  CHECK(stats(first).shared_kernels == 0);
  std::string other = toml;
  other.replace(other.find("bits = 3"), 8, "bits = 2");
  api::Program refused;
  CHECK(refused.open(second, other.c_str(), nullptr, nullptr, error) == KVJIT_SEALED);
  CHECK(contains(error.message, "would have to be compiled"));

  // A machine with neither the folder nor a compiler, but the engine's store. The CPU's key is its compiler's, so that one is there.
  options.cache_dir = "off";
  const auto third = open();
  kvjit_seal(third.get(), nullptr);
  api::Program given;
  REQUIRE(given.open(third, toml.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  CHECK(stats(third).callback_hits == 1);
  kvjit_program_destroy(program);

  // A sealed context refuses a warm list, and says so before anything is marked.
  const char* specs[] = {other.c_str()};
  auto call = sized<kvjit_warm_call>();
  call.specs = specs;
  call.spec_count = 1;
  CHECK(kvjit_warm(third.get(), &call, nullptr, &error) == KVJIT_SEALED);
}

TEST_CASE_FIXTURE(Engine, "a request can be cancelled, and tells what is wrong with a spec") {
  const auto context = open();
  kvjit_request* request = nullptr;
  kvjit_program* program = nullptr;
  REQUIRE(kvjit_program_request(context.get(), toml.c_str(), nullptr, nullptr, nullptr, nullptr, &request, &error) ==
          KVJIT_OK);
  kvjit_request_cancel(request);
  CHECK(kvjit_request_wait(request, -1, &program, &error) == KVJIT_CANCELLED);
  kvjit_request_destroy(request);
  CHECK(kept.empty());

  REQUIRE(kvjit_program_request(context.get(), "nonsense", "mine.toml", nullptr, nullptr, nullptr, &request, &error) ==
          KVJIT_OK);
  CHECK(kvjit_request_wait(request, -1, &program, &error) == KVJIT_BAD_INPUT);
  CHECK(std::string(error.file) == "mine.toml");
  kvjit_request_destroy(request);
  // Destroyed at once: cancelled, and waited for.
  REQUIRE(kvjit_program_request(context.get(), toml.c_str(), nullptr, nullptr, nullptr, nullptr, &request, &error) ==
          KVJIT_OK);
  kvjit_request_destroy(request);
  kvjit_request_destroy(nullptr);
  kvjit_request_cancel(nullptr);
}

TEST_CASE_FIXTURE(Engine, "a small spec is warmed as a whole, and the next context sees it at once") {
  const std::string small = "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n[attention]\nhead_dim = 32\n";
  const char* specs[] = {small.c_str(), small.c_str()};
  auto call = sized<kvjit_warm_call>();
  call.specs = specs;
  call.spec_count = 2;
  std::atomic<int> steps = 0;
  call.progress = [](void* user, int done, int count, const char* kernel) {
    CHECK(done <= count);
    CHECK(std::string(kernel).find("f16") != std::string::npos);
    ++*static_cast<std::atomic<int>*>(user);
  };
  call.progress_user = &steps;
  auto report = sized<kvjit_warm_report>();
  INFO(error.message);
  REQUIRE(kvjit_warm(open().get(), &call, &report, &error) == KVJIT_OK);
  CHECK(report.kernels == steps);
  CHECK(report.compiled == steps);
  CHECK(!report.was_complete);
  const auto next = open();
  REQUIRE(kvjit_warm(next.get(), &call, &report, &error) == KVJIT_OK);
  CHECK(report.was_complete);
  CHECK(report.kernels == steps);
  kvjit_seal(next.get(), nullptr);
  api::Program program;
  CHECK(program.open(next, small.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  call.spec_count = -1;
  CHECK(kvjit_warm(next.get(), &call, &report, &error) == KVJIT_USAGE);
}

TEST_CASE_FIXTURE(Engine, "options that make no sense are refused by name") {
  kvjit_context* context = nullptr;
  options.bundle_count = 1;
  CHECK(kvjit_context_create(&options, &context, &error) == KVJIT_USAGE);
  CHECK(contains(error.message, "bundles"));
  options.bundle_count = 0;
  options.bundle_bytes_count = 1;
  CHECK(kvjit_context_create(&options, &context, &error) == KVJIT_USAGE);
  options.bundle_bytes_count = 0;
  const char* keys[] = {"0123"};
  options.trusted_keys = keys;
  options.trusted_key_count = 1;
  CHECK(kvjit_context_create(&options, &context, &error) == KVJIT_USAGE);
  CHECK(contains(error.message, "trusted key '0123'"));
}

}  // namespace
}  // namespace kvjit::test
