// Compiles kernels before somebody needs them, for `kvjit build`, `warm` and `pack`. Each kernel goes through the
// store, once for each key, so that parallel processes share the work and an interrupted call leaves what it has done.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "generator/source.hpp"
#include "runtime/store/store.hpp"

namespace kvjit {

// A kernel after its turn: where it came from, or why there is none. The source stays the caller's.
struct KernelAhead {
  const Source* source = nullptr;
  Key request;                       // the key by which bundles are searched
  Origin origin = Origin::compiled;  // the layer of the store that had it
  Result<CacheEntry> entry = fail(Code::cancelled, "not compiled, because another kernel failed");
};

struct AheadProgress {
  std::size_t done = 0;   // kernels that had their turn
  std::size_t count = 0;  // kernels in all
  double seconds = 0;     // seconds since the start
};

struct AheadCall {
  unsigned threads = 1;
  bool stops_at_failure = false;     // the first failure cancels the kernels that are left; else all have their turn
  std::function<bool()> is_stopped;  // once it returns true no further kernel begins; or empty
  // Called for each kernel that had its turn, by one thread at a time.
  std::function<void(const KernelAhead&, const AheadProgress&)> progress;
};
// The kernels of the sources, each key once, in the order of the sources.
std::vector<KernelAhead> compile_ahead(Store& store, const std::vector<Source>& sources, const AheadCall& call);

}  // namespace kvjit
