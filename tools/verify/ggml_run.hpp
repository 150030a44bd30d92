// Cases of ggml's matrix executed: on the device of a context, by ggml's semantics, against attention in double.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/jit/context.hpp"
#include "tools/verify/ggml_matrix.hpp"

namespace kvjit {

constexpr double kMaxGgmlError = 5e-4;  // NMSE: sum of (a - b)^2 over sum of b^2, as ggml's tests have it

enum class GgmlVerdict { passed, failed, refused };
struct GgmlOutcome {
  GgmlVerdict verdict = GgmlVerdict::failed;
  std::string reason;          // of what did not pass
  double error = 0;            // NMSE against attention over the decoded cache
  double quantized_error = 0;  // against attention over what was stored, of the first head of queries
  std::string program;         // its id
};

struct GgmlOptions {
  unsigned threads = 1;
  bool shares_programs = false;  // GgmlCase::served_by
  std::function<void(std::size_t done)> progress;
};

// One outcome for each case.
std::vector<GgmlOutcome> run_ggml(const std::vector<GgmlCase>& cases, const Registry& registry,
                                  const std::shared_ptr<Context>& context, const GgmlOptions& options);

}  // namespace kvjit
