// Answers: what kvjit_supported has said before. Engines ask about the same few specs for each layer and each graph, so
// a second question about a spec is a look-up. An answer depends on the text of the spec, the arch and the registry
// alone, so each registry (that of a context, and the built-in one) has its own answers. Any thread may ask.
// SPDX-License-Identifier: MIT
#pragma once
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/kvjit.h"

namespace kvjit::c_api {

struct Answer {
  kvjit_status status = KVJIT_OK;  // of the first refusal
  std::string reasons;             // every refusal, one a line
};

class Answers {
  static constexpr std::size_t kMost = 4096;  // answers; then all are forgotten
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, Answer> answers_;

 public:
  // The key of a question. arch may be null: every arch of the spec.
  static std::string key(const char* toml, const char* arch) {
    std::string text(arch ? arch : "");
    return text.append(1, arch ? '\0' : '\1').append(toml);
  }
  // Calls use(answer) if the question was asked before, and returns whether it was.
  template <class Use>
  bool find(const std::string& key, const Use& use) const {
    const std::shared_lock lock(mutex_);
    const auto answer = answers_.find(key);
    if (answer == answers_.end()) return false;
    use(answer->second);
    return true;
  }
  void keep(std::string key, Answer answer) {
    const std::lock_guard lock(mutex_);
    if (answers_.size() >= kMost) answers_.clear();
    answers_.insert_or_assign(std::move(key), std::move(answer));
  }
};

}  // namespace kvjit::c_api
