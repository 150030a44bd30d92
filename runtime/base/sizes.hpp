// Counts of bytes that may overflow, and the alignments of memory. A count that does not fit 64 bits becomes kTooMuch
// and stays so; no allocation of that size can succeed.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <limits>

namespace kvjit {

constexpr std::size_t kTooMuch = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kArrayAlignment = 256;  // bytes: of the planes of a cache and of the arrays of a workspace
constexpr unsigned kVectorAlignment = 16;     // bytes: kernels read planes 16 bytes at a time

// A negative `b` gives kTooMuch too.
inline std::size_t times(std::size_t a, long long b) {
  std::size_t product = 0;
  return b < 0 || a == kTooMuch || __builtin_mul_overflow(a, static_cast<std::size_t>(b), &product) ? kTooMuch
                                                                                                    : product;
}
inline std::size_t plus(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooMuch : sum;
}
// Rounded up to a multiple of kArrayAlignment.
inline std::size_t rounded(std::size_t bytes) {
  const std::size_t up = plus(bytes, kArrayAlignment - 1);
  return up == kTooMuch ? kTooMuch : up / kArrayAlignment * kArrayAlignment;
}
template <class... Counts>
std::size_t product(std::size_t first, Counts... counts) {
  ((first = times(first, counts)), ...);
  return first;
}
inline long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

// Number of rows of a call from which on bulk kernels are faster than kernels for any row. Filling a bulk kernel's
// tables takes as long as some hundred rows.
inline constexpr std::size_t kLeastBulkRows = 2048;

}  // namespace kvjit
