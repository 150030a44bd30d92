// Draws numbers of K, V and the queries: see inputs.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/inputs/inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/formats/reference_codec.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {
namespace {

constexpr int kMostExponent = 100;       // 2^100 is 1e30; sums over tokens stay far below the largest float
constexpr int kLeastKeyExponent = -20;   // queries of 2^20 times N(0, 1): |q| times the scale is about 1e7
constexpr int kMostHalfExponent = 8;     // N(0, 1) times 2^8, with its outliers, stays below 65504
constexpr int kLeastHalfExponent = -12;  // below, outputs in f16 have few bits
constexpr int kLeastExactExponent = -4;  // halves of rows that are up to 64 times smaller have all their bits
constexpr float kMostHalf = 60000;
constexpr float kOutlier = 100;  // factor of the channels that are larger than the rest

int outlier_channel(int dim, int which) { return (which == 0 ? dim / 5 : dim / 2 + 1) % dim; }

double length_of(std::span<const float> x) {
  double square = 0;
  for (const float v : x) square += double{v} * v;
  return std::sqrt(square);
}

double largest_of(std::span<const float> x) {
  double largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

// A row by which formats are probed.
std::vector<float> probe(int dim) { return heavy_tailed(99, static_cast<std::size_t>(dim), dim); }

// Relative error of the probe, multiplied by 2^exponent, after it was stored.
double stored_error(const Format& format, int dim, int exponent) {
  std::vector<float> x = probe(dim);
  for (float& v : x) v = std::ldexp(v, exponent);
  const auto decoded = decode_row(format, encode_row(format, x), dim, false);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double unit = std::ldexp(1.0, -exponent), exact = x[i] * unit;
    error += (decoded[i] * unit - exact) * (decoded[i] * unit - exact), norm += exact * exact;
  }
  return std::isfinite(error) ? std::sqrt(error / norm) : HUGE_VAL;
}

// The exponent of two furthest from 0, up to `end`, by which rows may be multiplied and still keep their accuracy.
// Formats with a scale of the caller have any, because the scale is multiplied, too. Where a scale is the length of a
// row, half of the range is left upwards: of two rows of one length one may have a larger scale, which corrects for its
// codes.
int furthest_exponent(const Format& format, int dim, int end) {
  if (format.has_tensor_scale()) return end;
  const double limit = 1.3 * stored_error(format, dim, 0) + 1e-3;
  int good = 0, bad = end + (end > 0 ? 1 : -1);
  while (std::abs(bad - good) > 1) {
    const int middle = (good + bad) / 2;
    (stored_error(format, dim, middle) <= limit ? good : bad) = middle;
  }
  return good > 0 && format.has_scale() && format.scale.rule == ScaleRule::norm ? good - 1 : good;
}

}  // namespace

const char* to_string(InputClass one) {
  switch (one) {
    case InputClass::hidden:
      return "hidden";
    case InputClass::partly_hidden:
      return "partly_hidden";
    case InputClass::freed_pages:
      return "freed_pages";
    case InputClass::values:
      return "values";
    case InputClass::keys:
      return "keys";
    case InputClass::uneven_rows:
      return "uneven_rows";
    case InputClass::bad_rows:
      return "bad_rows";
    case InputClass::sinks:
      return "sinks";
  }
  return "?";
}

const char* to_string(Numbers numbers) {
  switch (numbers) {
    case Numbers::ordinary:
      return "ordinary";
    case Numbers::wide:
      return "wide";
    case Numbers::tiny:
      return "tiny";
    case Numbers::outliers:
      return "outliers";
    case Numbers::offset:
      return "offset";
    case Numbers::ties:
      return "ties";
    case Numbers::zeros:
      return "zeros";
  }
  return "?";
}

const char* to_string(Unseen unseen) {
  switch (unseen) {
    case Unseen::ones:
      return "0xFF";
    case Unseen::nan:
      return "NaN";
    case Unseen::infinite:
      return "infinite";
    case Unseen::unmapped:
      return "not mapped";
  }
  return "?";
}

std::vector<InputClass> InputClasses::list() const {
  std::vector<InputClass> all;
  for (int i = 0; i < kInputClasses; ++i)
    if (has(InputClass(i))) all.push_back(InputClass(i));
  return all;
}

InputWish InputWish::only(InputClasses selection) const {
  InputWish wish = *this;
  wish.classes = classes & selection;
  if (!wish.classes.has(InputClass::keys)) wish.numbers[0] = Numbers::ordinary;
  if (!wish.classes.has(InputClass::values)) wish.numbers[1] = Numbers::ordinary;
  return wish;
}

std::string InputWish::text() const {
  std::vector<std::string> parts;
  for (const InputClass one : classes.list()) parts.emplace_back(to_string(one));
  if (parts.empty()) return "ordinary";
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  text += fmt::format("; K {}, V {}", to_string(numbers[0]), to_string(numbers[1]));
  if (classes.has(InputClass::hidden)) text += fmt::format(", hidden memory {}", to_string(unseen));
  if (classes.has(InputClass::uneven_rows)) text += fmt::format(", long queries x {:.0f}", row_factor);
  if (classes.has(InputClass::bad_rows)) text += fmt::format(", {} {} in a query", is_all_bad ? "all" : "one", bad);
  return text;
}

InputWish draw_inputs(Uniform& random) {
  InputWish wish;
  wish.classes = InputClasses::all();
  const std::vector<Numbers> kinds = {Numbers::ordinary, Numbers::ordinary, Numbers::wide,     Numbers::wide,
                                      Numbers::wide,     Numbers::tiny,     Numbers::outliers, Numbers::offset,
                                      Numbers::ties,     Numbers::zeros};
  for (const int side : {0, 1}) {
    wish.numbers[side] = random.one_of(kinds);
    wish.place[side] = random.once_in(3) ? random.between(0.9, 1) : random.between(0, 1);
  }
  const auto keep_once_in = [&](int cases, InputClass one) {
    if (!random.once_in(cases)) wish.classes = wish.classes.without(one);
  };
  keep_once_in(3, InputClass::uneven_rows);
  keep_once_in(4, InputClass::bad_rows);
  keep_once_in(3, InputClass::partly_hidden);
  keep_once_in(2, InputClass::sinks);
  wish.row_factor = random.one_of<double>({30, 100, 1e3, 1e4});
  const float infinity = std::numeric_limits<float>::infinity();
  wish.bad = random.one_of<float>({infinity, -infinity, std::numeric_limits<float>::quiet_NaN()});
  wish.is_all_bad = random.once_in(2);
  wish.unseen = random.one_of<Unseen>({Unseen::ones, Unseen::nan, Unseen::infinite, Unseen::unmapped});
  return wish;
}

std::vector<InputWish> verified_inputs(InputClasses classes) {
  std::vector<InputWish> wishes;
  const auto add = [&](InputClasses some, const auto& change) {
    InputWish wish;
    wish.classes = some & classes;
    change(wish);
    if (!wish.classes.empty()) wishes.push_back(wish);
  };
  for (const Unseen unseen : {Unseen::nan, Unseen::infinite, Unseen::unmapped})
    add({InputClass::hidden}, [&](InputWish& wish) { wish.unseen = unseen; });
  add({InputClass::partly_hidden}, [](InputWish&) {});
  add({InputClass::freed_pages}, [](InputWish&) {});
  for (const int side : {0, 1})
    for (const Numbers numbers : {Numbers::wide, Numbers::tiny, Numbers::outliers, Numbers::offset, Numbers::zeros})
      add({side == 0 ? InputClass::keys : InputClass::values}, [&](InputWish& wish) {
        wish.numbers[side] = numbers;
        wish.place[side] = 0.97;
      });
  add({InputClass::uneven_rows}, [](InputWish& wish) { wish.row_factor = 1e4; });
  add({InputClass::bad_rows}, [](InputWish& wish) {
    wish.bad = std::numeric_limits<float>::infinity();
    wish.is_all_bad = true;
  });
  add({InputClass::sinks}, [](InputWish&) {});
  return wishes;
}

InputClasses classes_of(const std::vector<std::string>& names) {
  InputClasses classes;
  for (const InputClass one : InputClasses::all().list())
    if (std::find(names.begin(), names.end(), to_string(one)) != names.end()) classes = classes.with(one);
  return classes;
}

int exponent_of(const InputWish& wish, int side, const Format& format, int dim, const InputBounds& bounds) {
  const Numbers numbers = wish.numbers[side];
  if (numbers != Numbers::wide && numbers != Numbers::tiny) return 0;
  int low = furthest_exponent(format, dim, -kMostExponent), high = furthest_exponent(format, dim, kMostExponent);
  if (side == 0) {
    low = std::max(low - 8, bounds.q_type == Element::f16 ? -kMostHalfExponent : kLeastKeyExponent);
    high = std::min(high, bounds.q_type == Element::f16 ? 14 : kMostExponent);
  }
  const bool is_output = side == 1 || bounds.has_values_in_keys;
  if (is_output && bounds.out_type == Element::f16)
    low = std::max(low, kLeastHalfExponent), high = std::min(high, kMostHalfExponent);
  if (bounds.row_type == Element::f16) low = std::max(low, -14), high = std::min(high, kMostHalfExponent);
  if (bounds.becomes_halves) low = std::max(low, kLeastExactExponent), high = std::min(high, kMostHalfExponent);
  if (numbers == Numbers::tiny) {
    if (bounds.becomes_halves) return kLeastExactExponent;
    if (side == 0) return std::min(low, 0);
    const bool is_half = bounds.out_type == Element::f16 || bounds.row_type == Element::f16;
    return is_half ? -14 : -27 - static_cast<int>(wish.place[side] * 60);
  }
  return low + static_cast<int>(std::lround(wish.place[side] * std::max(high - low, 0)));
}

std::vector<float> draw_rows(const InputWish& wish, int side, const Format& format, int dim, std::size_t rows,
                             std::uint64_t seed, int exponent, const InputBounds& bounds) {
  const auto width = static_cast<std::size_t>(dim);
  const Numbers numbers = wish.numbers[side];
  std::vector<float> x = heavy_tailed(seed, rows * width, dim);
  if (numbers == Numbers::ordinary) return x;
  Uniform random(seed ^ 0x1f83d9ab);
  const float divisor = format.scale.divisor > 1 ? static_cast<float>(format.scale.divisor) : 127;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<float> one(&x[row * width], width);
    switch (numbers) {
      case Numbers::wide: {
        const double factor = random.once_in(3) ? 0 : random.between(side == 0 ? -10 : -6, 0);
        for (float& v : one) v *= static_cast<float>(std::exp2(factor));
        break;
      }
      case Numbers::outliers:
        for (float& v : one) v *= random.once_in(50) ? 20.f : 1.f;
        for (const int which : {0, 1}) one[static_cast<std::size_t>(outlier_channel(dim, which))] *= kOutlier;
        break;
      case Numbers::offset:
        for (float& v : one) v = std::clamp(v, -4.f, 4.f) + 50;
        break;
      case Numbers::ties: {
        const auto peak = static_cast<std::size_t>(random.below(dim));
        for (float& v : one) v = 0.5f * std::round(std::clamp(v, -6.f, 6.f) * divisor / 3);
        for (float& v : one) v = std::clamp(v, -divisor, divisor);
        one[peak] = -divisor;
        for (float& v : one)
          v *= 4 / divisor;  // divisors are rarely powers of two; then few numbers stay between codes
        break;
      }
      case Numbers::zeros:
        if (random.once_in(2)) std::fill(one.begin(), one.end(), random.once_in(2) ? 0.f : -0.f);
        break;
      case Numbers::ordinary:
      case Numbers::tiny:
        break;
    }
  }
  for (float& v : x) v = std::ldexp(v, exponent);
  // A row may be longer than the probe, by which the range was found.
  const bool is_half = bounds.row_type == Element::f16 || bounds.becomes_halves ||
                       ((side == 1 || bounds.has_values_in_keys) && bounds.out_type == Element::f16);
  double most = is_half ? kMostHalf : std::ldexp(1.0, 120);
  double most_length = HUGE_VAL;
  if (!format.has_tensor_scale()) {
    const int furthest = furthest_exponent(format, dim, kMostExponent);
    most = std::min(most, std::ldexp(largest_of(probe(dim)), furthest));
    most_length = std::ldexp(length_of(probe(dim)), furthest);
  }
  for (float& v : x) v = std::clamp(v, -static_cast<float>(most), static_cast<float>(most));
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<float> one(&x[row * width], width);
    const double length = length_of(one);
    if (length > most_length)
      for (float& v : one) v = static_cast<float>(v * (most_length / length));
  }
  return x;
}

std::vector<float> draw_queries(const InputWish& wish, int dim, std::size_t rows, std::uint64_t seed, int key_exponent,
                                Element q_type, std::vector<bool>& unjudged) {
  const auto width = static_cast<std::size_t>(dim);
  std::vector<float> q = heavy_tailed(seed, rows * width, dim);
  Uniform random(seed ^ 0x5be0cd19);
  unjudged.assign(rows, false);
  const std::size_t bad_row = rows > 1 ? static_cast<std::size_t>(random.bits() % rows) : rows;  // the rest is judged
  const double most = q_type == Element::f16 ? kMostHalf : std::ldexp(1.0, 120);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<float> one(&q[row * width], width);
    if (wish.numbers[0] == Numbers::outliers)
      for (const int which : {0, 1}) one[static_cast<std::size_t>(outlier_channel(dim, which))] /= kOutlier;
    if (wish.numbers[0] == Numbers::offset) {  // the offset adds nothing to a score
      double mean = 0;
      for (const float v : one) mean += v / double(dim);
      for (float& v : one) v -= static_cast<float>(mean);
    }
    double factor = std::ldexp(1.0, -key_exponent);
    const bool is_long = random.once_in(4);
    if (wish.classes.has(InputClass::uneven_rows) && is_long)
      factor *= std::max(1.0, std::min(wish.row_factor, most / (factor * std::max(largest_of(one), 1e-30))));
    for (float& v : one) v = static_cast<float>(v * factor);
    if (!wish.classes.has(InputClass::bad_rows) || row != bad_row) continue;
    if (wish.is_all_bad)
      std::fill(one.begin(), one.end(), wish.bad);
    else
      one[static_cast<std::size_t>(random.below(dim))] = wish.bad;
    unjudged[row] = true;
  }
  return rounded_to(q_type, q);
}

void draw_sinks(const InputWish& wish, std::uint64_t seed, FeatureInputs& inputs) {
  if (!wish.classes.has(InputClass::sinks)) return;
  Uniform random(seed ^ 0x6a09e667);
  for (float& sink : inputs.sinks)
    if (random.once_in(2)) sink = random.one_of<float>({-1e4f, -1e10f, -4e29f, -1e30f});
}

}  // namespace kvjit
