// Work shared by threads.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace kvjit {

// do_one(0), do_one(1) .. do_one(count - 1), begun in this order, by `threads` threads.
template <class DoOne>
void for_each_index(std::size_t count, unsigned threads, DoOne do_one) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < count;) do_one(i);
  };
  std::vector<std::thread> workers;
  for (unsigned i = 1; i < std::min<std::size_t>(threads, count); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace kvjit
