// Compiles kernels through the store, on several threads: see ahead.hpp.
// SPDX-License-Identifier: MIT
#include "tools/pack/ahead.hpp"

#include <chrono>
#include <mutex>
#include <set>
#include <stop_token>
#include <utility>

#include "runtime/base/parallel.hpp"

namespace kvjit {

std::vector<KernelAhead> compile_ahead(Store& store, const std::vector<Source>& sources, const AheadCall& call) {
  std::vector<KernelAhead> kernels;
  std::set<std::string> seen;
  for (const Source& source : sources)
    if (Key request = store.request_key(source); seen.insert(request.hex).second) {
      kernels.emplace_back();
      kernels.back().source = &source;
      kernels.back().request = std::move(request);
    }
  std::mutex mutex;
  std::stop_source stop;
  AheadProgress state{0, kernels.size(), 0};
  const auto begin = std::chrono::steady_clock::now();
  in_parallel(kernels.size(), call.threads, [&](std::size_t i) {
    const auto is_stopped = [&call] { return call.is_stopped && call.is_stopped(); };
    if (stop.stop_requested() || is_stopped()) return;
    KernelAhead& kernel = kernels[i];
    const auto keep = [&](const Store::Hit& hit) -> Result<void> {
      kernel.origin = hit.origin;
      kernel.entry = hit.entry;
      return {};
    };
    const auto got = store.get(*kernel.source, kernel.request, keep, stop.get_token());
    if (!got && is_stopped()) return;  // what stops the call may have ended the compiler
    if (!got) kernel.entry = tl::unexpected(got.error());
    const std::lock_guard guard(mutex);
    if (!got && call.stops_at_failure) stop.request_stop();
    ++state.done;
    state.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (call.progress) call.progress(kernel, state);
  });
  return kernels;
}

}  // namespace kvjit
