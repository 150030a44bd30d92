// The function that a patched ggml-cuda asks: see hook.hpp.
// SPDX-License-Identifier: MIT
#include "ways/hook.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "attention.hpp"
#include "settings.hpp"
#include "stats.hpp"
#include "ways/join.hpp"

namespace kvjit::plugin {
namespace {

ggml_backend_reg_t hooked = nullptr;

// The joins, by device and stream.
std::mutex& joins_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::unique_ptr<Join>& join_of(ggml_backend_dev_t device, void* stream) {
  static auto& joins = *new std::map<std::pair<ggml_backend_dev_t, void*>, std::unique_ptr<Join>>;
  return joins[{device, stream}];
}

// device: ggml's number of the device. tensor: null, if a graph begins on the stream. ggml_serves: ggml-cuda has a
// kernel for the node. launches: the node is to be queued on `stream`, which may be captured; else the question is
// whether it would be.
bool serve(int device_number, void* stream, const ggml_tensor* tensor, bool ggml_serves, bool launches) {
  ggml_backend_dev_t const device = ggml_backend_reg_dev_get(hooked, std::size_t(device_number));
  if (!tensor) {
    const std::lock_guard guard(joins_mutex());
    if (const auto& join = join_of(device, stream)) join->begin_graph();
    return false;
  }
  const auto node = read_node(tensor);
  if (!node) return false;
  if (!launches) return is_served(device, *node, ggml_serves) && !ggml_serves;
  Server* const server = taker_of(device, *node, ggml_serves);
  if (!server) return false;
  std::string why;
  Join* join = nullptr;
  {
    const std::lock_guard guard(joins_mutex());
    auto& own = join_of(device, stream);
    if (!own) own = Join::make(stream, *server, why);
    join = own.get();
  }
  if (join && join->attend(*node, why)) return true;
  stats().left(why);
  say(describe(*node) + ": " + why);
  return false;
}

}  // namespace

bool set_hook(ggml_backend_reg_t registry) {
  using Set = void (*)(bool (*)(int, void*, const ggml_tensor*, bool, bool));
  const auto set =
      reinterpret_cast<Set>(ggml_backend_reg_get_proc_address(registry, "ggml_backend_cuda_set_attention_hook"));
  if (!set) return false;
  hooked = registry;
  set(&serve);
  return true;
}

}  // namespace kvjit::plugin
