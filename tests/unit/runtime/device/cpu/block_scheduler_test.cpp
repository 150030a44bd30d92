// runtime/device/cpu/block_scheduler.cpp: each rule of the CPU back-end is broken on purpose and must be reported. The
// lanes call the scheduler through the host table itself.
// SPDX-License-Identifier: MIT
#include "runtime/device/cpu/block_scheduler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "device/cpu.hpp"

using kv::cpu::host;
using kv::cpu::self;
using kv::cpu::Wait;
using kvjit::run_grid;

namespace {

void sync_warp(int line = __builtin_LINE()) { host.wait(Wait::warp, "test.cuh", line); }
void sync_block(int line = __builtin_LINE()) { host.wait(Wait::block, "test.cuh", line); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string message_of(const kvjit::Result<void>& result) {
  REQUIRE_FALSE(result.has_value());
  return result.error().message;
}

}  // namespace

TEST_CASE("every lane of every block runs once and knows its place") {
  std::vector<int> seen(3 * 2 * 2 * 70);
  const auto body = [&] {
    const kv::cpu::Lane& lane = self();
    const int block = (lane.block_z * lane.grid_y + lane.block_y) * lane.grid_x + lane.block_x;
    ++seen[static_cast<std::size_t>(block * lane.threads + lane.thread)];
  };
  REQUIRE(run_grid(body, {3, 2, 2}, 70, 0));
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
}

namespace {

// Barriers at 0 and 8, and 32 bytes of data from 64 on.
struct Bulk {
  static void* at(int byte) { return self().shared + byte; }
  static void open() {
    if (self().thread == 0) host.open_barrier(at(0), 1), host.open_barrier(at(8), 32);
  }
  static void ask(const void* from, unsigned announced = 32) {
    if (self().thread != 0) return;
    host.arrive(at(0), announced);
    host.copy_bulk(at(64), from, 32, at(0));
  }
  static void wait(int barrier, unsigned parity) { host.wait_phase(at(barrier), parity, "test.cuh", 1); }
};
alignas(16) unsigned char bulk_bytes[32] = {1, 2, 3};

}  // namespace

TEST_CASE("bulk copies land when their phase is waited for, and spoil what they overwrite before") {
  int corrupted = 0, right = 0, again = 0;
  const auto body = [&] {
    auto* to = static_cast<unsigned char*>(Bulk::at(64));
    Bulk::open();
    sync_block();
    for (unsigned round = 0; round < 3; ++round) {
      Bulk::wait(8, (round & 1) ^ 1);  // returns at once in the first round; later when all lanes have read
      Bulk::ask(bulk_bytes);
      if (self().thread == 0) corrupted += to[1] == 0xff;
      Bulk::wait(0, round & 1);
      right += std::memcmp(to, bulk_bytes, 32) == 0;
      host.arrive(Bulk::at(8), 0);
    }
    Bulk::wait(8, 0);
    again += 1;
    sync_warp();
    if (self().thread == 0) host.close_barrier(Bulk::at(0)), host.close_barrier(Bulk::at(8));
  };
  for (const unsigned seed : {0u, 5u}) {
    const auto ran = run_grid(body, {2, 1, 1}, 32, 128, seed);
    REQUIRE_MESSAGE(ran, ran.error().message);
  }
  CHECK(corrupted == 2 * 2 * 3);
  CHECK(right == 2 * 2 * 3 * 32);
  CHECK(again == 2 * 2 * 32);
}

TEST_CASE("rules of bulk copies and their barriers, each broken") {
  const auto message = [](auto body) {
    return message_of(run_grid(
        [&] {
          Bulk::open();
          sync_block();
          body();
        },
        {}, 32, 128));
  };
  CHECK(contains(message([] { Bulk::ask(bulk_bytes); }), "bulk copies were never waited for"));
  CHECK(
      contains(message([] { Bulk::ask(bulk_bytes + 2); }), "a bulk copy of 32 bytes from an address that is 2 mod 16"));
  CHECK(contains(message([] { Bulk::ask(bulk_bytes, 48), Bulk::wait(0, 0); }), "wait for the copies at test.cuh:1"));
  CHECK(contains(message([] { Bulk::wait(8, 0); }), "deadlock"));
  CHECK(contains(message([] { Bulk::wait(16, 0); }), "a wait at a barrier that is not open"));
  CHECK(contains(message([] { host.arrive(Bulk::at(16), 0); }), "an arrival at a barrier that is not open"));
  CHECK(
      contains(message([] { host.copy_bulk(Bulk::at(112), bulk_bytes, 32, Bulk::at(0)); }), "outside the block's 128"));
  CHECK(contains(message([] { Bulk::open(); }), "a barrier is opened where one is open"));
  CHECK(contains(message([] { Bulk::ask(bulk_bytes), host.close_barrier(Bulk::at(0)); }), "never waited for"));
}

TEST_CASE("a block barrier separates writes from reads, in any lane order") {
  for (const unsigned seed : {0u, 1u, 2u, 77u}) {
    int wrong = 0;
    const auto body = [&] {
      auto* numbers = reinterpret_cast<int*>(self().shared);
      const int i = self().thread, n = self().threads;
      for (int round = 0; round < 5; ++round) {
        numbers[i] = round * 1000 + i;
        sync_block();
        wrong += numbers[(i + 33) % n] != round * 1000 + (i + 33) % n;
        sync_block();
      }
    };
    REQUIRE(run_grid(body, {2, 1, 1}, 96, 96 * sizeof(int), seed));
    CHECK(wrong == 0);
  }
}

TEST_CASE("without the barrier a reader sees the poison, in every block") {
  int nan_patterns = 0;
  const auto body = [&] {
    auto* numbers = reinterpret_cast<unsigned*>(self().shared);
    nan_patterns += numbers[(self().thread + 1) % 32] == 0xffffffffu;
    numbers[self().thread] = 0;
  };
  REQUIRE(run_grid(body, {2, 1, 1}, 32, 32 * sizeof(unsigned)));
  CHECK(nan_patterns == 2 * 31);
}

TEST_CASE("a team that is not whole, or votes at two places, is named") {
  const auto vote = [](int warps, int line) { return host.vote(warps, false, "test.cuh", line); };
  const auto missing = run_grid(
      [&] {
        if (self().thread < 96) vote(4, 1);
      },
      {}, 128, 0);
  CHECK(contains(message_of(missing), "wait for the team"));
  const auto divergent = run_grid([&] { vote(2, self().thread < 32 ? 1 : 2); }, {}, 64, 0);
  CHECK(contains(message_of(divergent), "divergent collective"));
  const auto outside = run_grid([&] { vote(4, 1); }, {}, 96, 0);
  CHECK(contains(message_of(outside), "a team of 4 warps from warp 0 on, of 3"));
  CHECK(run_grid([&] { vote(2, 1); }, {}, 64, 0));  // the failure does not affect the next launch
}

TEST_CASE("a warp collective releases its warp alone; the slots carry the words") {
  int wrong = 0;
  const auto body = [&] {
    kv::cpu::Lane& lane = self();
    const int in_warp = lane.thread % 32;
    if (lane.thread / 32 == 1) return;  // the other warp never arrives
    for (int round = 0; round < 3; ++round) {
      lane.slots[lane.parity][in_warp][0] = static_cast<unsigned>(lane.thread + round);
      sync_warp();
      wrong += lane.slots[lane.parity][in_warp ^ 1][0] != static_cast<unsigned>((lane.thread ^ 1) + round);
      lane.parity ^= 1;
    }
  };
  REQUIRE(run_grid(body, {1, 1, 1}, 80, 0, 5));
  CHECK(wrong == 0);
}

TEST_CASE("a block barrier does not wait for lanes that have ended") {
  int passed = 0;
  const auto body = [&] {
    if (self().thread % 3 == 0) return;
    sync_block();
    ++passed;
  };
  REQUIRE(run_grid(body, {1, 1, 1}, 60, 0));
  CHECK(passed == 40);
}

TEST_CASE("every block starts with the first set of slots") {
  int odd = 0;
  const auto body = [&] { odd += std::exchange(self().parity, 1); };
  REQUIRE(run_grid(body, {3, 1, 1}, 32, 0));
  CHECK(odd == 0);
}

TEST_CASE("the seed decides the order of lanes") {
  const auto order_of = [](unsigned seed) {
    std::vector<int> order;
    const auto body = [&] { order.push_back(self().thread); };
    REQUIRE(run_grid(body, {1, 1, 1}, 64, 0, seed));
    return order;
  };
  const std::vector<int> in_order = order_of(0), one = order_of(1);
  CHECK(std::is_sorted(in_order.begin(), in_order.end()));
  CHECK_FALSE(std::is_sorted(one.begin(), one.end()));
  CHECK(one == order_of(1));
  CHECK(one != order_of(2));
}

TEST_CASE("divergent collectives are named, and the next launch works") {
  const auto warp = [] {
    if (self().thread < 5)
      sync_warp(10);
    else
      sync_warp(20);
  };
  CHECK(
      contains(message_of(run_grid(warp, {1, 1, 1}, 32, 0)), "divergent collective: test.cuh:10 against test.cuh:20"));
  const auto block = [] { host.wait(Wait::block, self().thread < 32 ? "a.cuh" : "b.cuh", 7); };
  CHECK(contains(message_of(run_grid(block, {1, 1, 1}, 64, 0)), "divergent collective: a.cuh:7 against b.cuh:7"));
  int ran = 0;
  const auto fine = [&] { sync_block(), ++ran; };
  REQUIRE(run_grid(fine, {1, 1, 1}, 64, 0));
  CHECK(ran == 64);
}

TEST_CASE("one file in two objects is one place") {
  static const char copy[] = "test.cuh";
  const auto body = [] { host.wait(Wait::warp, self().thread % 2 ? "test.cuh" : copy, 3); };
  CHECK(run_grid(body, {1, 1, 1}, 32, 0));
}

TEST_CASE("a deadlock says where lanes stand") {
  const auto body = [] {
    if (self().thread == 40) return;
    if (self().thread < 8)
      sync_warp(11);
    else
      sync_block(12);
  };
  const std::string message = message_of(run_grid(body, {2, 1, 1}, 64, 0));
  CHECK(contains(message, "deadlock: block (0, 0, 0)"));
  CHECK(contains(message, "lanes 0-7 wait for the warp at test.cuh:11"));
  CHECK(contains(message, "lanes 8-39 wait for the block at test.cuh:12"));
  CHECK(contains(message, "lanes 40-40 ended"));
}

TEST_CASE("an error unwinds the lanes that wait") {
  struct Counted {
    int& alive;
    explicit Counted(int& n) : alive(n) { ++alive; }
    ~Counted() { --alive; }
  };
  int alive = 0;
  const auto body = [&] {
    const Counted counted(alive);
    if (self().thread == 31) host.copy_wait(-1);
    sync_block();
  };
  CHECK(contains(message_of(run_grid(body, {1, 1, 1}, 32, 0)), "lane 31"));
  CHECK(alive == 0);
}

TEST_CASE("asynchronous copies land at the wait that guarantees them") {
  alignas(16) unsigned char from[64];
  for (int i = 0; i < 64; ++i) from[i] = static_cast<unsigned char>(i + 1);
  std::vector<int> seen;
  const auto body = [&] {
    unsigned char* to = self().shared;
    host.copy_async(to, from, 16, 16);
    host.copy_commit();
    host.copy_async(to + 16, from + 16, 16, 6);
    host.copy_commit();
    host.copy_async(to + 32, nullptr, 8, 0);
    host.copy_commit();
    seen.push_back(to[0]);  // no byte has landed
    host.copy_wait(2);
    seen.push_back(to[15]);  // the oldest copy
    seen.push_back(to[16]);
    host.copy_wait(1);
    seen.push_back(to[21]);  // the last valid byte of the second copy
    seen.push_back(to[22]);  // zero-filled
    seen.push_back(to[32]);
    host.copy_wait(0);
    seen.push_back(to[32]);
  };
  REQUIRE(run_grid(body, {1, 1, 1}, 1, 64));
  CHECK(seen == std::vector<int>{0xff, 16, 0xff, 22, 0, 0xff, 0});
}

TEST_CASE("asynchronous copies that hardware would refuse, and forgotten ones") {
  alignas(16) static unsigned char from[64] = {};
  const auto run = [](auto copy) { return message_of(run_grid([=] { copy(self().shared); }, {1, 1, 1}, 32, 64)); };
  CHECK(contains(run([](auto* to) { host.copy_async(to, from, 12, 12); }), "of 12 bytes"));
  CHECK(contains(run([](auto* to) { host.copy_async(to + 4, from, 8, 8); }), "aligned"));
  CHECK(contains(run([](auto* to) { host.copy_async(to, from + 8, 16, 16); }), "aligned"));
  CHECK(contains(run([](auto* to) { host.copy_async(to, from, 16, 17); }), "valid"));
  CHECK(contains(run([](auto* to) { host.copy_async(to + 64, from, 4, 4); }), "outside"));
  CHECK(contains(run([](auto* to) { host.copy_async(to, from, 4, 4), host.copy_commit(); }), "never waited for"));
  CHECK(contains(run([](auto* to) { host.copy_async(to, from, 4, 4), host.copy_wait(0); }), "never waited for"));
}

TEST_CASE("writes past shared memory are found, on both sides") {
  for (const int at : {100, 1000, -1}) {
    const auto body = [=] { self().shared[at] = 0; };
    CHECK(contains(message_of(run_grid(body, {1, 1, 1}, 1, 100)), "shared memory overrun"));
  }
  const auto inside = [] { self().shared[99] = 0; };
  CHECK(run_grid(inside, {1, 1, 1}, 1, 100));
}

TEST_CASE("launches that no GPU takes are refused") {
  const auto body = [] {};
  for (const auto& result :
       {run_grid(body, {1, 1, 1}, 0, 0), run_grid(body, {1, 1, 1}, 1025, 0), run_grid(body, {0, 1, 1}, 32, 0),
        run_grid(body, {1, 65536, 1}, 32, 0), run_grid(body, {1, 1, 1}, 32, 1 << 20)}) {
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == kvjit::Code::bad_input);
  }
}

TEST_CASE("threads that launch at once take turns") {
  int wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&wrong, t] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        int sum = 0;
        const auto body = [&] {
          auto* word = reinterpret_cast<int*>(self().shared);
          if (self().thread == 0) *word = t;
          sync_block();
          sum += *word;
        };
        const auto result = run_grid(body, {2, 1, 1}, 64, 16, static_cast<unsigned>(t));
        wrong += !result || sum != 128 * t;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("384 lanes times 500 barriers take milliseconds") {
  const auto body = [] {
    for (int i = 0; i < 500; ++i) sync_block(1);
  };
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(run_grid(body, {1, 1, 1}, 384, 0));
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  MESSAGE((ms * 1e6 / (384 * 500)) << " ns a switch");
  CHECK(ms < 2000);  // about 10 ms in an optimized build on an idle core
}
