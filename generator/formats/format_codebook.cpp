// Reads [codebook] of a format file: the values, their unit, their order, and the bounds between them.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/base/minifloat.hpp"
#include "generator/formats/codebook.hpp"
#include "generator/formats/e8.hpp"
#include "generator/formats/format_reader.hpp"

namespace kvjit {

namespace {

// Divides the values of a table and rounds them to float32, the type in which kernels hold tables.
void scale_down(double divisor, std::vector<double>& values) {
  for (double& v : values) v = float(v / divisor);
}

std::vector<double> mirrored(const std::vector<double>& positive, bool with_zero) {
  std::vector<double> all(positive.rbegin(), positive.rend());
  for (double& v : all) v = -v;
  if (with_zero) all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

}  // namespace

void FormatReader::codebook(schema::Table& book, Section& section) {
  if (section.is_trellis()) return trellis_codebook(book, section);
  if (section.is_vector()) return vector_codebook(book, section);
  enum class Rule { listed, lloyd_max, lloyd_max_sphere, e2m1, grid } rule = Rule::listed;
  book.read("rule", rule,
            schema::Names<Rule>{{Rule::lloyd_max, "lloyd_max"},
                                {Rule::lloyd_max_sphere, "lloyd_max_sphere"},
                                {Rule::e2m1, "e2m1"},
                                {Rule::grid, "grid"}});
  if (rule == Rule::e2m1) {
    Ties ties = Ties::even;
    book.read("ties", ties, schema::Names<Ties>{{Ties::even, "even"}, {Ties::zero, "zero"}, {Ties::lower, "lower"}});
    book.read("negative_zero", section.has_negative_zero);
    if (section.bits != 4) book.complain(book.where("rule"), "E2M1 has codes of 4 bits");
    MinifloatBook book = e2m1_book(ties, section.has_negative_zero);
    section.values = book.values, section.bounds = book.bounds, section.cell_codes = book.cell_codes;
    return;
  }
  if (rule == Rule::grid) {
    if (f_.scale.rule != ScaleRule::amax)
      book.complain(book.where("rule"),
                    "a grid from -1 to 1 is in units of the largest magnitude: [scale] rule = \"amax\"");
    if (f_.scale.division == Division::product)
      book.complain(book.where("rule"), "a grid has no bounds that a product could be taken with");
    section.is_grid = true;
    for (int code = 0; code <= section.max_code; ++code)
      section.values.push_back(float((2.0 * code - section.max_code) / section.max_code));
    return;
  }
  Unit unit = Unit::normal;
  if (rule == Rule::listed) {
    for (const char* key : {"values", "unit"}) book.require(key);
    book.read("unit", unit,
              schema::Names<Unit>{{Unit::listed, "inv_sqrt"},
                                  {Unit::normal, "normal"},
                                  {Unit::amax, "amax"},
                                  {Unit::listed, "scale"},
                                  {Unit::steps, "steps"}});
  } else {
    section.values =
        rule == Rule::lloyd_max ? lloyd_max_normal(section.bits) : lloyd_max_sphere(section.bits, f_.scale.span);
    // With a norm as the scale, numbers of N(0,1) become coordinates of a unit vector. With amax, the divisor says
    // which number of the table the largest value meets.
    if (f_.scale.rule != ScaleRule::norm) unit = f_.scale.divisor == 1 ? Unit::amax : Unit::listed;
  }
  listed_codebook(book, section, unit);
  order_codes(book, section);
}

// The entries of a trellis: one for each state, in any order.
void FormatReader::trellis_codebook(schema::Table& book, Section& section) {
  for (const char* key : {"values", "unit"}) book.require(key);
  book.read("values", section.values);
  Unit unit = Unit::listed;
  book.read("unit", unit,
            schema::Names<Unit>{{Unit::listed, "inv_sqrt"}, {Unit::normal, "normal"}, {Unit::steps, "steps"}});
  double steps_per_sigma = 1;
  if (unit == Unit::steps) book.require("steps_per_sigma");
  book.read("steps_per_sigma", steps_per_sigma);
  if (book.find("steps_per_sigma") && (unit != Unit::steps || steps_per_sigma <= 0))
    book.complain(book.where("steps_per_sigma"), "'steps_per_sigma' is above 0 and belongs to unit = \"steps\"");
  const std::size_t count = std::size_t(1) << section.bits;
  if (section.values.size() != count)
    book.complain(book.where("values"), fmt::format("the codebook has {} values, but a trellis of {} state bits has {}",
                                                    section.values.size(), section.bits, count));
  scale_down(unit == Unit::listed ? 1 : std::sqrt(double(f_.scale.span)) * steps_per_sigma, section.values);
}

// The radii of vectors, and the lengths from which on they are taken. Kernels multiply by radii in fp16.
void FormatReader::vector_codebook(schema::Table& book, Section& section) {
  constexpr float kMostRadius = 16;  // fp16 has all integers of up to 5 * 16 beside 1536, where kernels round
  enum class Lattice { e8 } lattice = Lattice::e8;
  Unit unit = Unit::listed;
  for (const char* key : {"lattice", "unit", "values", "bounds"}) book.require(key);
  book.read("unit", unit, schema::Names<Unit>{{Unit::listed, "scale"}});
  book.read("lattice", lattice, schema::Names<Lattice>{{Lattice::e8, "e8"}});
  book.read("values", section.values);
  book.read("bounds", section.bounds);
  scale_down(1, section.values);
  scale_down(1, section.bounds);
  if (section.values.size() != kE8Radii || section.bounds.size() != kE8Radii - 1)
    return book.complain(book.where("values"),
                         fmt::format("a codebook of vectors has {} radii and {} bounds, not {} and {}", kE8Radii,
                                     kE8Radii - 1, section.values.size(), section.bounds.size()));
  if (section.values[0] != 0 || !std::is_sorted(section.values.begin(), section.values.end()) ||
      section.values.back() > kMostRadius)
    book.complain(book.where("values"), fmt::format("radii ascend from 0 to {} at most", kMostRadius));
  if (section.bounds[0] <= 0 || !std::is_sorted(section.bounds.begin(), section.bounds.end()) ||
      !std::isfinite(section.bounds.back()))
    book.complain(book.where("bounds"), "bounds ascend, are above 0, and are numbers of float32");
  for (const double radius : section.values)
    for (int whole = 1; whole <= kE8MostEntry; ++whole)
      if (const float half = float_from_f16(f16_from_float(float(radius)));
          std::nearbyint(float(whole) * half) != std::nearbyint(float(whole) * float(radius)))
        book.complain(book.where("values"),
                      fmt::format("{} times the radius {} is another integer in float16", whole, float(radius)));
}

void FormatReader::listed_codebook(schema::Table& book, Section& section, Unit unit) {
  bool is_symmetric = false;
  const std::size_t count = std::size_t(1) << section.bits;
  if (const schema::Node* values = book.find("values")) {
    book.read("symmetric", is_symmetric);
    book.read("values", section.values);
    if (is_symmetric) section.values = mirrored(section.values, false);
    if (const std::size_t listed = values->items.size() * (is_symmetric ? 2 : 1); listed != count)
      book.complain(values->where,
                    fmt::format("the codebook has {} values, but {}-bit codes need {}", listed, section.bits, count));
    if (std::adjacent_find(section.values.begin(), section.values.end(), std::greater_equal<>()) !=
        section.values.end())
      book.complain(values->where, "the values of a codebook must ascend");
  }
  if (unit == Unit::steps) return steps_codebook(book, section);
  double divisor = 1;
  if (unit == Unit::normal) divisor = std::sqrt(double(f_.scale.span));
  if (unit == Unit::amax && !section.values.empty()) divisor = std::max(-section.values.front(), section.values.back());
  scale_down(divisor, section.values);
  section.bounds = midpoints(section.values);
  const schema::Node* bounds = book.find("bounds");
  book.takes("bounds", schema::Node::Kind::text, {"midpoints"});
  book.takes_items("bounds", schema::Node::Kind::real);
  if (bounds && bounds->kind == schema::Node::Kind::list) {
    book.read("bounds", section.bounds);
    if (is_symmetric) section.bounds = mirrored(section.bounds, true);
    if (section.bounds.size() != count - 1 || !std::is_sorted(section.bounds.begin(), section.bounds.end()))
      book.complain(bounds->where, fmt::format("bounds must be {} ascending numbers, or \"midpoints\"; these are {}",
                                               is_symmetric ? count / 2 - 1 : count - 1, bounds->items.size()));
    if (unit == Unit::amax) book.complain(bounds->where, "bounds of a codebook in units of amax are midpoints");
    scale_down(divisor, section.bounds);
  } else if (bounds && bounds->text != "midpoints") {
    book.complain(bounds->where, "bounds must be a list of numbers or \"midpoints\"");
  }
  scale_down(1, section.bounds);
  if (!section.bounds.empty() && !(std::isfinite(section.bounds.front()) && std::isfinite(section.bounds.back())))
    book.complain(book.where("bounds"), "bounds are numbers of float32");
  order_ties(book, section);
}

void FormatReader::order_ties(schema::Table& book, Section& section) {
  bool is_tie_lower = false;
  book.read("ties", is_tie_lower, schema::Names<bool>{{true, "lower"}});
  if (is_tie_lower && f_.scale.division == Division::product)
    book.complain(book.where("ties"), "ties of products are in the upper cell");
  if (is_tie_lower)  // the least float that belongs to the upper cell
    for (double& bound : section.bounds) bound = std::nextafter(float(bound), INFINITY);
}

// Reads the order of the codes. In sign_magnitude the top bit of a code is the sign and the rest numbers the
// magnitudes: of sixteen codes, code 8 + i is the opposite of code i.
void FormatReader::order_codes(schema::Table& book, Section& section) {
  enum class Order { ascending, sign_magnitude } order = Order::ascending;
  book.read("order", order,
            schema::Names<Order>{{Order::ascending, "ascending"}, {Order::sign_magnitude, "sign_magnitude"}});
  if (order == Order::ascending) return;
  const std::vector<double> ascending = section.values;
  const std::size_t count = ascending.size();
  for (std::size_t i = 0; i < count; ++i)
    if (ascending[i] != -ascending[count - 1 - i])
      return book.complain(book.where("order"),
                           "codes of sign and magnitude need a codebook that is symmetric about 0");
  section.cell_codes = sign_magnitude_codes(count);
  for (std::size_t cell = 0; cell < count; ++cell)
    section.values[std::size_t(section.cell_codes[cell])] = ascending[cell];
}

// A codebook in steps. Its entries are listed in steps and stand in the table as steps times 2^-k, about 1 for a
// standard deviation, so that 8-bit integers times a power of two hold them exactly. Bounds are where the steps fall
// among the coordinates of a unit vector. The scale is found from the chosen entries, so it restores the size.
void FormatReader::steps_codebook(schema::Table& book, Section& section) {
  double steps_per_sigma = 0;
  book.require("steps_per_sigma");
  book.read("steps_per_sigma", steps_per_sigma);
  if (book.find("steps_per_sigma") && steps_per_sigma <= 0)
    book.complain(book.where("steps_per_sigma"), "steps_per_sigma must be above 0");
  if (f_.scale.rule != ScaleRule::norm || f_.scale.refine == Refine::none)
    book.complain(book.where("unit"),
                  "steps need a scale that is found from the chosen entries: [scale] rule = "
                  "\"corrected_norm\", \"least_squares\" or \"unbiased\"");
  if (steps_per_sigma <= 0) return;
  const auto is_half_step = [](double v) { return std::fabs(v) <= 127.5 && v * 2 == std::floor(v * 2); };
  const auto is_whole = [](double v) { return v == std::floor(v); };
  const auto whole = std::count_if(section.values.begin(), section.values.end(), is_whole);
  if (!std::all_of(section.values.begin(), section.values.end(), is_half_step) ||
      (whole != 0 && whole != std::ptrdiff_t(section.values.size())))
    book.complain(book.where("values"), "steps are all whole or all halves, up to 127.5");
  section.bounds = midpoints(section.values);
  scale_down(steps_per_sigma * std::sqrt(double(f_.scale.span)), section.bounds);
  order_ties(book, section);
  scale_down(std::exp2(std::ceil(std::log2(steps_per_sigma))), section.values);
}

}  // namespace kvjit
