// run_ggml executes cases of ggml's test matrix (matrix.hpp) on the device of a context. It has ggml's semantics
// (masks, slopes, sinks, views) and ggml's limit, and judges every row by attention in double precision. It also fails
// a case whose launch report names other kernels, formats or features than the case requests. Cases of one program run
// one after the other; programs run in parallel.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/calls.hpp"
#include "tools/verify/ggml/matrix.hpp"

namespace kvjit {

// Limit of the NMSE: sum of (a - b)^2 over sum of b^2. The measure and the limit are those of ggml's tests.
constexpr double kMaxGgmlError = 5e-4;

enum class GgmlVerdict { passed, failed, refused };
struct GgmlOutcome {
  GgmlVerdict verdict = GgmlVerdict::failed;
  bool is_done = false;        // not if options.is_stopped ended the run before
  std::string reason;          // why it failed or was refused; empty: it passed
  double error = 0;            // NMSE against attention over the decoded cache
  double quantized_error = 0;  // NMSE against attention over K and V before quantization, for the first query head
  std::string program;         // id of the program that served the case
  std::string kernel;          // that attended: "decode", "prefill" or "two-pass"
};

struct GgmlOptions {
  unsigned threads = 1;              // programs that are compiled and run at once
  bool shares_programs = false;      // one program serves several cases: GgmlCase::served_by
  std::function<bool()> is_stopped;  // once it returns true no further case begins; or empty
  std::function<void(std::size_t done)> progress =
      {};  // called after each case with the number of cases done; or empty
  // Cases whose program has this kernel take it, whatever calls would take.
  ManyRows many_rows = ManyRows::chosen;
};

// Returns one outcome for each case, in the order of the cases.
std::vector<GgmlOutcome> run_ggml(const std::vector<GgmlCase>& cases, const Registry& registry,
                                  const std::shared_ptr<Context>& context, const GgmlOptions& options);

}  // namespace kvjit
