// The rules by which run, verify and the fuzz judge a kernel: the inputs that they give a harness, the limit of its
// error, and the error of lse. The exact answer is attention in double precision (measure.hpp). A spec with a hook is
// judged by the reference kernel instead, because no oracle can evaluate the hook's text.
// SPDX-License-Identifier: MIT
#pragma once
#include <span>
#include <vector>

#include "tools/verify/harness.hpp"

namespace kvjit {

constexpr double kMaxKernelError = 1e-3;  // relative L2, of every attention kernel ahead of its rounding of the output

// Limit of the relative L2 error: kMaxKernelError, and the rounding of the output to out_type.
constexpr double kernel_limit(Element out_type) {
  return kMaxKernelError + (out_type == Element::bf16 ? 0x1p-9 : out_type == Element::f16 ? 0x1p-11 : 0);
}

// Error of an output far below 1: half of the smallest number of f16; of bf16 and f32 the least normal number, because
// GPUs flush smaller weights and outputs to zero. A weight is multiplied by V, whose largest number is given.
double least_error(Element out_type, double largest_value);

// Limit of the L2 error of one row: kernel_limit times its norm, or where one number is the most of the row, the
// rounding of that number to out_type. exact: the row.
double row_limit(Element out_type, double norm, std::span<const double> exact);

// An error above the limit passes up to this many standard deviations of rounding queries and keys to f16
// (rounding_deviation).
constexpr double kRoundingDeviations = 3;

// False if the error is NaN; "!(error > limit)" would be true.
inline bool is_within(double error, double limit) { return error <= limit; }

// Sets the new tokens of an append program: the last query_length of `tokens` tokens of K and V, which its call stores
// again. x: K and V, [kv_heads][capacity][dim] each.
void set_new_tokens(KernelHarness& harness, const Problem& problem, const std::vector<float>* const (&x)[2],
                    int tokens);

// Sets seeded random inputs for all features of a program.
// queries: of each sequence; 0: the program's query_length.
void set_features(KernelHarness& harness, const Problem& problem, int queries = 0);

// The largest difference of two arrays of log-sum-exps: relative to the exact value, to 1, or to what `scores` has for
// the row (largest_scores), whichever is largest. NaN if any difference is NaN.
double lse_error(std::span<const float> lse, std::span<const double> exact, std::span<const double> scores = {});

// Runs the reference kernel and returns its results as the exact ones, for specs with a hook.
Result<void> judge_by_reference(const KernelHarness& harness, std::span<const float> q, KernelHarness::Call call,
                                std::vector<double>& exact, std::vector<double>& exact_lse);

}  // namespace kvjit
