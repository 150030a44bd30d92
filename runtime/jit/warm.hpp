// Warm: the kernels of a list of specs are made before they are needed, in parallel, each once. A list that is complete
// leaves a marker in the cache, so that the next process sees it without generating anything.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/jit/context.hpp"

namespace kvjit {

struct WarmProgress {
  int done = 0, count = 0;
  std::string kernel;  // that is done
};
struct WarmReport {
  int kernels = 0;
  std::uint64_t compiled = 0;
  bool was_complete = false;
};

// list: what the sources are made from, and all that decides how; with the same list they are the same. sources: called
// only if the list is not complete. With a folder, kernels go there; without one, into the context's memory.
Result<WarmReport> warm(Context& context, const std::vector<std::string>& list,
                        const std::function<Result<std::vector<Source>>()>& sources, unsigned threads,
                        const std::function<void(const WarmProgress&)>& progress);

}  // namespace kvjit
