// Join: a stream of kvjit's that runs behind what ggml has queued on a backend, and before what ggml queues next. The
// two are joined by ggml's public events, so nothing of a backend's private context is read. In a stream capture the
// events join the capture: the work becomes part of the captured graph and costs nothing at a replay.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>

#include "ggml-backend-impl.h"
#include "server.hpp"

namespace kvjit::plugin {

class Join {
 public:
  // The join of a backend; for CPUs, whose backends compute at once, one that does nothing. Null, and why, if the
  // backend has no events.
  static std::unique_ptr<Join> make(ggml_backend_t backend, Server& server, std::string& why);

  // Attends on the joined stream. False, and why, if that failed.
  bool attend(const Node& node, std::string& why);

 private:
  Join(ggml_backend_t backend, Server& server) : backend_(backend), server_(server), workspace_(server) {}
  bool enter(std::string& why);
  bool leave(std::string& why);

  ggml_backend_t backend_;
  Server& server_;
  Workspace workspace_;
  void *context_ = nullptr, *stream_ = nullptr;
  ggml_backend_event_t before_ = nullptr, after_ = nullptr;
};

}  // namespace kvjit::plugin
