// Joins streams by events: see join.hpp.
// SPDX-License-Identifier: MIT
#include "ways/join.hpp"

#include <fmt/format.h>

#include "ggml_tables.hpp"
#include "ways/cuda_driver.hpp"

namespace kvjit::plugin {
namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING: the default stream does not wait for it

bool succeeded(int status, const char* doing, std::string& why) {
  if (status == 0) return true;
  why = fmt::format("{}: CUDA error {}", doing, status);
  return false;
}

}  // namespace

std::unique_ptr<Join> Join::make(ggml_backend_t backend, Server& server, std::string& why) {
  std::unique_ptr<Join> join(new Join(backend, server));
  if (!server.is_gpu()) return join;
  ggml_backend_dev_t const device = ggml_backend_get_device(backend);
  join->before_ = ggml_backend_event_new(device);
  join->after_ = ggml_backend_event_new(device);
  if (!join->before_ || !join->after_) return why = "this ggml has no events for the device", nullptr;
  const CudaDriver& cuda = *CudaDriver::open();
  if (!succeeded(cuda.cuDevicePrimaryCtxRetain(&join->context_, server.ordinal()), "retaining the context", why) ||
      !succeeded(cuda.cuCtxPushCurrent(join->context_), "binding the context", why))
    return nullptr;
  const bool has_stream = succeeded(cuda.cuStreamCreate(&join->stream_, kNonBlocking), "creating a stream", why);
  void* popped = nullptr;
  cuda.cuCtxPopCurrent(&popped);
  return has_stream ? std::move(join) : nullptr;
}

bool Join::enter(std::string& why) {
  ggml_backend_event_record(before_, backend_);
  return succeeded(CudaDriver::open()->cuStreamWaitEvent(stream_, before_->context, 0), "waiting for ggml", why);
}

bool Join::leave(std::string& why) {
  if (!succeeded(CudaDriver::open()->cuEventRecord(after_->context, stream_), "recording an event", why)) return false;
  ggml_backend_event_wait(backend_, after_);
  return true;
}

bool Join::attend(const Node& node, std::string& why) {
  if (!stream_) return server_.attend(node, nullptr, workspace_, why);
  const CudaDriver& cuda = *CudaDriver::open();
  if (!succeeded(cuda.cuCtxPushCurrent(context_), "binding the context", why)) return false;
  // Once joined, the stream must rejoin, or a capture under way is lost.
  bool is_done = enter(why);
  if (is_done) {
    is_done = server_.attend(node, stream_, workspace_, why);
    is_done &= leave(why);
  }
  void* popped = nullptr;
  cuda.cuCtxPopCurrent(&popped);
  return is_done;
}

}  // namespace kvjit::plugin
