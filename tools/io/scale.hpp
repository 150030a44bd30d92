// The axis of a chart: where a number stands, and which numbers are ticks.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

namespace kvjit::svg {

// Maps the numbers of an axis to 0 .. 1, with a margin at both ends.
class Scale {
 public:
  Scale() = default;
  // The axis spans at least `least_span`, in numbers or, if it is logarithmic, in decades.
  Scale(double low, double high, bool is_log, double least_span);

  double operator()(double value) const { return (map(value) - low_) / (high_ - low_); }

  // Of a logarithmic axis: powers of ten, and 2 and 5 times each if these are fewer than three ticks, and 3 and 7 times
  // each if these are still too few.
  std::vector<double> decades() const;
  std::vector<double> doublings() const;  // of a logarithmic axis: powers of two and 1.5 times each, sizes of codes
  std::vector<double> even() const;       // of a linear axis: multiples of 1, 2 or 5 times a power of ten

 private:
  double map(double value) const;
  void add(double tick, std::vector<double>& ticks) const;

  bool is_log_ = false;
  double low_ = 0, high_ = 1;
};

std::string tick_text(double value);  // "0.05", "2e-3", "16"

}  // namespace kvjit::svg
