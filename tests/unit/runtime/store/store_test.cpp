// runtime/store/store.cpp: layers are asked for a kernel in order, then it is compiled. Processes that use one folder,
// and processes that crash, must not disturb each other. Device and compiler are fakes.
// SPDX-License-Identifier: MIT
#include "runtime/store/store.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "runtime/jit/warm.hpp"
#include "runtime/store/bundle.hpp"
#include "tests/unit/runtime/store/fake_world.hpp"

using namespace kvjit;
using namespace kvjit::test;

TEST_CASE_FIXTURE(StoreFixture, "a sealed context serves what there is, and names what it would have to compile") {
  REQUIRE(context()->get(sample()));
  const auto sealed = context();
  sealed->store()->seal();
  CHECK(sealed->get(sample())->origin == Origin::disk);
  const auto refused = sealed->get(sample("new text"));
  REQUIRE(!refused);
  CHECK(refused.error().code == Code::sealed);
  CHECK(refused.error().message.find("decode.sample") != std::string::npos);
  CHECK(world.compiled == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "contexts of one device share what is loaded, for as long as one uses it") {
  device = std::make_shared<SharedDevice>(std::make_shared<FakeBackend>());
  auto first = context(), second = context();
  const auto a = first->get(sample()), b = second->get(sample());
  REQUIRE(a);
  REQUIRE(b);
  CHECK(a->kernel == b->kernel);
  CHECK(second->memory().shared_kernels == 1);
  CHECK(first->memory().shared_kernels == 0);
  CHECK(second->memory().own.bytes == sample().text.size());
  CHECK(device->loaded().kernels == 1);
  REQUIRE(second->get(sample("another")));
  CHECK(device->loaded().kernels == 2);
  CHECK(device->loaded().bytes == sample().text.size() + 7);
  second.reset();
  CHECK(device->loaded().kernels == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "contexts of one device compile a kernel once, with no cache too") {
  device = std::make_shared<SharedDevice>(std::make_shared<FakeBackend>());
  options.cache_dir = "off";
  world.takes = std::chrono::milliseconds(50);
  const std::vector<std::shared_ptr<Context>> all = {context(), context(), context()};
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 9; ++i)
    threads.emplace_back([&, i] {
      const auto record = all[static_cast<std::size_t>(i) % 3]->get(sample());
      good += record && text_of(*record) == "kernel text" && record->registers == 33 && record->spill_bytes == 12;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 9);
  CHECK(world.compiled == 1);
  std::uint64_t compiles = 0, shared = 0, hits = 0;
  for (const auto& one : all) {
    compiles += one->counters().compiles, hits += one->counters().memory_hits;
    shared += one->memory().shared_kernels;
    CHECK(one->memory().own.kernels == 1);
  }
  CHECK(compiles == 1);
  CHECK(shared == 2);
  CHECK(hits == 8);
  CHECK(device->loaded().kernels == 1);
}

TEST_CASE_FIXTURE(
    StoreFixture,
    "a context that waits for another's compile: sealed it does not, stopped it ends, failed it tries itself") {
  device = std::make_shared<SharedDevice>(std::make_shared<FakeBackend>());
  options.cache_dir = "off";
  world.takes = std::chrono::milliseconds(300);
  world.heeds_stop = true;
  const auto first = context(), second = context();
  std::stop_source stop;
  std::thread maker([&] { CHECK(first->get(sample(), stop.get_token()).error().code == Code::cancelled); });
  while (world.compiled == 0) std::this_thread::yield();
  SUBCASE("sealed") {
    second->store()->seal();
    CHECK(second->get(sample()).error().code == Code::sealed);
    CHECK(world.compiled == 1);
  }
  SUBCASE("stopped") {
    std::stop_source own;
    own.request_stop();
    CHECK(second->get(sample(), own.get_token()).error().code == Code::cancelled);
    CHECK(world.compiled == 1);
  }
  SUBCASE("the first one gives up") {
    std::thread waiter([&] { CHECK(second->get(sample())->origin == Origin::compiled); });
    stop.request_stop();
    waiter.join();
    CHECK(world.compiled == 2);
  }
  stop.request_stop();
  maker.join();
}

TEST_CASE("contexts opened alike share their back-end") {
  Options options;
  options.device = DeviceKind::cpu;
  options.cache_dir = "off";
  const auto first = Context::open(options), second = Context::open(options);
  REQUIRE(first);
  REQUIRE(second);
  CHECK((*first)->backend() == (*second)->backend());
  Options other = options;
  other.fiber_seed = 3;
  CHECK((*Context::open(other))->backend() != (*first)->backend());
  other = options;
  other.host_compiler = "/usr/bin/another";  // another compiler, whose objects have other keys
  CHECK((*Context::open(other))->backend() != (*first)->backend());
}

TEST_CASE_FIXTURE(StoreFixture,
                  "a request that is cancelled ends; who waits for the same kernel gets it all the same") {
  world.takes = std::chrono::milliseconds(300);
  world.heeds_stop = true;
  const auto shared = context();
  std::stop_source stop;
  std::thread first([&] {
    const auto given_up = shared->get(sample(), stop.get_token());
    CHECK(given_up.error().code == Code::cancelled);
  });
  while (world.compiled == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::thread second([&] { CHECK(text_of(*shared->get(sample())) == "kernel text"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  stop.request_stop();
  first.join();
  second.join();
  CHECK(world.compiled == 2);
}

namespace {

// A device that refuses the machine code of the test's bundle but takes its PTX.
struct LaterBackend : FakeBackend {
  Result<std::shared_ptr<Kernel>> load(const Source& source, const Artefact& artefact) override {
    if (artefact.kind == ArtefactKind::cubin) return fail(Code::environment, "no kernel image");
    return FakeBackend::load(source, artefact);
  }
};

}  // namespace

TEST_CASE_FIXTURE(StoreFixture,
                  "PTX of a bundle serves where its machine code does not load; only if nothing serves that is said") {
  std::vector<CacheEntry> entries;
  for (const ArtefactKind kind : {ArtefactKind::cubin, ArtefactKind::ptx}) {
    const std::vector<std::string> list =
        kind == ArtefactKind::ptx ? nvrtc_options(sample(), kind) : std::vector<std::string>{"-fake"};
    entries.push_back({"decode.sample", "fake 1.0", make_key(sample(), kind, list), "", {}});
    entries.back().artefact.kind = kind;
    entries.back().artefact.bytes = {'p'};
  }
  Toolchain toolchain;
  toolchain.options = [](const Source&) { return std::vector<std::string>{"-fake"}; };
  toolchain.open = []() -> Result<std::shared_ptr<Compiler>> { return fail(Code::environment, "no compiler"); };
  toolchain.reads_ptx = true;
  device = std::make_shared<SharedDevice>(std::make_shared<LaterBackend>());
  const auto both = write_bundle(entries, nullptr), code_only = write_bundle({entries[0]}, nullptr);
  options.bundle_bytes = {both};
  const auto served = (*make_context(options, device, toolchain))->get(sample());
  REQUIRE(served);
  CHECK(served->origin == Origin::bundle);
  CHECK(lines.empty());
  options.bundle_bytes = {code_only};
  CHECK(!(*make_context(options, std::make_shared<SharedDevice>(std::make_shared<LaterBackend>()), toolchain))
             ->get(sample()));
  CHECK(lines_with("of no use here: no kernel image") == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "an engine's own store gets what is compiled and gives it back, checked") {
  std::map<std::string, std::vector<std::uint8_t>> kept;
  options.callbacks.get = [&](const std::string& key) -> std::optional<std::vector<std::uint8_t>> {
    const auto known = kept.find(key);
    return known == kept.end() ? std::nullopt : std::optional(known->second);
  };
  options.callbacks.put = [&](const std::string& key, std::span<const std::uint8_t> entry) {
    kept[key].assign(entry.begin(), entry.end());
  };
  options.cache_dir = "off";
  CHECK(context()->get(sample())->origin == Origin::compiled);
  REQUIRE(kept.size() == 1);
  const auto served = context();
  CHECK(served->get(sample())->origin == Origin::callback);
  CHECK(served->counters().callback_hits == 1);
  kept.begin()->second[200] ^= 1;
  const auto wary = context();
  CHECK(wary->get(sample())->origin == Origin::compiled);
  CHECK(wary->counters().rebuilt == 1);
  CHECK(lines_with("damaged cache entry") == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "a list is warmed in parallel, each kernel once, and marked when it is complete") {
  const std::vector<Source> all = {sample("a"), sample("b"), sample("a"), sample("c")};
  int generated = 0, last = 0;
  const auto sources = [&]() -> Result<std::vector<Source>> { return ++generated, all; };
  const auto progress = [&](const WarmProgress& p) {
    CHECK(p.count == 3);
    CHECK(p.done == ++last);
  };
  const auto first = warm(*context(), {"list"}, sources, 4, progress);
  REQUIRE(first);
  CHECK(first->kernels == 3);
  CHECK(first->compiled == 3);
  CHECK(!first->was_complete);
  const auto again = warm(*context(), {"list"}, sources, 4, {});
  REQUIRE(again);
  CHECK(again->was_complete);
  CHECK(again->kernels == 3);
  CHECK(generated == 1);
  CHECK(!warm(*context(), {"another list"}, sources, 4, {})->was_complete);
  fs::remove(only_entry());  // a sweep may do this
  const auto mended = warm(*context(), {"list"}, sources, 4, {});
  CHECK(!mended->was_complete);
  CHECK(mended->compiled == 1);
  world.fails = true;
  CHECK(warm(*context(), {"third"}, [] { return Result<std::vector<Source>>({sample("d")}); }, 2, {}).error().code ==
        Code::compile);
  CHECK(!warm(*context(), {"third"}, [] { return Result<std::vector<Source>>({sample("a")}); }, 2, {})->was_complete);
}

// With KVJIT_STRESS tests run at their full size; otherwise they are small.
bool is_thorough() { return std::getenv("KVJIT_STRESS") != nullptr; }

TEST_CASE_FIXTURE(StoreFixture, "many processes of eight threads, one cold key: exactly one compile") {
  const int processes = is_thorough() ? 64 : 12, threads = 8;
  world.takes = std::chrono::milliseconds(100);
  world.marker = folder + "/compiles";
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::atomic<int> good = 0;
      const auto shared = context();
      std::vector<std::thread> askers;
      for (int t = 0; t < threads; ++t)
        askers.emplace_back([&] {
          const auto record = shared->get(sample());
          good += record && text_of(*record) == "kernel text";
        });
      for (auto& asker : askers) asker.join();
      _exit(good == threads ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(fs::file_size(world.marker) == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "killed at any moment of publishing, a process leaves no bad entry") {
  const int rounds = is_thorough() ? 200 : 20;
  const std::string large(1 << 20, 'x');
  for (int round = 0; round < rounds; ++round) {
    const Source source = sample(large + std::to_string(round));
    REQUIRE(context()->get(source));  // an entry that every kill may damage
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Cache cache(options);
      const Key key = make_key(source, ArtefactKind::cubin, {"-fake"});
      CacheEntry entry{source.name, "fake 1.0", key, source.text.str(), {}};
      entry.artefact.bytes.assign(source.text.str().begin(), source.text.str().end());
      for (;;) cache.publish(entry);  // endless, so that the kill always interrupts a publish
    }
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + 1777 * (round % 17)));
    kill(child, SIGKILL);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    const auto after = context();
    const auto record = after->get(source);
    REQUIRE(record);
    CHECK(text_of(*record) == source.text);
    CHECK(after->counters().rebuilt == 0);
    CHECK(record->origin == Origin::disk);
    fs::remove(only_entry());
  }
  CHECK(lines_with("rebuilt") == 0);
}

TEST_CASE_FIXTURE(StoreFixture,
                  "a disk that is full in the middle of an entry: nothing is left of it, and everything works") {
  signal(SIGXFSZ, SIG_IGN);  // the write fails instead, as on a full disk
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  const std::string large(100000, 'x');
  const auto degraded = context();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto record = degraded->get(sample(large)), again = degraded->get(sample(large + "y"));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE(record);
  REQUIRE(again);
  CHECK(text_of(*record) == large);
  CHECK(degraded->counters().write_failures == 2);
  CHECK(lines_with("could not be written: File too large") == 1);
  for (const auto& file : fs::recursive_directory_iterator(options.cache_dir))
    CHECK_MESSAGE(!file.is_regular_file(), file.path().string());
  CHECK(context()->get(sample(large))->origin == Origin::compiled);
  CHECK(context()->get(sample(large))->origin == Origin::disk);
}

TEST_CASE_FIXTURE(StoreFixture, "a folder that is full or cannot be written serves what it has, with one warning") {
  REQUIRE(context()->get(sample()));
  const fs::path shard = fs::path(only_entry()).parent_path();
  if (geteuid() == 0) {
    // Root may write anywhere, so permissions cannot make a write fail. A file in place of every shard folder makes
    // writes fail as on a full disk.
    fs::rename(options.cache_dir + "/v2", options.cache_dir + "/kept");
    fs::create_directory(options.cache_dir + "/v2");
    for (int i = 0; i < 256; ++i) {
      char name[3];
      std::snprintf(name, sizeof name, "%02x", i);
      std::ofstream(options.cache_dir + "/v2/" + name) << "full";
    }
    fs::remove(options.cache_dir + "/v2/" + shard.filename().string());
    fs::rename(options.cache_dir + "/kept/" + shard.filename().string(),
               options.cache_dir + "/v2/" + shard.filename().string());
  } else {
    for (const auto& path : {fs::path(options.cache_dir + "/v2"), shard})
      fs::permissions(path, fs::perms::owner_read | fs::perms::owner_exec);
  }
  const auto degraded = context();
  CHECK(degraded->get(sample())->origin == Origin::disk);
  for (const char* text : {"p", "q", "r"}) {
    CHECK(degraded->get(sample(text))->origin == Origin::compiled);
    CHECK(degraded->get(sample(text))->origin == Origin::memory);
  }
  CHECK(degraded->counters().write_failures >= 2);  // one write may go to the shard that exists
  CHECK(lines_with("warning") == 1);
  for (const auto& path : {fs::path(options.cache_dir + "/v2"), shard})
    if (geteuid() != 0) fs::permissions(path, fs::perms::owner_all);
}
