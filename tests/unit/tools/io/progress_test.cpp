// tools/io/progress.cpp: the time that is left, and results in order.
// SPDX-License-Identifier: MIT
#include "tools/io/progress.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

namespace kvjit {
namespace {

TEST_CASE("the time left is foreseen from the pieces that are done") {
  CHECK(left_text(0, 300, 5) == "0 of 300");
  CHECK(left_text(12, 300, 10) == "12 of 300, 4 min left");
  CHECK(left_text(150, 300, 20) == "150 of 300, 20 s left");
  CHECK(left_text(1, 1001, 36) == "1 of 1001, 10.0 h left");
  CHECK(left_text(300, 300, 20) == "300 of 300");
}

TEST_CASE("rows have fixed widths") { CHECK(fixed_row({"ok", "a", "1"}, {-4, -3, 4}) == "ok    a       1\n"); }

TEST_CASE("results come in order, whichever thread is first") {
  std::vector<std::size_t> order;
  const auto work = [](std::size_t i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 3 == 0 ? 5 : 0));
    return true;
  };
  CHECK(in_order(
            40, 4, work, [&](std::size_t i) { order.push_back(i); }, [] { return false; }) == 40);
  REQUIRE(order.size() == 40);
  for (std::size_t i = 0; i < order.size(); ++i) CHECK(order[i] == i);
}

TEST_CASE("work that stops leaves a prefix") {
  std::vector<std::size_t> order;
  std::atomic<bool> is_stopped = false;
  const auto work = [&](std::size_t i) {
    if (i == 5) is_stopped = true;
    return i != 3;  // not done
  };
  const auto report = [&](std::size_t i) { order.push_back(i); };
  CHECK(in_order(40, 1, work, report, [&] { return is_stopped.load(); }) == 3);
  CHECK(order == std::vector<std::size_t>{0, 1, 2});
  order.clear();
  is_stopped = false;
  CHECK(in_order(
            40, 1, [&](std::size_t i) { return is_stopped = i == 5, true; }, report,
            [&] { return is_stopped.load(); }) == 6);
  CHECK(order.size() == 6);
  CHECK(in_order(0, 4, work, report, [] { return false; }) == 0);
}

}  // namespace
}  // namespace kvjit
