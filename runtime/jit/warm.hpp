// warm: makes the kernels of a list before they are needed, in parallel and each once. A list that was made as a whole
// leaves a marker in the cache folder, so the next process knows it without generating anything.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/jit/context.hpp"

namespace kvjit {

struct WarmProgress {
  int done = 0,        // kernels that are made
      count = 0;       // kernels of the list
  std::string kernel;  // name of the one that was made last
};
struct WarmReport {
  int kernels = 0;             // kernels of the list, each counted once
  std::uint64_t compiled = 0;  // kernels that this call compiled
  bool was_complete = false;   // the marker was found
};

// list: everything that the sources depend on, so that equal lists have equal sources. sources: returns them; called
// only if there is no marker. Kernels go to the cache folder, or to the context's memory if there is no folder.
Result<WarmReport> warm(Context& context, const std::vector<std::string>& list,
                        const std::function<Result<std::vector<Source>>()>& sources, unsigned threads,
                        const std::function<void(const WarmProgress&)>& progress);

}  // namespace kvjit
