// Lloyd-Max for the standard normal, by Newton's method on the centroid condition of the positive half.
//
// Cell i holds [b_i, b_i+1), b_0 = 0, b_last = infinity, b_i = (c_i-1 + c_i) / 2. Wanted: c_i = m(b_i,
// b_i+1), the mean of N(0,1) in the cell. Plain Lloyd iteration needs about levels^2 steps; Newton's matrix
// is tridiagonal and ten steps are enough. Long double, because the matrix loses about levels^2 in precision
// and 256 levels must still be good to 1e-12.
// SPDX-License-Identifier: MIT
#include "generator/codebook.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvjit {
namespace {

using Real = long double;

Real density(Real x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>); }
Real upper_tail(Real x) { return std::erfc(x / std::numbers::sqrt2_v<Real>) / 2; }

Real upper_quantile(Real tail) {  // 0 < tail <= 1/2; to about 1e-6, enough to start from
  Real low = 0, high = 10;
  for (int i = 0; i < 24; ++i) (upper_tail((low + high) / 2) > tail ? low : high) = (low + high) / 2;
  return (low + high) / 2;
}

// One Newton step; returns the largest change.
Real newton_step(std::vector<Real>& c) {
  const int n = int(c.size());
  std::vector<Real> right(n), value(n);  // eliminated upper diagonal and right-hand side (Thomas algorithm)
  for (int i = 0; i < n; ++i) {
    const bool is_first = i == 0, is_last = i == n - 1;
    const Real a = is_first ? 0 : (c[i - 1] + c[i]) / 2;
    const Real b = is_last ? 0 : (c[i] + c[i + 1]) / 2;
    const Real density_b = is_last ? 0 : density(b);
    const Real mass = upper_tail(a) - (is_last ? 0 : upper_tail(b));
    const Real mean = (density(a) - density_b) / mass;
    const Real by_a = is_first ? 0 : density(a) * (mean - a) / mass;  // d mean / d a
    const Real by_b = is_last ? 0 : density_b * (b - mean) / mass;
    const Real left = -by_a / 2;
    const Real pivot = 1 - (by_a + by_b) / 2 - (is_first ? 0 : left * right[i - 1]);
    right[i] = -by_b / 2 / pivot;
    value[i] = (mean - c[i] - (is_first ? 0 : left * value[i - 1])) / pivot;
  }
  Real largest = 0;
  for (int i = n - 1; i >= 0; --i) {
    if (i < n - 1) value[i] -= right[i] * value[i + 1];
    c[i] += value[i];
    largest = std::max(largest, std::abs(value[i]));
  }
  return largest;
}

}  // namespace

std::vector<double> lloyd_max_normal(int bits) {
  const int half = 1 << (bits - 1);
  std::vector<Real> c(half);
  // Start: the asymptotically optimal density of levels is that of a normal of variance 3.
  for (int i = 0; i < half; ++i) c[i] = std::sqrt(Real(3)) * upper_quantile((half - i - Real(0.5)) / (2 * half));
  for (int step = 0; step < 60 && newton_step(c) > 1e-16L; ++step) {
  }
  std::vector<double> values(2 * half);
  for (int i = 0; i < half; ++i) {
    values[half + i] = double(c[i]);
    values[half - 1 - i] = -double(c[i]);
  }
  return values;
}

std::vector<double> midpoints(const std::vector<double>& values) {
  std::vector<double> bounds;
  for (std::size_t i = 1; i < values.size(); ++i) bounds.push_back((values[i - 1] + values[i]) / 2);
  return bounds;
}

int code_of(double v, const std::vector<double>& bounds) {
  return int(std::upper_bound(bounds.begin(), bounds.end(), v) - bounds.begin());
}

}  // namespace kvjit
