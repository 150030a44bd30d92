// in_parallel: a loop whose iterations run on several threads. Each thread takes the next index from a counter until
// none is left, so iterations of unequal length need no division of the work beforehand.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvjit {

// Calls work(0), work(1) .. work(count - 1) on at most `threads` threads. The calls begin in this order. The caller's
// thread is one of the threads, and in_parallel returns when all calls have ended. If a call throws, no further call
// begins, and in_parallel throws the first exception. If the system starts fewer threads, these do all calls.
inline void in_parallel(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto loop = [&]() noexcept {
    try {
      for (std::size_t i; (i = next++) < count;) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard guard(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(std::min<std::size_t>(threads, count));
  try {
    for (std::size_t i = 1; i < std::min<std::size_t>(threads, count); ++i) others.emplace_back(loop);
  } catch (const std::exception&) {  // bad_alloc or system_error: no further thread
  }
  loop();
  for (std::thread& other : others) other.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace kvjit
