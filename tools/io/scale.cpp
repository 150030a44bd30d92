// Computes the ticks of axes: see scale.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvjit::svg {

Scale::Scale(double low, double high, bool is_log, double least_span) : is_log_(is_log) {
  constexpr double kMargin = 0.05;  // of the span
  const double span = std::max(map(high) - map(low), least_span), centre = (map(low) + map(high)) / 2;
  low_ = centre - (0.5 + kMargin) * span, high_ = centre + (0.5 + kMargin) * span;
}

std::vector<double> Scale::decades() const {
  constexpr std::size_t kLeast = 3;  // ticks
  std::vector<double> ticks;
  for (const std::vector<int>& factors : {std::vector{1}, {1, 2, 5}, {1, 2, 3, 5, 7}}) {
    ticks.clear();
    for (double power = std::floor(low_); power <= high_; ++power)
      for (const int factor : factors) add(factor * std::pow(10, power), ticks);
    if (ticks.size() >= kLeast) break;
  }
  return ticks;
}

std::vector<double> Scale::doublings() const {
  std::vector<double> ticks;
  const double last = std::log2(std::pow(10, high_));
  for (double power = std::floor(std::log2(std::pow(10, low_))); power <= last; ++power)
    for (const double factor : {1.0, 1.5}) add(factor * std::exp2(power), ticks);
  return ticks;
}

std::vector<double> Scale::even() const {
  constexpr double kMost = 8;  // ticks
  double step = std::pow(10, std::floor(std::log10((high_ - low_) / kMost)));
  for (const double factor : {2.0, 2.5, 2.0})  // 1, 2, 5 and 10 times the power
    if ((high_ - low_) / step > kMost) step *= factor;
  std::vector<double> ticks;
  for (double count = std::ceil(low_ / step); count * step <= high_; ++count)
    ticks.push_back(count * step + 0.0);  // not -0
  return ticks;
}

double Scale::map(double value) const { return is_log_ ? std::log10(value) : value; }

void Scale::add(double tick, std::vector<double>& ticks) const {
  if (map(tick) >= low_ && map(tick) <= high_) ticks.push_back(tick);
}

std::string tick_text(double value) {
  constexpr double kLeastPlain = 0.0099;
  if (value >= kLeastPlain || value <= 0) return fmt::format("{:.10g}", value);
  const double power = std::floor(std::log10(value) + 1e-9);
  return fmt::format("{:.0f}e{:.0f}", value / std::pow(10, power), power);
}

}  // namespace kvjit::svg
