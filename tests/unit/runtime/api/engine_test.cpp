// The C interface: functions that an engine needs besides calls: programs in the background, warm lists, stores of its
// own, sealing, and facts about kernels. The tests run on the CPU back-end with one small spec, which is compiled once.
// SPDX-License-Identifier: MIT
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/temp_folder.hpp"
#include "tests/unit/runtime/api/session.hpp"

namespace kvjit::test {
namespace {

namespace fs = std::filesystem;

struct Engine {
  Engine() {
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

  TempFolder temporary;
  const std::string& folder = temporary.path;
  std::map<std::string, std::string> kept;
  kvjit_context_options options = sized<kvjit_context_options>();
  kvjit_error error = sized<kvjit_error>();
  const std::string toml = spec("none", "planar");
};

TEST_CASE_FIXTURE(Engine, "a list of specs: refused, uncompiled, being compiled, ready in memory and on disk") {
  options.cache_user = nullptr, options.cache_get = nullptr, options.cache_put = nullptr;
  const std::string unlike = spec("none", "rows"), broken = "[k]\nformat = \"q4_9\"\n";
  const char* const specs[] = {toml.c_str(), broken.c_str(), unlike.c_str()};
  const auto ask = [&](const api::Context& context) {
    auto call = sized<kvjit_readiness_call>();
    call.specs = specs, call.spec_count = 3;
    std::vector<int> states(3);
    INFO(error.message);
    REQUIRE(kvjit_readiness(context.get(), &call, states.data(), &error) == KVJIT_OK);
    return states;
  };
  {
    auto context = open();
    CHECK(ask(context) == std::vector<int>{KVJIT_UNCOMPILED, KVJIT_REFUSED, KVJIT_UNCOMPILED});
    kvjit_request* request = nullptr;
    REQUIRE(kvjit_program_request(context.get(), toml.c_str(), "mine", nullptr, nullptr, nullptr, &request, &error) ==
            KVJIT_OK);
    CHECK(ask(context) == std::vector<int>{KVJIT_COMPILING, KVJIT_REFUSED, KVJIT_UNCOMPILED});
    // Another context of the device sees that the kernel is being compiled, once that has begun.
    auto other = open();
    int seen = KVJIT_UNCOMPILED;
    while (seen == KVJIT_UNCOMPILED) seen = ask(other)[0];
    CHECK(seen == KVJIT_COMPILING);
    kvjit_program* program = nullptr;
    REQUIRE(kvjit_request_wait(request, -1, &program, &error) == KVJIT_OK);
    kvjit_request_destroy(request);
    CHECK(ask(context) == std::vector<int>{KVJIT_READY, KVJIT_REFUSED, KVJIT_UNCOMPILED});
    CHECK(ask(other) == std::vector<int>{KVJIT_READY, KVJIT_REFUSED, KVJIT_UNCOMPILED});
    CHECK(stats(other).kernels == 0);  // it was only asked
    kvjit_program_destroy(program);
    CHECK(ask(context)[0] == KVJIT_READY);
  }
  {
    auto later = open();  // another process, in effect: the folder has the kernel
    CHECK(ask(later) == std::vector<int>{KVJIT_READY, KVJIT_REFUSED, KVJIT_UNCOMPILED});
    api::Program program;
    CHECK(kvjit_seal(later.get(), &error) == KVJIT_OK);
    CHECK(program.open(later, toml.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  }
  fs::remove_all(folder);
  CHECK(ask(open()) == std::vector<int>{KVJIT_UNCOMPILED, KVJIT_REFUSED, KVJIT_UNCOMPILED});

  // A request that was cancelled compiles no more.
  auto context = open();
  kvjit_request* request = nullptr;
  REQUIRE(kvjit_program_request(context.get(), unlike.c_str(), nullptr, nullptr, nullptr, nullptr, &request, &error) ==
          KVJIT_OK);
  kvjit_request_cancel(request);
  kvjit_request_destroy(request);
  CHECK(ask(context)[2] != KVJIT_COMPILING);

  auto call = sized<kvjit_readiness_call>();
  CHECK(kvjit_readiness(context.get(), &call, nullptr, &error) == KVJIT_OK);
  call.spec_count = 1;
  CHECK(kvjit_readiness(context.get(), &call, nullptr, &error) == KVJIT_USAGE);
  call.specs = specs;
  CHECK(kvjit_readiness(context.get(), &call, nullptr, &error) == KVJIT_USAGE);
  CHECK(contains(error.message, "states"));
}

TEST_CASE_FIXTURE(Engine, "an answer is remembered for each spec, arch and context") {
  auto context = open();
  const auto ask = [&](const std::string& text, const char* arch) {
    char reasons[400] = "";
    const kvjit_status status = kvjit_context_supports(context.get(), text.c_str(), arch, reasons, sizeof reasons);
    return std::pair<kvjit_status, std::string>{status, reasons};
  };
  const std::string broken = "[k]\nformat = \"q4_9\"\n[v]\nformat = \"q4_0\"\n";
  for (int i = 0; i < 3; ++i) {
    CHECK(ask(toml, "sm_90a") == std::pair<kvjit_status, std::string>{KVJIT_OK, ""});
    CHECK(ask(toml, nullptr).first == KVJIT_USAGE);
    CHECK(ask(toml, "sm_12").first == KVJIT_BAD_INPUT);
    const auto [status, reasons] = ask(broken, "sm_90a");
    CHECK(status == KVJIT_BAD_INPUT);
    CHECK(contains(reasons, "q4_9"));
  }
}

TEST_CASE_FIXTURE(Engine, "a program comes in the background; its kernels are kept, shared, and served when sealed") {
  auto first = open();
  std::atomic<int> said = -1;
  kvjit_request* request = nullptr;
  const auto done = [](void* user, kvjit_status status) { *static_cast<std::atomic<int>*>(user) = status; };
  REQUIRE(kvjit_program_request(first.get(), toml.c_str(), "spec", nullptr, done, &said, &request, &error) == KVJIT_OK);
  kvjit_program* program = reinterpret_cast<kvjit_program*>(1);
  CHECK(kvjit_request_wait(request, 0, &program, &error) == KVJIT_OK);
  CHECK(program == nullptr);  // a compile takes longer
  REQUIRE(kvjit_request_wait(request, -1, &program, &error) == KVJIT_OK);
  REQUIRE(program != nullptr);
  kvjit_program* twice = nullptr;
  CHECK(kvjit_request_wait(request, -1, &twice, &error) == KVJIT_USAGE);
  kvjit_request_destroy(request);
  CHECK(said == KVJIT_OK);

  int count = 0;
  CHECK(kvjit_program_kernel_count(program, &count, &error) == KVJIT_OK);
  REQUIRE(count == 1);
  auto info = sized<kvjit_kernel_info>();
  CHECK(kvjit_program_kernel(program, 1, &info, &error) == KVJIT_USAGE);
  REQUIRE(kvjit_program_kernel(program, 0, &info, &error) == KVJIT_OK);
  CHECK(std::string(info.role) == "decode");
  CHECK(std::string(info.origin) == "compiled");
  CHECK(std::string(info.key).size() == 64);
  CHECK(info.threads > 0);
  CHECK(info.code_bytes > 1000);
  CHECK(info.compile_ms > 0);
  CHECK(info.ready_ms >= info.compile_ms);
  REQUIRE(kept.size() == 1);
  CHECK(kept.begin()->first == info.key);

  // Another context of the device, sealed: it finds the loaded module.
  auto second = open();
  CHECK(kvjit_seal(second.get(), &error) == KVJIT_OK);
  api::Program again;
  REQUIRE(again.open(second, toml.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  kvjit_stats seen = stats(second);
  CHECK(seen.memory_hits == 1);
  CHECK(seen.disk_hits == 0);
  CHECK(seen.compiles == 0);
  CHECK(seen.kernels == 1);
  CHECK(seen.shared_kernels == 1);
  CHECK(seen.code_bytes == info.code_bytes);
  CHECK(seen.device_kernels == 1);
  CHECK(seen.device_code_bytes == info.code_bytes);
  CHECK(stats(first).shared_kernels == 0);
  std::string other = toml;
  other.replace(other.find("bits = 3"), 8, "bits = 2");
  api::Program refused;
  CHECK(refused.open(second, other.c_str(), nullptr, nullptr, error) == KVJIT_SEALED);
  CHECK(contains(error.message, "would have to be compiled"));

  // Programs of the same spec, also under another file name, use the kernel that the first context already has.
  kvjit_program_destroy(program);
  again.reset();
  const auto id_of = [&](const api::Program& one) {
    auto described = sized<kvjit_program_info>();
    CHECK(kvjit_program_describe(one.get(), &described, &error) == KVJIT_OK);
    return described.id;
  };
  api::Program one, same, other_file;
  REQUIRE(one.open(first, toml.c_str(), "spec", nullptr, error) == KVJIT_OK);
  REQUIRE(same.open(first, toml.c_str(), "spec", nullptr, error) == KVJIT_OK);
  REQUIRE(other_file.open(first, toml.c_str(), "other", nullptr, error) == KVJIT_OK);
  CHECK(id_of(one) == id_of(same));  // equal text: one spec, generated once
  CHECK(id_of(one) != id_of(other_file));
  CHECK(stats(first).memory_hits == 3);
  CHECK(stats(first).kernels == 1);

  // No context has the kernel loaded, and there is neither a cache folder nor a compiler, but the engine's store has
  // the kernel. The CPU key contains the compiler's identity, so a compiler must exist.
  one.reset(), same.reset(), other_file.reset(), first.reset(), second.reset();
  options.cache_dir = "off";
  const auto third = open();
  kvjit_seal(third.get(), nullptr);
  api::Program given;
  REQUIRE(given.open(third, toml.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  CHECK(stats(third).callback_hits == 1);

  // A sealed context refuses a warm list before it marks anything.
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
  // Destroying a request at once cancels it and waits for it.
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

TEST_CASE_FIXTURE(Engine, "kernels that only calls ask for are warmed by name, and then served when sealed") {
  const std::string small = "[k]\nformat = \"f16\"\n[v]\nformat = \"f16\"\n[attention]\nhead_dim = 32\n";
  const char* specs[] = {small.c_str()};
  auto call = sized<kvjit_warm_call>();
  call.specs = specs, call.spec_count = 1;
  const auto context = open();
  call.operations = "shift, everything";
  CHECK(kvjit_warm(context.get(), &call, nullptr, &error) == KVJIT_USAGE);
  CHECK(contains(error.message, "'everything'"));
  call.operations = nullptr;
  auto plain = sized<kvjit_warm_report>(), more = sized<kvjit_warm_report>();
  REQUIRE(kvjit_warm(context.get(), &call, &plain, &error) == KVJIT_OK);
  call.operations = "shift";
  REQUIRE(kvjit_warm(context.get(), &call, &more, &error) == KVJIT_OK);
  CHECK(!more.was_complete);
  CHECK(more.kernels == plain.kernels + 1);  // one kernel for K and V alike
  CHECK(more.compiled == 1);
  kvjit_seal(context.get(), nullptr);

  api::Program program;
  REQUIRE(program.open(context, small.c_str(), nullptr, nullptr, error) == KVJIT_OK);
  auto tokens = sized<kvjit_cache_tokens>();
  std::size_t bytes = 0;
  CHECK(kvjit_cache_layout(program.get(), KVJIT_K, 1, 1, 4, nullptr, nullptr, &bytes, &error) == KVJIT_OK);
  api::Memory cache;
  REQUIRE(cache.allocate(context, bytes, error) == KVJIT_OK);
  CHECK(kvjit_cache_layout(program.get(), KVJIT_K, 1, 1, 4, cache.get(), &tokens.cache, nullptr, &error) == KVJIT_OK);
  auto rope = sized<kvjit_rope>();
  rope.dims = 32, rope.position = 1;
  auto shift = sized<kvjit_shift_call>();
  shift.cache = &tokens, shift.rope = &rope;
  shift.sequences = shift.tokens = shift.heads = 1;
  INFO(error.message);
  CHECK(kvjit_shift(program.get(), KVJIT_K, &shift, &error) == KVJIT_OK);
  CHECK(stats(context).compiles == plain.compiled + 1);
  // The context is sealed, so a kernel that was not in the warm list is missing.
  std::vector<float> x(32);
  auto codec = sized<kvjit_codec_call>();
  codec.x = {x.data(), 32, 32, 32}, codec.x_type = KVJIT_F32;
  codec.cache = tokens.cache, codec.rope = &rope;
  codec.sequences = codec.tokens = codec.heads = 1;
  CHECK(kvjit_quantize(program.get(), KVJIT_K, &codec, &error) == KVJIT_SEALED);
}

TEST_CASE_FIXTURE(Engine, "a context reads folders of specs; others know nothing of them") {
  const std::string specs = folder + "/specs", mine = "[k]\nformat = \"mine\"\n[v]\nformat = \"mine\"\n";
  const char* folders[] = {specs.c_str()};
  options.specs_dirs = folders, options.specs_dir_count = 1;
  kvjit_context* none = nullptr;
  CHECK(kvjit_context_create(&options, &none, &error) == KVJIT_BAD_INPUT);
  CHECK(contains(error.message, "there is no such folder"));
  fs::create_directories(specs + "/formats");
  CHECK(kvjit_context_create(&options, &none, &error) == KVJIT_BAD_INPUT);
  CHECK(contains(error.message, "holds nothing that is read"));
  std::ofstream(specs + "/formats/mine.toml") << "title = 3\n";
  CHECK(kvjit_context_create(&options, &none, &error) == KVJIT_BAD_INPUT);
  CHECK(std::string(error.file) == specs + "/formats/mine.toml");
  std::ofstream(specs + "/formats/mine.toml")
      << "title = \"mine\"\nblock = 32\n[[fields]]\nfield = \"codes\"\n[[fields]]\nfield = \"scale\"\n[codes]\nkind = "
         "\"table\"\nbits = 3\n[codebook]\nrule = \"lloyd_max\"\n[scale]\nrule = \"corrected_norm\"\n[accept]\n"
         "max_relative_mse = 0.0355\n";
  const auto context = open();
  char reasons[1000];
  CHECK(kvjit_context_supports(context.get(), mine.c_str(), "sm_90a", reasons, sizeof reasons) == KVJIT_OK);
  INFO(reasons);
  CHECK(kvjit_supported(mine.c_str(), "sm_90a", reasons, sizeof reasons) == KVJIT_BAD_INPUT);
  CHECK(contains(reasons, "mine"));
  CHECK(kvjit_context_supports(nullptr, mine.c_str(), "sm_90a", nullptr, 0) == KVJIT_USAGE);
  kvjit_seal(context.get(), nullptr);
  api::Program program;
  // The spec is accepted; the compile is refused because the context is sealed.
  CHECK(program.open(context, mine.c_str(), nullptr, nullptr, error) == KVJIT_SEALED);
  options.specs_dir_count = 0;
  CHECK(program.open(open(), mine.c_str(), nullptr, nullptr, error) == KVJIT_BAD_INPUT);
  options.specs_dir_count = -1;
  CHECK(kvjit_context_create(&options, &none, &error) == KVJIT_USAGE);
  CHECK(contains(error.message, "specs_dirs"));
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
