// Joins streams by events: see join.hpp.
// SPDX-License-Identifier: MIT
#include "ways/join.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "ggml_tables.hpp"
#include "ways/cuda_driver.hpp"

namespace kvjit::plugin {
namespace {

constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING: the default stream does not wait for it

bool succeeded(int status, const char* doing, std::string& why) {
  if (status == 0) return true;
  why = fmt::format("{}: CUDA error {}", doing, status);
  return false;
}

// Binds a context to the thread.
struct Bound {
  explicit Bound(void* context) : status(CudaDriver::open()->cuCtxPushCurrent(context)) {}
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() {
    void* popped = nullptr;
    if (status == 0) CudaDriver::open()->cuCtxPopCurrent(&popped);
  }
  const int status;
};

}  // namespace

bool Join::create(Event& event, std::string& why) {
  if (!backend_) return succeeded(CudaDriver::open()->cuEventCreate(&event.cuda, kNoTiming), "creating an event", why);
  event.ggml = ggml_backend_event_new(ggml_backend_get_device(backend_));
  if (!event.ggml) return why = "this ggml has no events for the device", false;
  event.cuda = event.ggml->context;
  return true;
}

bool Join::ggml_records(const Event& event, std::string& why) {
  if (!event.ggml) return succeeded(CudaDriver::open()->cuEventRecord(event.cuda, stream_), "recording an event", why);
  ggml_backend_event_record(event.ggml, backend_);
  return true;
}

bool Join::ggml_waits(const Event& event, std::string& why) {
  if (!event.ggml)
    return succeeded(CudaDriver::open()->cuStreamWaitEvent(stream_, event.cuda, 0), "making ggml wait", why);
  ggml_backend_event_wait(backend_, event.ggml);
  return true;
}

// Creates the stream of the plugin's own, and the events.
bool Join::open(std::string& why) {
  const CudaDriver& cuda = *CudaDriver::open();
  if (!succeeded(cuda.cuDevicePrimaryCtxRetain(&context_, server_.ordinal()), "retaining the context", why))
    return false;
  const Bound bound(context_);
  if (!succeeded(bound.status, "binding the context", why)) return false;
#if KVJIT_PLUGIN_SLEEPS
  if (!succeeded(cuda.cuStreamCreate(&sleeping_stream_, kNonBlocking), "creating a stream", why) ||
      !create(slept_, why))
    return false;
#endif
  return succeeded(cuda.cuStreamCreate(&own_stream_, kNonBlocking), "creating a stream", why) && create(before_, why) &&
         create(after_, why);
}

std::unique_ptr<Join> Join::make(ggml_backend_t backend, Server& server, std::string& why) {
  std::unique_ptr<Join> join(new Join(server));
  if (!server.is_gpu()) return join;
  join->backend_ = backend;
  return join->open(why) ? std::move(join) : nullptr;
}

std::unique_ptr<Join> Join::make(void* stream, Server& server, std::string& why) {
  std::unique_ptr<Join> join(new Join(server));
  join->stream_ = stream;
  return join->open(why) ? std::move(join) : nullptr;
}

#if KVJIT_PLUGIN_SLEEPS
// A stream sleeps when the work before is done.
bool sleep_on(void* stream, std::string& why) {
  constexpr unsigned kMicroseconds = 2000;
  const auto sleep = [](void*) { usleep(kMicroseconds); };
  return succeeded(CudaDriver::open()->cuLaunchHostFunc(stream, sleep, nullptr), "queueing a sleep", why);
}

// ggml's stream sleeps. The sleep is on a stream of its own, or the plugin's stream would be late itself.
bool Join::sleep_ahead(std::string& why) {
  const CudaDriver& cuda = *CudaDriver::open();
  return ggml_records(before_, why) &&
         succeeded(cuda.cuStreamWaitEvent(sleeping_stream_, before_.cuda, 0), "waiting for ggml", why) &&
         sleep_on(sleeping_stream_, why) &&
         succeeded(cuda.cuEventRecord(slept_.cuda, sleeping_stream_), "recording an event", why) &&
         ggml_waits(slept_, why);
}
#endif

bool Join::enter(std::string& why) {
#if KVJIT_PLUGIN_SLEEPS
  if (!sleep_ahead(why)) return false;
#endif
  return ggml_records(before_, why) &&
         succeeded(CudaDriver::open()->cuStreamWaitEvent(own_stream_, before_.cuda, 0), "waiting for ggml", why);
}

bool Join::leave(std::string& why) {
#if KVJIT_PLUGIN_SLEEPS
  if (!sleep_on(own_stream_, why)) return false;
#endif
  return succeeded(CudaDriver::open()->cuEventRecord(after_.cuda, own_stream_), "recording an event", why) &&
         ggml_waits(after_, why);
}

bool Join::attend(const Node& node, std::string& why) {
  if (!own_stream_) return server_.attend(node, nullptr, workspace_, ranges_, why);
  const Bound bound(context_);
  if (!succeeded(bound.status, "binding the context", why) || !enter(why)) return false;
  // Once joined, the stream must rejoin, or a capture under way is lost.
  const bool is_done = server_.attend(node, own_stream_, workspace_, ranges_, why);
  return leave(why) && is_done;
}

}  // namespace kvjit::plugin
