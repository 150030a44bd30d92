// Compiles kernels through the store, on several threads: see ahead.hpp.
// SPDX-License-Identifier: MIT
#include "tools/pack/ahead.hpp"

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <set>
#include <stop_token>
#include <utility>

#include "runtime/base/parallel.hpp"

namespace kvjit {

std::string progress_text(const AheadProgress& p, const std::string& name) {
  const double left = p.done ? p.seconds / static_cast<double>(p.done) * static_cast<double>(p.count - p.done) : 0;
  return fmt::format("{}/{} {:.0f} s, {:.0f} s to go: {}", p.done, p.count, p.seconds, left, name);
}

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
    if (stop.stop_requested()) return;
    KernelAhead& kernel = kernels[i];
    const auto keep = [&](const Store::Hit& hit) -> Result<void> {
      kernel.origin = hit.origin;
      kernel.entry = hit.entry;
      return {};
    };
    const auto got = store.get(*kernel.source, kernel.request, keep, stop.get_token());
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
