// in_parallel: a loop whose iterations run on several threads. Each thread takes the next index from a counter until
// none is left, so iterations of unequal length need no division of the work beforehand.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace kvjit {

// Calls work(0), work(1) .. work(count - 1) on at most `threads` threads. The calls begin in this order. The caller's
// thread is one of the threads, and in_parallel returns when all calls have ended.
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
