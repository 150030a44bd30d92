// Joins streams by events: see join.hpp.
// SPDX-License-Identifier: MIT
#include "ways/join.hpp"

#include <fmt/format.h>

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

// Creates the stream of the plugin's own, and events if ggml has none for it.
bool Join::open_stream(std::string& why) {
  const CudaDriver& cuda = *CudaDriver::open();
  if (!succeeded(cuda.cuDevicePrimaryCtxRetain(&context_, server_.ordinal()), "retaining the context", why))
    return false;
  const Bound bound(context_);
  return succeeded(bound.status, "binding the context", why) &&
         succeeded(cuda.cuStreamCreate(&own_stream_, kNonBlocking), "creating a stream", why) &&
         (backend_ || (succeeded(cuda.cuEventCreate(&before_, kNoTiming), "creating an event", why) &&
                       succeeded(cuda.cuEventCreate(&after_, kNoTiming), "creating an event", why)));
}

std::unique_ptr<Join> Join::make(ggml_backend_t backend, Server& server, std::string& why) {
  std::unique_ptr<Join> join(new Join(server));
  if (!server.is_gpu()) return join;
  join->backend_ = backend;
  ggml_backend_dev_t const device = ggml_backend_get_device(backend);
  join->ggml_before_ = ggml_backend_event_new(device);
  join->ggml_after_ = ggml_backend_event_new(device);
  if (!join->ggml_before_ || !join->ggml_after_) return why = "this ggml has no events for the device", nullptr;
  join->before_ = join->ggml_before_->context;
  join->after_ = join->ggml_after_->context;
  return join->open_stream(why) ? std::move(join) : nullptr;
}

std::unique_ptr<Join> Join::make(void* stream, Server& server, std::string& why) {
  std::unique_ptr<Join> join(new Join(server));
  join->stream_ = stream;
  return join->open_stream(why) ? std::move(join) : nullptr;
}

bool Join::enter(std::string& why) {
  const CudaDriver& cuda = *CudaDriver::open();
  if (backend_)
    ggml_backend_event_record(ggml_before_, backend_);
  else if (!succeeded(cuda.cuEventRecord(before_, stream_), "recording an event", why))
    return false;
  return succeeded(cuda.cuStreamWaitEvent(own_stream_, before_, 0), "waiting for ggml", why);
}

bool Join::leave(std::string& why) {
  const CudaDriver& cuda = *CudaDriver::open();
  if (!succeeded(cuda.cuEventRecord(after_, own_stream_), "recording an event", why)) return false;
  if (!backend_) return succeeded(cuda.cuStreamWaitEvent(stream_, after_, 0), "making ggml wait", why);
  ggml_backend_event_wait(backend_, ggml_after_);
  return true;
}

bool Join::attend(const Node& node, std::string& why) {
  if (!own_stream_) return server_.attend(node, nullptr, workspace_, why);
  const Bound bound(context_);
  if (!succeeded(bound.status, "binding the context", why) || !enter(why)) return false;
  // Once joined, the stream must rejoin, or a capture under way is lost.
  const bool is_done = server_.attend(node, own_stream_, workspace_, why);
  return leave(why) && is_done;
}

}  // namespace kvjit::plugin
