// Makes a list of kernels: see warm.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/jit/warm.hpp"

#include <mutex>
#include <set>

#include "runtime/base/parallel.hpp"
#include "runtime/base/sha256.hpp"

namespace kvjit {

Result<WarmReport> warm(Context& context, const std::vector<std::string>& list,
                        const std::function<Result<std::vector<Source>>()>& sources, unsigned threads,
                        const std::function<void(const WarmProgress&)>& progress) {
  Store* const store = context.store();
  if (!store) return fail(Code::internal, "a context without a store cannot be warmed");
  Sha256 hash;
  hash.update_delimited("kvjit warm list");
  for (const std::string& item : list) hash.update_delimited(item);
  const std::string marker = hex(hash.finish());
  if (const int kernels = store->complete_kernels(marker); kernels > 0) return WarmReport{kernels, 0, true};

  KV_TRY(all, sources());
  std::vector<const Source*> jobs;
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const Source& source : all) {
    KV_TRY(key, store->key(source));
    if (seen.insert(key.hex).second) jobs.push_back(&source), keys.push_back(key.hex);
  }
  std::mutex mutex;
  Result<void> outcome;
  std::stop_source stop;
  WarmProgress state{0, static_cast<int>(jobs.size()), {}};
  const bool in_memory = store->folder().empty();
  const auto before = store->counters().compiles;
  in_parallel(jobs.size(), threads, [&](std::size_t i) {
    if (stop.stop_requested()) return;
    Result<void> result;
    if (!in_memory)
      result = store->get(
          *jobs[i], [](const Store::Hit&) -> Result<void> { return {}; }, stop.get_token());
    else if (const auto record = context.get(*jobs[i], stop.get_token()); !record)
      result = tl::unexpected(record.error());
    const std::lock_guard guard(mutex);
    if (!result && outcome) outcome = result, stop.request_stop();
    ++state.done;
    state.kernel = jobs[i]->name;
    if (result && progress) progress(state);
  });
  KV_CHECK(outcome);
  store->mark_complete(marker, keys);
  return WarmReport{static_cast<int>(jobs.size()), store->counters().compiles - before, false};
}

}  // namespace kvjit
