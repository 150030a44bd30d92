// A random spec executed, and held to attention in double and to its request.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>

#include "runtime/jit/context.hpp"
#include "tools/verify/fuzz.hpp"

namespace kvjit {

enum class FuzzVerdict { passed, refused, failed };  // refused: as it must be
struct FuzzOutcome {
  FuzzVerdict verdict = FuzzVerdict::failed;
  std::string reason;           // of what did not pass
  std::string program;          // its id
  double error = 0;             // relative L2 of the worst sequence, less what sparse_v may cost it
  bool is_by_rounding = false;  // passed above the limit: the rounding of queries and keys to halves explains as much
};

// Relative L2 that a program may be off: as every kernel, and by the rounding of its output.
double fuzz_limit(Element out_type);

FuzzOutcome run_fuzz(const FuzzCase& one, const Registry& registry, const std::shared_ptr<Context>& context);

}  // namespace kvjit
