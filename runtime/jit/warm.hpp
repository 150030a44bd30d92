// warm: compiles the kernels of a list before they are needed, in parallel and each once. A complete list leaves a
// marker in the cache folder, so the next process skips it without generating anything.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/jit/context.hpp"

namespace kvjit {

struct WarmProgress {
  int done = 0,        // kernels that are ready
      count = 0;       // kernels of the list
  std::string kernel;  // name of the kernel that became ready last
};
struct WarmReport {
  int kernels = 0;             // kernels of the list, each counted once
  std::uint64_t compiled = 0;  // kernels that this call compiled
  bool was_complete = false;   // the marker was found
};

// list: everything that the sources depend on, so that equal lists have equal sources. sources: generates the sources;
// called only if there is no marker. Kernels go to the cache folder, or to the context's memory if there is no folder.
Result<WarmReport> warm(Context& context, const std::vector<std::string>& list,
                        const std::function<Result<std::vector<Source>>()>& sources, unsigned threads,
                        const std::function<void(const WarmProgress&)>& progress);

}  // namespace kvjit
