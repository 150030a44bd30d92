// Join: a stream of kvjit's that runs behind what ggml has queued, and before what ggml queues next. A backend's stream
// is joined by ggml's public events, so nothing of its private context is read; a stream that ggml gives (way hook) is
// joined by events of the plugin's own. In a stream capture the events join the capture: the work becomes part of the
// captured graph and costs nothing at a replay.
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
  // The join of a stream of ggml's, by events of the plugin's own.
  static std::unique_ptr<Join> make(void* stream, Server& server, std::string& why);

  void begin_graph() { ranges_.begin_graph(); }  // a backend is about to compute another graph
  // Attends on the joined stream. False, and why, if that failed.
  bool attend(const Node& node, std::string& why);

 private:
  // An event that ggml's stream and streams of the plugin's know. ggml: null if the event is the plugin's own.
  struct Event {
    ggml_backend_event_t ggml = nullptr;
    void* cuda = nullptr;
  };
  explicit Join(Server& server) : server_(server), workspace_(server), ranges_(server) {}
  bool open(std::string& why);
  bool create(Event& event, std::string& why);
  bool ggml_records(const Event& event, std::string& why);
  bool ggml_waits(const Event& event, std::string& why);
  bool enter(std::string& why);
  bool leave(std::string& why);

  Server& server_;
  Workspace workspace_;
  MaskRanges ranges_;
  void *context_ = nullptr, *own_stream_ = nullptr;  // null: a CPU
  ggml_backend_t backend_ = nullptr;                 // ggml's stream is this backend's, or
  void* stream_ = nullptr;                           // this one
  Event before_, after_;
#if KVJIT_PLUGIN_SLEEPS
  // A build for tests: both streams sleep, so that work which does not wait for the other one comes too early.
  bool sleep_ahead(std::string& why);
  void* sleeping_stream_ = nullptr;
  Event slept_;
#endif
};

}  // namespace kvjit::plugin
