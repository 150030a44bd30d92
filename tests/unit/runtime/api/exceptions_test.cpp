// No exception leaves the C interface. This file replaces `operator new` of the test binary by one that fails on
// request: a script of typical calls runs again and again, and each run fails at another allocation. Every call must
// return KVJIT_OK or KVJIT_ENVIRONMENT, and the script must work afterwards.
// SPDX-License-Identifier: MIT
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "runtime/base/parallel.hpp"
#include "tests/support/open_context.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/unit/runtime/api/session.hpp"

namespace {

// Allocations until one fails; negative: none fails. Counts the allocations of all threads.
std::atomic<long> left_until_failure{-1};
std::atomic<bool> has_failed{false};

void* allocate(std::size_t bytes) {
  if (left_until_failure.load() >= 0 && left_until_failure-- == 0) {
    has_failed = true;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kvjit::test {
namespace {

// Only these runs fill it, so that all count the same allocations.
const TempFolder& folder() {
  static const TempFolder made;
  return made;
}

// One run of a typical engine, over buffers that were allocated before.
struct Script {
  std::string toml = spec("wht_signed", "planar");
  std::string cache_dir = folder().path;
  std::vector<float> x = normal(static_cast<std::size_t>(kTokens * kHeadDim), 3), q = normal(kGroup * kHeadDim, 4),
                     out = std::vector<float>(kGroup * kHeadDim);
  std::vector<kvjit_status> statuses = std::vector<kvjit_status>(32);
  std::size_t count = 0;
  char reasons[256];

  bool ok(kvjit_status status) {
    statuses[count++] = status;
    return status == KVJIT_OK;
  }

  // Returns whether all calls succeeded. The calls that end a session always run.
  bool run(bool in_background) {
    count = 0;
    auto error = sized<kvjit_error>();
    auto options = sized<kvjit_context_options>();
    options.device = KVJIT_DEVICE_CPU;
    options.cache_dir = cache_dir.c_str();
    kvjit_context* context = nullptr;
    kvjit_program* program = nullptr;
    kvjit_request* request = nullptr;
    void* memory[3] = {};
    const bool is_open = ok(kvjit_context_create(&options, &context, &error));
    const auto create = [&] {
      if (!in_background)
        return ok(kvjit_program_create(context, toml.c_str(), "engine.toml", nullptr, &program, &error));
      return ok(kvjit_program_request(context, toml.c_str(), "engine.toml", nullptr, nullptr, nullptr, &request,
                                      &error)) &&
             ok(kvjit_request_wait(request, -1, &program, &error));
    };
    const auto work = [&] {
      auto info = sized<kvjit_program_info>();
      auto call = sized<kvjit_attention_call>();
      if (!ok(kvjit_supported(toml.c_str(), "sm_90a", reasons, sizeof reasons))) return false;
      if (!create() || !ok(kvjit_program_describe(program, &info, &error))) return false;
      call.sequences = call.kv_heads = 1, call.tokens = kTokens;
      for (int side = 0; side < 2; ++side) {
        kvjit_side& cache = side == 0 ? call.k : call.v;
        std::size_t bytes = 0;
        if (!ok(kvjit_cache_layout(program, side, 1, 1, kTokens, nullptr, nullptr, &bytes, &error)) ||
            !ok(kvjit_allocate(context, bytes, &memory[side], &error)) ||
            !ok(kvjit_cache_layout(program, side, 1, 1, kTokens, memory[side], &cache, nullptr, &error)))
          return false;
        auto codec = sized<kvjit_codec_call>();
        codec.x = {x.data(), 0, kHeadDim, kHeadDim}, codec.x_type = KVJIT_F32, codec.cache = cache;
        codec.sequences = codec.heads = 1, codec.tokens = kTokens;
        if (!ok(kvjit_quantize(program, side, &codec, &error))) return false;
      }
      call.q = {q.data(), 0, 0, kHeadDim}, call.out = {out.data(), 0, 0, kHeadDim};
      if (!ok(kvjit_workspace_bytes(program, &call, &call.workspace_bytes, &error)) ||
          !ok(kvjit_allocate(context, call.workspace_bytes, &memory[2], &error)))
        return false;
      std::memset(memory[2], 0, call.workspace_bytes);
      call.workspace = memory[2];
      auto report = sized<kvjit_report>();
      return ok(kvjit_attention(program, &call, &report, &error));
    };
    const bool done = is_open && work();
    kvjit_request_destroy(request);
    for (void* one : memory) kvjit_release(context, one);
    kvjit_program_destroy(program);
    kvjit_context_destroy(context);
    return done;
  }
};

TEST_CASE("no memory at any point of a session: a status, and the next session works") {
  Script script;
  REQUIRE(script.run(false));  // fills the folder of kernels, so that the runs below compile nothing
  const std::vector<float> expected = script.out;
  int failures = 0;
  for (long n = 0, step = 0;; n += 1 + step, ++step) {
    const bool in_background = n % 2 == 1;
    has_failed = false;
    left_until_failure = n;
    const bool done = script.run(in_background);
    left_until_failure = -1;
    if (!has_failed) {
      CHECK(done);
      break;
    }
    ++failures;
    for (std::size_t i = 0; i < script.count; ++i) {
      INFO("allocation " << n << ", call " << i << " of " << script.count);
      CHECK((script.statuses[i] == KVJIT_OK || script.statuses[i] == KVJIT_ENVIRONMENT));
    }
    if (failures % 16 != 0) continue;
    INFO("after allocation " << n);
    REQUIRE(script.run(false));
    CHECK(script.out == expected);
  }
  REQUIRE(script.run(true));
  CHECK(script.out == expected);
  MESSAGE(failures << " runs failed");
}

TEST_CASE("an exception of one call of in_parallel reaches the caller, and no further call begins") {
  std::atomic<int> calls = 0;
  const auto work = [&](std::size_t i) {
    ++calls;
    if (i == 3) throw std::runtime_error("the third");
  };
  CHECK_THROWS_WITH(in_parallel(1000000, 4, work), "the third");
  CHECK(calls < 1000000);
  CHECK_THROWS_WITH(in_parallel(4, 1, work), "the third");
}

}  // namespace
}  // namespace kvjit::test
