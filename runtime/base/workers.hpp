// Workers: threads for tasks for which the caller must not wait. A thread starts when a task finds no idle thread, up
// to the number of the machine's threads. The destructor joins all threads.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvjit {

class Workers {
 public:
  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  // Waits until every queued task has run.
  ~Workers() {
    {
      const std::lock_guard guard(mutex_);
      is_ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // A task must not throw. If run() throws, the task does not run.
  void run(std::function<void()> task) {
    const std::lock_guard guard(mutex_);
    tasks_.push_back(std::move(task));
    if (idle_ < tasks_.size() && threads_.size() < std::max(1u, std::thread::hardware_concurrency())) {
      try {
        threads_.emplace_back([this] { loop(); });
      } catch (...) {  // the threads that there are take the task; without any, nobody would
        if (threads_.empty()) {
          tasks_.pop_back();
          throw;
        }
      }
    }
    wake_.notify_one();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      wake_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
      --idle_;
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool is_ending_ = false;
};

}  // namespace kvjit
