// A parallel loop over independent tasks.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace kvjit {

// Runs work(0) .. work(count - 1) in any order, on at most `threads` threads. The calling thread is one of them; the
// call returns when all tasks have ended.
inline void in_parallel(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto loop = [&] {
    for (std::size_t i; (i = next++) < count;) work(i);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, count); ++i) others.emplace_back(loop);
  loop();
  for (std::thread& other : others) other.join();
}

}  // namespace kvjit
