// Readiness: what a context knows of specs that kvjit_readiness asked about, and of requests that are under way. Of a
// program it keeps the places of its kernels in memory and stores, some hundred bytes each, not the generated texts.
// Any thread may ask.
// SPDX-License-Identifier: MIT
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/jit/context.hpp"

namespace kvjit::c_api {

// The kernels that kvjit_program_create would load; none if the spec is refused.
struct FirstKernels {
  bool is_refused = false;
  std::vector<Context::KernelPlaces> places;
};

class Readiness {
  static constexpr std::size_t kMost = 4096;  // specs; then all are forgotten
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const FirstKernels>> kernels_;  // by Answers::key
  std::map<std::string, int> requests_;                                 // that are under way

 public:
  std::shared_ptr<const FirstKernels> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto entry = kernels_.find(key);
    return entry == kernels_.end() ? nullptr : entry->second;
  }
  void keep(const std::string& key, std::shared_ptr<const FirstKernels> kernels) {
    const std::lock_guard lock(mutex_);
    if (kernels_.size() >= kMost) kernels_.clear();
    kernels_[key] = std::move(kernels);
  }
  void begin_request(const std::string& key) {
    const std::lock_guard lock(mutex_);
    ++requests_[key];
  }
  void end_request(const std::string& key) noexcept {
    const std::lock_guard lock(mutex_);
    const auto request = requests_.find(key);
    if (request != requests_.end() && --request->second == 0) requests_.erase(request);
  }
  bool is_requested(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return requests_.count(key) != 0;
  }
};

}  // namespace kvjit::c_api
