// Lloyd-Max by Newton's method on the centroid condition of the positive half of a symmetric density.
//
// Cell i is [b_i, b_i+1). b_0 is 0, the last bound is the end of the density, and the others are the midpoints
// (c_i-1 + c_i) / 2. Each level c_i must be m(b_i, b_i+1), the mean of the density in its cell. Plain Lloyd iteration
// needs about levels^2 steps. Newton's matrix is tridiagonal, and ten steps are enough. Numbers are long double,
// because the matrix loses a factor of about levels^2 in precision and 256 levels must still be exact to 1e-12.
// SPDX-License-Identifier: MIT
#include "generator/formats/codebook.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvjit {
namespace {

using Real = long double;

// A source has these functions for x >= 0: its density, upper_tail P(X > x), upper_moment E[X; X > x], and start_tail,
// which is the upper tail of the asymptotically optimal density of levels (the cube root of the source's density,
// normalised). Normal is N(0,1).
struct Normal {
  Real end() const { return 20; }  // the largest x at which a level is searched
  Real density(Real x) const { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>); }
  Real upper_tail(Real x) const { return std::erfc(x / std::numbers::sqrt2_v<Real>) / 2; }
  Real upper_moment(Real x) const { return density(x); }
  Real start_tail(Real x) const { return upper_tail(x / std::sqrt(Real(3))); }  // a normal of variance 3
};

// I_u(a, b), the regularised incomplete beta function, by its continued fraction (NIST DLMF 8.17.22), evaluated from
// the inside out. rest is 1 - u, passed separately because 1 - u loses all digits when u is near 1.
Real incomplete_beta(Real u, Real rest, Real a, Real b) {
  if (u > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(rest, u, b, a);  // where the fraction converges slowly
  const auto odd = [&](int m) { return -(a + m) * (a + b + m) * u / ((a + 2 * m) * (a + 2 * m + 1)); };
  const auto even = [&](int m) { return m * (b - m) * u / ((a + 2 * m - 1) * (a + 2 * m)); };
  Real value = 1;
  for (int m = 150; m > 0; --m) value = 1 + even(m) / (1 + odd(m) / value);  // about sqrt(max(a, b)) of them are needed
  value = 1 + odd(0) / value;
  const Real log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  return std::pow(u, a) * std::pow(rest, b) * std::exp(-log_beta) / a / value;
}

// The source whose density is proportional to (1 - t^2 / d)^(a - 1) on |t| < sqrt(d). With a = (d - 1) / 2 it is a
// coordinate of a unit vector times sqrt(d).
struct Sphere {
  Real d, a;
  Real end() const { return std::sqrt(d); }
  Real rest(Real x) const { return std::max(Real(0), (end() - x) * (end() + x) / d); }  // 1 - x^2 / d
  Real beta() const { return std::exp(std::lgamma(a) + std::lgamma(Real(0.5)) - std::lgamma(a + Real(0.5))); }
  Real density(Real x) const { return std::pow(rest(x), a - 1) / (beta() * end()); }
  Real upper_tail(Real x) const { return incomplete_beta(rest(x), x * x / d, a, Real(0.5)) / 2; }
  Real upper_moment(Real x) const { return end() * std::pow(rest(x), a) / (2 * a * beta()); }
  Real start_tail(Real x) const { return Sphere{d, 1 + (a - 1) / 3}.upper_tail(x); }
};

// The x at which start_tail is `tail`, for 0 < tail <= 1/2, to about 1e-6: a level to begin with.
template <class Source>
Real start(const Source& source, Real tail) {
  Real low = 0, high = source.end();
  for (int i = 0; i < 24; ++i) (source.start_tail((low + high) / 2) > tail ? low : high) = (low + high) / 2;
  return (low + high) / 2;
}

// One Newton step over the positive levels c. It returns the largest change.
template <class Source>
Real newton_step(const Source& source, std::vector<Real>& c) {
  const int n = int(c.size());
  std::vector<Real> right(n), value(n);  // eliminated upper diagonal and right-hand side (Thomas algorithm)
  for (int i = 0; i < n; ++i) {
    const bool is_first = i == 0, is_last = i == n - 1;
    const Real a = is_first ? 0 : (c[i - 1] + c[i]) / 2;
    const Real b = is_last ? 0 : (c[i] + c[i + 1]) / 2;
    const Real mass = source.upper_tail(a) - (is_last ? 0 : source.upper_tail(b));
    const Real mean = (source.upper_moment(a) - (is_last ? 0 : source.upper_moment(b))) / mass;
    const Real by_a = is_first ? 0 : source.density(a) * (mean - a) / mass;  // d mean / d a
    const Real by_b = is_last ? 0 : source.density(b) * (b - mean) / mass;
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

template <class Source>
std::vector<double> lloyd_max(const Source& source, int bits) {
  const int half = 1 << (bits - 1);
  std::vector<Real> c(half);
  for (int i = 0; i < half; ++i) c[i] = start(source, (half - i - Real(0.5)) / (2 * half));
  // Newton steps until they are as small as the rounding errors and no longer shrink.
  Real change = 1, last = 2;
  for (int step = 0; step < 60 && (change > 1e-12L || change < last / 2); ++step) {
    last = change;
    change = newton_step(source, c);
  }
  std::vector<double> values(2 * half);
  for (int i = 0; i < half; ++i) {
    values[half + i] = double(c[i]);
    values[half - 1 - i] = -double(c[i]);
  }
  return values;
}

}  // namespace

std::vector<double> lloyd_max_normal(int bits) { return lloyd_max(Normal{}, bits); }
std::vector<double> lloyd_max_sphere(int bits, int d) { return lloyd_max(Sphere{Real(d), Real(d - 1) / 2}, bits); }

std::vector<double> midpoints(const std::vector<double>& values) {
  std::vector<double> bounds;
  for (std::size_t i = 1; i < values.size(); ++i) bounds.push_back((values[i - 1] + values[i]) / 2);
  return bounds;
}

int code_of(double v, const std::vector<double>& bounds) {
  return int(std::upper_bound(bounds.begin(), bounds.end(), v) - bounds.begin());
}

}  // namespace kvjit
