// runtime/jit/context.cpp: a context finds or compiles kernels, shares modules, and counts hits and compiles. Device
// and compiler are fakes.
// SPDX-License-Identifier: MIT
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/unit/runtime/store/fake_world.hpp"

using namespace kvjit;
using namespace kvjit::test;

TEST_CASE_FIXTURE(StoreFixture, "compiled, then memory, then disk in a second context that opens no compiler") {
  const auto first = context();
  auto record = first->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::compiled);
  CHECK(record->name == "decode.sample");
  CHECK(record->key.size() == 64);
  CHECK(record->registers == 33);
  CHECK(record->spill_bytes == 12);
  CHECK(text_of(*record) == "kernel text");
  CHECK(lines_with("compiling decode.sample") == 1);

  record = first->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::memory);
  CHECK(record->key.size() == 64);
  CHECK(first->counters().memory_hits == 1);

  const auto second = context();
  record = second->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::disk);
  CHECK(record->registers == 33);
  CHECK(text_of(*record) == "kernel text");
  CHECK(second->counters().disk_hits == 1);
  CHECK(second->counters().misses == 0);
  CHECK(world.compiled == 1);
  CHECK(world.opened == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "sources that differ in one field are different kernels") {
  const auto both = context();
  Source shared = sample();
  shared.shared_bytes = 1024;
  for (const auto& source : {sample(), sample("kernel tex2"), shared}) {
    const auto record = both->get(source);
    REQUIRE(record);
    CHECK(record->origin != Origin::memory);
    CHECK(text_of(*record) == source.text.str());
  }
  CHECK(world.compiled == 2);  // shared_bytes belongs to the launch: a new kernel from the same artefact
}

TEST_CASE_FIXTURE(StoreFixture, "a host object belongs to its compiler: another one is another key") {
  CHECK(context(false)->get(sample())->origin == Origin::compiled);
  CHECK(context(false)->get(sample())->origin == Origin::disk);
  world.version = "fake 1.1";
  CHECK(context(false)->get(sample())->origin == Origin::compiled);
}

TEST_CASE_FIXTURE(StoreFixture, "a damaged entry is rebuilt and works") {
  REQUIRE(context()->get(sample()));
  const std::string path = only_entry();
  SUBCASE("truncated") { fs::resize_file(path, fs::file_size(path) - 5); }
  SUBCASE("flipped") {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-40, std::ios::end);
    file.put('\xee');
  }
  const auto again = context();
  const auto record = again->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::compiled);
  CHECK(text_of(*record) == "kernel text");
  CHECK(again->counters().rebuilt == 1);
  CHECK(context()->get(sample())->origin == Origin::disk);
}

TEST_CASE_FIXTURE(StoreFixture, "an unwritable folder: one warning, and everything works") {
  std::ofstream(options.cache_dir) << "a file where the folder should be";
  const auto memory = context();
  for (const char* text : {"a", "b", "c"}) {
    REQUIRE(memory->get(sample(text)));
    CHECK(memory->get(sample(text))->origin == Origin::memory);
  }
  CHECK(lines_with("warning") == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "a failed compile is reported, is not kept, and leaves nothing on disk") {
  const auto failing = context();
  world.fails = true;
  const auto refused = failing->get(sample());
  REQUIRE(!refused);
  CHECK(refused.error().code == Code::compile);
  CHECK(only_entry().empty());
  world.fails = false;
  CHECK(failing->get(sample())->origin == Origin::compiled);
}

TEST_CASE_FIXTURE(StoreFixture, "eight threads, one compile") {
  world.takes = std::chrono::milliseconds(50);
  const auto shared = context();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      if (const auto record = shared->get(sample()); record && text_of(*record) == "kernel text") ++good;
    });
  for (auto& thread : threads) thread.join();
  CHECK(good == 8);
  CHECK(world.compiled == 1);
  CHECK(shared->counters().memory_hits == 7);
}

TEST_CASE_FIXTURE(StoreFixture, "four processes, one compile") {
  world.takes = std::chrono::milliseconds(200);
  world.marker = folder + "/compiles";
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const auto record = context()->get(sample());
      _exit(record && text_of(*record) == "kernel text" ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(fs::file_size(world.marker) == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "who waits for another process says for whom, and takes its result") {
  world.takes = std::chrono::milliseconds(200);
  world.marker = folder + "/compiles";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(context()->get(sample()) ? 0 : 1);
  while (!fs::exists(world.marker)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto waiting = context();
  const auto record = waiting->get(sample());
  waitpid(child, nullptr, 0);
  REQUIRE(record);
  CHECK(record->origin == Origin::disk);
  CHECK(waiting->counters().lock_waits == 1);
  CHECK(waiting->counters().misses == 0);
  CHECK(lines_with("waiting for process " + std::to_string(child)) == 1);
}

TEST_CASE_FIXTURE(StoreFixture, "an entry that others can write is not used") {
  REQUIRE(context()->get(sample()));
  fs::permissions(only_entry(), fs::perms::group_write, fs::perm_options::add);
  CHECK(context()->get(sample())->origin == Origin::compiled);
}

TEST_CASE_FIXTURE(StoreFixture, "an environment that makes no sense is refused before any device is opened") {
  options.refused = {"KVJIT_DEVICE='gpuu' is not one of auto, gpu, cpu"};
  const auto opened = Context::open(options);
  REQUIRE(!opened);
  CHECK(opened.error().code == Code::usage);
  CHECK(opened.error().notes == options.refused);
}
