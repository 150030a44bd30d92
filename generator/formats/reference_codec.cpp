// The reference codec (reference_codec.hpp), in plain loops over the format's data; nothing here is fast.
//
// encode_row rotates the row and encodes it span by span: encode_norm or encode_amax choose codes and scale, and
// encode_residual the signs of a residual. put_block then packs the fields of each block. decode_row goes the same way
// back.
// SPDX-License-Identifier: MIT
#include "generator/formats/reference_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "generator/formats/codebook.hpp"
#include "generator/formats/e8.hpp"

namespace kvjit {
namespace {

// A block with a norm of at most this counts as zero. The limit is that of the published quantizers.
constexpr double kTinyNorm = 1e-10;

// put_bits writes the bits of code k that the field holds; get_bits reads them.
void put_bits(const Field& field, std::uint8_t* block, int k, unsigned code) {
  for (int bit = 0; bit < field.bits; ++bit) {
    const int at = field.place_of(k, bit);
    block[field.at + at / 8] |= std::uint8_t((code >> (field.low + bit) & 1) << at % 8);
  }
}

unsigned get_bits(const Field& field, const std::uint8_t* block, int k) {
  unsigned code = 0;
  for (int bit = 0; bit < field.bits; ++bit) {
    const int at = field.place_of(k, bit);
    code |= unsigned(block[field.at + at / 8] >> at % 8 & 1) << (field.low + bit);
  }
  return code;
}

// The f16 of a double, rounded once. It goes through float, which is rounded to odd, so that the second rounding sees
// whether bits were dropped.
std::uint16_t f16_from_double(double x) {
  float nearest = float(x);
  if (nearest != x && std::isfinite(nearest) && !(std::bit_cast<std::uint32_t>(nearest) & 1))
    nearest = std::nextafter(nearest, x > nearest ? INFINITY : -INFINITY);
  return f16_from_float(nearest);
}

float get_half(const std::uint8_t* at) { return float_from_f16(std::uint16_t(at[0] | at[1] << 8)); }

// E4M3 of a number that is not negative, rounded up: the least that is not smaller, or 448.
unsigned e4m3_above(float d) {
  const unsigned nearest = e4m3_from_float(d);
  return nearest < 0x7e && float_from_e4m3(std::uint8_t(nearest)) < d ? nearest + 1 : nearest;
}

// E8M0 rounded up, or to the nearest power of two: from 2^(1/2) on up.
unsigned e8m0_rounded(float d, ScaleRounding rounding) {
  const unsigned down = e8m0_from_float(d);
  const float power = float_from_e8m0(std::uint8_t(down)), root = 1.41421354f;  // the float below 2^(1/2)
  return down + (std::isfinite(d) && d > (rounding == ScaleRounding::up ? power : power * root));
}

unsigned scale_bits(const Scale& scale, double d) {
  const bool is_usual = scale.rounding == ScaleRounding::usual;
  switch (scale.type) {
    case ScaleType::f16:
      return f16_from_double(d);
    case ScaleType::bf16:
      return bf16_from_float(float(d));
    case ScaleType::e4m3:
      return is_usual ? e4m3_from_float(float(d)) : e4m3_above(float(d));
    case ScaleType::ue4m3:
      return ue4m3_from_float(float(d));
    case ScaleType::e8m0:
      return is_usual ? e8m0_from_float(float(d)) : e8m0_rounded(float(d), scale.rounding);
    case ScaleType::f32:
      return is_usual ? std::bit_cast<std::uint32_t>(float(d)) : e8m0_rounded(float(d), scale.rounding) << 23;
  }
  return 0;
}

float scale_of_bits(ScaleType type, unsigned bits) {
  switch (type) {
    case ScaleType::f16:
      return float_from_f16(std::uint16_t(bits));
    case ScaleType::bf16:
      return float_from_bf16(std::uint16_t(bits));
    case ScaleType::e4m3:
      return float_from_e4m3(std::uint8_t(bits));
    case ScaleType::ue4m3:
      return float_from_ue4m3(std::uint8_t(bits));
    case ScaleType::e8m0:
      return float_from_e8m0(std::uint8_t(bits));
    case ScaleType::f32:
      return std::bit_cast<float>(bits);
  }
  return 0;
}

unsigned element_bits(Element element, double x) {
  switch (element) {
    case Element::f16:
      return f16_from_double(x);
    case Element::bf16:
      return bf16_from_float(float(x));
    case Element::f32:
      return std::bit_cast<std::uint32_t>(float(x));
    case Element::e4m3:
      return e4m3_from_float(float(x));
    case Element::e5m2:
      return e5m2_from_float(float(x));
    case Element::e4m3b15:
      return e4m3b15_from_float(float(x));
  }
  return 0;
}

double element_value(Element element, unsigned bits) {
  switch (element) {
    case Element::f16:
      return float_from_f16(std::uint16_t(bits));
    case Element::bf16:
      return float_from_bf16(std::uint16_t(bits));
    case Element::f32:
      return std::bit_cast<float>(bits);
    case Element::e4m3:
      return float_from_e4m3(std::uint8_t(bits));
    case Element::e5m2:
      return float_from_e5m2(std::uint8_t(bits));
    case Element::e4m3b15:
      return float_from_e4m3b15(std::uint8_t(bits));
  }
  return 0;
}

// The number that a code stands for, in units of the scale.
double level(const Section& s, unsigned code) {
  if (s.kind == CodeKind::table) return s.values[code];
  if (s.kind == CodeKind::uniform) return double(int(code) - s.offset);
  if (s.is_vector()) return e8_value(code & 0xffff, int(code >> 16), s.values);
  return element_value(s.element, code);
}

unsigned code_of_cell(const Section& s, int cell) {
  return unsigned(s.cell_codes.empty() ? cell : s.cell_codes[std::size_t(cell)]);
}
// The code of v in a codebook. A codebook with a negative zero has a bound at 0, and -0 is below it.
unsigned code_of_value(const Section& s, double v) {
  if (s.has_negative_zero && v == 0 && std::signbit(v)) v = -std::numeric_limits<double>::denorm_min();
  return code_of_cell(s, code_of(v, s.bounds));
}

// The section of a channel of a block, and the number of its code there.
struct Place {
  int section = 0, k = 0;
};
std::vector<Place> places(const Format& f, const std::vector<bool>& is_outlier) {
  std::vector<Place> all(static_cast<std::size_t>(f.block));
  if (f.stored_mask > 0) {
    // A damaged mask may mark too many channels. These share the last code, so that nothing outside the block is read.
    const int last[2] = {f.block - f.stored_mask - 1, f.stored_mask - 1};
    int count[2] = {};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int section = int(is_outlier[i]);
      all[i] = {section, std::min(count[section]++, last[section])};
    }
    return all;
  }
  for (int s = 0; s < int(f.sections.size()); ++s)
    for (int k = 0; s != f.residual_section && k < f.sections[std::size_t(s)].count(f.block); ++k)
      all[std::size_t(f.sections[std::size_t(s)].channel(k))] = {s, k};
  return all;
}

// The outliers of a block that stores its own mask: the `count` channels of largest magnitude, the first of equals.
std::vector<bool> largest(const double* y, int block, int count) {
  std::vector<int> order(static_cast<std::size_t>(block));
  for (int i = 0; i < block; ++i) order[std::size_t(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return std::fabs(y[a]) > std::fabs(y[b]); });
  std::vector<bool> mask(order.size(), false);
  for (int i = 0; i < count; ++i) mask[std::size_t(order[std::size_t(i)])] = true;
  return mask;
}

// One span: its codes, and the numbers that are stored for it.
struct Span {
  const Place* place = nullptr;  // the places of its values
  std::vector<unsigned> codes;
  std::vector<bool> signs;  // of what the codes missed; true: not negative
  double stored = 1;        // the scale
  float minimum = 0, residual_norm = 0;
  bool is_tiny = false;  // the norm is at most kTinyNorm
};

const Section& section_of(const Format& f, const Span& span, std::size_t i) {
  return f.sections[std::size_t(span.place[i].section)];
}

double levels_dot(const Format& f, const Span& span, const double* y) {  // <y, C>
  double sum = 0;
  for (std::size_t i = 0; i < span.codes.size(); ++i) sum += y[i] * level(section_of(f, span, i), span.codes[i]);
  return sum;
}
double levels_square(const Format& f, const Span& span) {  // <C, C>
  double sum = 0;
  for (std::size_t i = 0; i < span.codes.size(); ++i) {
    const double c = level(section_of(f, span, i), span.codes[i]);
    sum += c * c;
  }
  return sum;
}

// Viterbi's algorithm: the states of least squared error through a trellis. Costs are float32; of equal ones the lowest
// state wins. A step joins the costs of each group of states that lead to the same states.
class Trellis {
 public:
  explicit Trellis(const Section& section)
      : section_(section),
        states_(section.values.size()),
        joins_(std::size_t(1) << section.step_bits),
        groups_(states_ / joins_) {}

  std::vector<unsigned> path(const std::vector<float>& x) {
    std::vector<float> cost(states_);  // any state may come before the first value
    if (!section_.is_tail_biting) return walk(x, 0, cost, 0, states_);
    // The first walk starts in the middle. Its states behind the last value and before the first one are about those
    // of the best closed path. The second walk comes from that group of states, and ends in one of them.
    const std::size_t middle = x.size() / 2,
                      first = walk(x, middle, cost, 0, states_)[x.size() - middle - 1] / joins_ * joins_;
    std::fill(cost.begin(), cost.end(), INFINITY);
    std::fill_n(cost.begin() + std::ptrdiff_t(first), joins_, 0.0f);
    return walk(x, 0, cost, first, joins_);
  }

 private:
  // Walks from states of these costs, and from value `begin` on through all values, to the cheapest of the states
  // first .. first + count - 1.
  std::vector<unsigned> walk(const std::vector<float>& x, std::size_t begin, std::vector<float> cost, std::size_t first,
                             std::size_t count) const {
    std::vector<float> least(groups_);
    std::vector<std::uint8_t> choices(x.size() * groups_);  // which of the `joins` states before led to a group
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t group = 0; group < groups_; ++group) {
        const float* const joined = cost.data() + group * joins_;
        const float* const best = std::min_element(joined, joined + joins_);
        least[group] = *best, choices[t * groups_ + group] = std::uint8_t(best - joined);
      }
      for (std::size_t state = 0; state < states_; ++state) {
        const float miss = x[(begin + t) % x.size()] - float(section_.values[state]);
        cost[state] = least[state % groups_] + miss * miss;
      }
    }
    const float* const ends = cost.data() + first;
    std::size_t state = std::size_t(std::min_element(ends, ends + count) - cost.data());
    std::vector<unsigned> path(x.size());
    for (std::size_t t = x.size(); t-- > 0;) {
      path[t] = unsigned(state);
      const std::size_t group = state % groups_;
      state = group * joins_ + choices[t * groups_ + group];
    }
    return path;
  }

  const Section& section_;
  std::size_t states_, joins_, groups_;
};

// Encodes a span by a norm rule, in double. y holds the rotated values.
void encode_norm(const Format& f, const double* y, Span& span) {
  double squares = 0;
  for (std::size_t i = 0; i < span.codes.size(); ++i) squares += y[i] * y[i];
  const double norm = std::sqrt(squares);
  const double inverse = f.scale.epsilon > 0 ? 1 / (norm + f.scale.epsilon) : norm > kTinyNorm ? 1 / norm : 0;
  std::vector<float> unit(span.codes.size());
  for (std::size_t i = 0; i < span.codes.size(); ++i) {
    const Section& s = section_of(f, span, i);
    unit[i] = float(y[i] * inverse);
    if (!s.is_trellis()) span.codes[i] = code_of_value(s, y[i] * inverse);
  }
  if (f.codes().is_trellis()) span.codes = Trellis(f.codes()).path(unit);
  const double code_norm = std::sqrt(levels_square(f, span));
  span.is_tiny = norm <= kTinyNorm;
  span.stored = norm;
  if (f.scale.refine == Refine::matched && code_norm > kTinyNorm) span.stored = norm / code_norm;
  if (f.scale.refine == Refine::least_squares && code_norm > kTinyNorm)
    span.stored = levels_dot(f, span, y) / (code_norm * code_norm);
  if (f.scale.refine == Refine::unbiased) {
    const double dot = levels_dot(f, span, y);
    span.stored = dot > 0 ? squares / dot : 0;
  }
  if (f.scale.factor > 0) span.stored *= f.scale.factor;
}

// The scale of ggml's iq4_nl, by its float32 operations in their order (quantize_row_iq4_nl_impl). of_zero: that of a
// span of zeros.
float weighted_scale(const Section& s, const float* y, const std::vector<unsigned>& codes, float of_zero) {
  float xc = 0, cc = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float w = y[i] * y[i], c = float(level(s, codes[i]));
    xc += w * c * y[i];
    cc += w * c * c;
  }
  return cc == 0 ? of_zero : xc / cc;  // a NaN stays a NaN
}

// The code of x in units of d, by float32 operations. inverse: 1 / d, or what the division has instead.
unsigned amax_code(const Format& f, const Section& s, float x, float d, float inverse) {
  const Scale& rule = f.scale;
  const float v = rule.division == Division::quotient ? (d != 0 ? x / d : 0.0f) : x * inverse;
  if (s.kind == CodeKind::plain) return element_bits(s.element, v);
  if (s.is_grid) {
    const float half = float(s.max_code) / 2, code = std::nearbyint(v * half + half);
    return !(code > 0) ? 0 : unsigned(std::min(code, float(s.max_code)));
  }
  if (s.kind == CodeKind::table) {
    if (rule.division != Division::product) return code_of_value(s, v);
    int cell = 0;
    while (cell < int(s.bounds.size()) && float(s.bounds[std::size_t(cell)]) * d <= x && d != 0) ++cell;
    return d == 0 ? code_of_value(s, 0) : code_of_cell(s, cell);
  }
  const int low_code = s.rounding == Rounding::half_up ? 0 : std::max(0, 2 * s.offset - s.max_code);
  const float code = s.rounding == Rounding::half_up     ? std::trunc(v + (float(s.offset) + 0.5f))
                     : s.rounding == Rounding::half_even ? std::nearbyint(v) + float(s.offset)
                                                         : std::round(v) + float(s.offset);
  return !(code > float(low_code)) ? unsigned(low_code) : unsigned(std::min(code, float(s.max_code)));
}

// Sets the codes of a span whose values are coded eight at a time.
void vector_codes(const Section& s, const std::vector<float>& y, float d, std::vector<unsigned>& codes) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t place = i % kE8Dim;
    codes[i] = place == 0 ? e8_code(y.data() + i, d, s.bounds) : (codes[i - 1] & 0xffff) | unsigned(place) << 16;
  }
}

// Sets the codes of a span by a zero point, and its scale with the zero point in its low bits.
void zero_point_codes(const Format& f, const double* exact, float low, float d, Span& span) {
  const float most = float(f.codes().max_code), inverse = d != 0 ? 1.0f / d : 0.0f;
  const auto code = [&](float v) { return v > 0 ? std::min(std::round(v), most) : 0.0f; };  // a NaN gets 0
  const float zero = code(d != 0 ? -low / d : 0.0f);
  for (std::size_t i = 0; i < span.codes.size(); ++i) span.codes[i] = unsigned(code(float(exact[i]) * inverse + zero));
  span.stored = std::bit_cast<float>((std::bit_cast<std::uint32_t>(d) & ~f.zero_mask()) | std::uint32_t(zero));
}

// Extent holds the extreme values of a span. Every scale rule but that of norms is computed from them.
struct Extent {
  float amax = 0, signed_max = 0, low = 0, high = 0;
};

// Sets the codes of a span and its scale, as found with a divisor. If the format searches divisors, it returns the
// squared error of what is decoded.
float amax_codes(const Format& f, const double* exact, const Extent& extent, float divisor, float tensor_scale,
                 Span& span) {
  const Scale& rule = f.scale;
  float d = 1;
  if (rule.rule == ScaleRule::tensor) d = tensor_scale;
  if (rule.rule == ScaleRule::amax)
    d = rule.factor > 0      ? extent.amax * float(rule.factor)
        : rule.is_searched() ? 1.0f / (rule.over_tensor ? tensor_scale : 1.0f) * (extent.amax * (1.0f / divisor))
                             : extent.amax / divisor;
  if (rule.rule == ScaleRule::signed_max) d = extent.signed_max / divisor;
  if (rule.rule == ScaleRule::min_step) d = (extent.high - extent.low) / divisor, span.minimum = extent.low;
  if (f.has_zero_point()) d = (extent.high - extent.low) / divisor;
  d = std::max(d, rule.least > 0 ? float(rule.least) : d);
  if (f.has_zero_point()) return zero_point_codes(f, exact, extent.low, d, span), 0;
  if (rule.by_stored) d = scale_of_bits(rule.type, scale_bits(rule, d));
  span.stored = d;
  if (rule.over_tensor) d *= tensor_scale;
  const float inverse = rule.division == Division::ratio ? (extent.amax > 1e-12f ? divisor / extent.amax : 1.0f)
                        : d != 0                         ? 1.0f / d
                                                         : 0.0f;  // its products with values keep their signs
  if (f.codes().is_vector()) return vector_codes(f.codes(), {exact, exact + span.codes.size()}, d, span.codes), 0;
  float error = 0;
  for (std::size_t i = 0; i < span.codes.size(); ++i) {
    const Section& s = section_of(f, span, i);
    const float y = float(exact[i]);
    const bool is_bare = s.kind == CodeKind::plain && rule.rule == ScaleRule::none;  // rounded once, from double
    span.codes[i] = is_bare ? element_bits(s.element, exact[i]) : amax_code(f, s, y - span.minimum, d, inverse);
    if (rule.search.empty()) continue;
    const float miss = float(level(s, span.codes[i])) * d - y;
    error += miss * miss;
  }
  return error;
}

// Encodes a span by any other rule. It follows the source's float32 operations in their order (for one, ggml-quants.c:
// quantize_row_*_ref), because there the last bit decides a byte.
void encode_amax(const Format& f, const double* exact, float tensor_scale, Span& span) {
  const Scale& rule = f.scale;
  const std::vector<float> y(exact, exact + span.codes.size());
  Extent extent{0, 0, y[0], y[0]};
  for (const float v : y) {
    if (extent.amax < std::fabs(v)) extent.amax = std::fabs(v), extent.signed_max = v;
    extent.low = std::min(extent.low, v), extent.high = std::max(extent.high, v);
  }
  if (rule.zero_norm > 0) {
    double squares = 0;
    for (const float v : y) squares += double(v) * v;
    if (std::sqrt(squares) <= rule.zero_norm) extent.amax = 0;
  }
  float least_error = amax_codes(f, exact, extent, float(rule.divisor), tensor_scale, span);
  for (const double divisor : rule.search) {
    Span other = span;
    const float error = amax_codes(f, exact, extent, float(divisor), tensor_scale, other);
    if (error < least_error) span = other, least_error = error;
  }
  if (rule.refine == Refine::none) return;
  const double code_norm = std::sqrt(levels_square(f, span));
  double squares = 0;
  for (const float v : y) squares += double(v) * v;
  if (rule.refine == Refine::weighted || rule.refine == Refine::weighted_or_found)
    span.stored =
        weighted_scale(f.codes(), y.data(), span.codes, rule.refine == Refine::weighted ? 0 : float(span.stored));
  else if (code_norm > kTinyNorm)
    span.stored = rule.refine == Refine::matched ? std::sqrt(squares) / code_norm
                                                 : levels_dot(f, span, exact) / (code_norm * code_norm);
}

// Sets the signs of what the codes missed of the unit vector, and their norm. x and y are the span before and after the
// rotation.
void encode_residual(const Format& f, const double* x, const double* y, Span& span) {
  const Residual& rule = f.residual;
  const int n = int(span.codes.size());
  double norm = 0;
  for (int i = 0; i < n; ++i) norm += y[i] * y[i];
  norm = std::sqrt(norm);
  const double inverse = norm > kTinyNorm ? 1 / norm : 0;
  std::vector<double> r(span.codes.size());
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = -level(section_of(f, span, i), span.codes[i]);
  if (rule.is_original) rotate_inverse(f.rotation, r.data(), n);
  double squares = 0, sum = 0;
  for (std::size_t i = 0; i < r.size(); ++i) {
    r[i] += (rule.is_original ? x[i] : y[i]) * inverse;
    squares += r[i] * r[i], sum += std::fabs(r[i]);
  }
  span.residual_norm = float((rule.is_mean ? sum / n : std::sqrt(squares)) * rule.unit * (rule.is_relative ? 1 : norm));
  rotate_forward(rule.projection, r.data(), n);
  for (const double v : r) span.signs.push_back(v >= 0);
}

// An encoded row. place, codes and signs have an item for each value; put_block packs them block by block.
struct Row {
  std::vector<Place> place;
  std::vector<unsigned> codes;
  std::vector<bool> signs;  // empty if the format has none
  std::vector<Span> spans;
};

// The bits of a code as fields hold them: of the code of a vector the share of its value.
unsigned stored_code(const Section& s, unsigned code) {
  if (s.is_vector()) return (code & 0xffff) >> s.bits * int(code >> 16) & ((1u << s.bits) - 1);
  return s.twos_complement ? code ^ 1u << (s.bits - 1) : code;
}

void put_block(const Format& f, const Row& row, std::size_t first, std::uint8_t* block) {
  const auto span_of = [&](int i) -> const Span& {
    return row.spans[(first + std::size_t(i)) / std::size_t(f.scale.span)];
  };
  if (f.zero_bytes && span_of(0).is_tiny) return;
  for (const Field& field : f.fields) {
    std::uint8_t* const at = block + field.at;
    switch (field.kind) {
      case FieldKind::codes:
        for (int i = 0; i < f.block; ++i) {
          const Place place = row.place[first + std::size_t(i)];
          const Section& s = f.sections[std::size_t(field.section)];
          if (field.section == f.residual_section)
            put_bits(field, block, i, row.signs[first + std::size_t(i)]);
          else if (place.section == field.section)
            put_bits(field, block, place.k, stored_code(s, row.codes[first + std::size_t(i)]));
        }
        break;
      case FieldKind::residual_signs:
        for (int i = 0; i < f.block; ++i) put_bits(field, block, i, row.signs[first + std::size_t(i)]);
        break;
      case FieldKind::mask:
        for (int i = 0; i < f.block; ++i)
          at[i / 8] |= std::uint8_t(int(row.place[first + std::size_t(i)].section == 1) << i % 8);
        break;
      case FieldKind::scale:
      case FieldKind::minimum:
      case FieldKind::residual_norm:
        for (int g = 0; g < f.block / f.scale.group; ++g) {
          const Span& span = span_of(g * f.scale.group);
          const int bytes = field.kind == FieldKind::scale ? bytes_of(f.scale.type) : 2;
          const unsigned bits = field.kind == FieldKind::scale     ? scale_bits(f.scale, span.stored)
                                : field.kind == FieldKind::minimum ? f16_from_float(span.minimum)
                                                                   : f16_from_float(span.residual_norm);
          const int place = field.scale_place(g, f.block / f.scale.group) * bytes;
          for (int b = 0; b < bytes; ++b) at[place + b] = std::uint8_t(bits >> 8 * b);
        }
        break;
      default:
        break;
    }
  }
}

// Calls move(field of the segment's block, place in the row of the whole, place in the segment's own row) for each
// field of each block of a segment.
template <class Move>
void for_fields(const Format& f, std::size_t index, const Move& move) {
  const Segment& segment = f.segments[index];
  const Format& own = segment.format;
  for (int block = 0; block < segment.count / own.block; ++block)
    for (const Field& field : own.fields) {
      const Field* const plane =
          f.field(field.is_code() ? FieldKind::segment_codes : FieldKind::segment_scales, int(index));
      const int stride = field.is_code() ? own.code_bytes : own.scale_bytes;
      move(field, plane->at + block * stride + field.plane_at, block * own.block_bytes + field.at);
    }
}

std::vector<std::uint8_t> encode_values(const Format& f, std::vector<double> x, float tensor_scale);

std::vector<std::uint8_t> encode_segments(const Format& f, std::vector<double> values, float tensor_scale) {
  std::vector<std::uint8_t> bytes(std::size_t(f.block_bytes));
  rotate_forward(f.rotation, values.data(), int(values.size()));
  for (std::size_t i = 0; i < f.segments.size(); ++i) {
    const Segment& segment = f.segments[i];
    const auto first = values.begin() + segment.first;
    const auto own = encode_values(segment.format, {first, first + segment.count}, tensor_scale);
    for_fields(f, i, [&](const Field& field, int at, int from) {
      std::copy_n(own.begin() + from, field.bytes, bytes.begin() + at);
    });
  }
  return bytes;
}

std::vector<double> decode_segments(const Format& f, std::span<const std::uint8_t> bytes, bool rotated,
                                    float tensor_scale) {
  std::vector<double> values;
  for (std::size_t i = 0; i < f.segments.size(); ++i) {
    const Segment& segment = f.segments[i];
    std::vector<std::uint8_t> own(std::size_t(segment.format.row_bytes(segment.count)));
    for_fields(f, i, [&](const Field& field, int from, int at) {
      std::copy_n(bytes.begin() + from, field.bytes, own.begin() + at);
    });
    const std::vector<double> some = decode_row(segment.format, own, segment.count, false, tensor_scale);
    values.insert(values.end(), some.begin(), some.end());
  }
  if (!rotated) rotate_inverse(f.rotation, values.data(), int(values.size()));
  return values;
}

std::vector<std::uint8_t> encode_values(const Format& f, std::vector<double> x, float tensor_scale) {
  if (f.has_segments()) return encode_segments(f, std::move(x), tensor_scale);
  const auto n = std::size_t(f.stored_dim(int(x.size()))), block = std::size_t(f.block),
             length = std::size_t(f.scale.span);
  for (std::size_t i = 0; i < x.size() && !f.channels.empty(); ++i) x[i] *= f.channels[i % f.channels.size()];
  x.resize(n, 0);
  std::vector<double> y = x;
  rotate_forward(f.rotation, y.data(), int(n));
  for (double& v : y) v /= f.gain();
  if (f.rounds_to_bf16)
    for (double& v : y) v = float_from_bf16(bf16_from_float(float(v)));

  Row row;
  for (std::size_t first = 0; first < n; first += block) {
    const auto mask = f.stored_mask > 0 ? largest(y.data() + first, f.block, f.stored_mask) : std::vector<bool>();
    const std::vector<Place> block_places = places(f, mask);
    row.place.insert(row.place.end(), block_places.begin(), block_places.end());
  }
  for (std::size_t first = 0; first < n; first += length) {
    Span span{row.place.data() + first, std::vector<unsigned>(length), {}};
    if (f.scale.rule == ScaleRule::norm)
      encode_norm(f, y.data() + first, span);
    else
      encode_amax(f, y.data() + first, tensor_scale, span);
    if (f.has_residual()) encode_residual(f, x.data() + first, y.data() + first, span);
    if (f.field(FieldKind::residual_signs))
      for (std::size_t i = 0; i < length; ++i)
        span.signs.push_back(
            float(y[first + i]) - float(span.stored) * float(level(section_of(f, span, i), span.codes[i])) >= 0);
    row.codes.insert(row.codes.end(), span.codes.begin(), span.codes.end());
    row.signs.insert(row.signs.end(), span.signs.begin(), span.signs.end());
    row.spans.push_back(std::move(span));
  }
  std::vector<std::uint8_t> bytes(std::size_t(f.row_bytes((long long)n)));
  for (std::size_t b = 0; b < n / block; ++b)
    put_block(f, row, b * block, bytes.data() + b * std::size_t(f.block_bytes));
  return bytes;
}

unsigned code_at(const Format& f, const std::uint8_t* block, int section, int k) {
  const Section& s = f.sections[std::size_t(section)];
  const auto stored = [&](int i) {
    unsigned code = 0;
    for (const Field& field : f.fields)
      if (field.kind == FieldKind::codes && field.section == section) code |= get_bits(field, block, i);
    return code;
  };
  if (!s.is_vector()) return s.twos_complement ? stored(k) ^ 1u << (s.bits - 1) : stored(k);
  const int place = k % kE8Dim;
  unsigned code = unsigned(place) << 16;
  for (int i = 0; i < kE8Dim; ++i) code |= stored(k - place + i) << s.bits * i;
  return code;
}

// Appends the values of one block in the rotated domain, and to `extra` what a residual adds, before its projection is
// undone.
void get_block(const Format& f, const std::uint8_t* block, float tensor_scale, std::vector<double>& values,
               std::vector<double>& extra) {
  std::vector<bool> mask;
  if (const Field* field = f.field(FieldKind::mask))
    for (int i = 0; i < f.block; ++i) mask.push_back(block[field->at + i / 8] >> i % 8 & 1);
  const std::vector<Place> place = places(f, mask);
  std::vector<double> levels;
  double squares = 0;
  for (int i = 0; i < f.block; ++i) {
    const Place p = place[std::size_t(i)];
    levels.push_back(level(f.sections[std::size_t(p.section)], code_at(f, block, p.section, p.k)));
    squares += levels.back() * levels.back();
  }
  for (int i = 0; i < f.block; ++i) {
    const int g = i / f.scale.group;
    double d = 1, minimum = 0;
    if (const Field* field = f.field(FieldKind::scale)) {
      unsigned bits = 0;
      for (int b = 0; b < bytes_of(f.scale.type); ++b)
        bits |= unsigned(block[field->at + field->scale_place(g, f.block / f.scale.group) * bytes_of(f.scale.type) + b])
                << 8 * b;
      d = scale_of_bits(f.scale.type, f.has_zero_point() ? bits & ~f.zero_mask() : bits) * f.gain();
      if (f.has_zero_point()) minimum = -double(bits & f.zero_mask()) * d;
    }
    if (f.has_tensor_scale()) d *= tensor_scale;
    if (f.scale.renormalise && squares > 0) d /= std::sqrt(squares);
    if (const Field* field = f.field(FieldKind::minimum)) minimum = get_half(block + field->at + 2 * g);
    values.push_back(levels[std::size_t(i)] * d + minimum);
    if (!f.has_residual()) continue;
    const double norm = get_half(block + f.field(FieldKind::residual_norm)->at + 2 * g) * f.residual.factor;
    extra.push_back(norm * (f.residual.is_relative ? d : 1) * (code_at(f, block, f.residual_section, i) ? 1 : -1));
  }
}

}  // namespace

std::vector<std::uint8_t> encode_row(const Format& f, std::span<const float> values, float tensor_scale) {
  return encode_values(f, {values.begin(), values.end()}, tensor_scale);
}

std::vector<double> decode_row(const Format& f, std::span<const std::uint8_t> bytes, int head_dim, bool rotated,
                               float tensor_scale) {
  if (f.has_segments()) return decode_segments(f, bytes, rotated, tensor_scale);
  const int n = f.stored_dim(head_dim);
  std::vector<double> values, extra;
  for (int first = 0; first < n; first += f.block)
    get_block(f, bytes.data() + f.row_bytes(first), tensor_scale, values, extra);
  const auto add = [&] {
    for (std::size_t i = 0; i < extra.size(); ++i) values[i] += extra[i];
    extra.clear();
  };
  rotate_inverse(f.residual.projection, extra.data(), int(extra.size()));
  if (f.residual.is_original && rotated) rotate_forward(f.rotation, extra.data(), int(extra.size()));
  if (!f.residual.is_original || rotated) add();
  if (rotated) return values;
  rotate_inverse(f.rotation, values.data(), n);
  add();
  values.resize(std::size_t(head_dim));
  for (std::size_t i = 0; i < values.size() && !f.channels.empty(); ++i) values[i] /= f.channels[i % f.channels.size()];
  return values;
}

}  // namespace kvjit
