// Inputs that bite: the numbers of K, V and the queries, and what stands in memory that no query sees. An engine trusts
// a kernel with numbers that nobody chose, so a random case draws them from the format's whole range: rows of any size,
// outliers, constant offsets, ties and zeros. K and the queries compensate each other, so that scores keep an ordinary
// size. Query rows of one call differ by up to 1e4, and one may be infinite or NaN. unseen.hpp has the memory.
//
// InputClass names the parts of such an input. A case draws each of them by its seed, and a set of classes says which
// of them it keeps. So a failure can be repeated with each class alone, which says what caused it.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "generator/formats/format.hpp"
#include "tools/verify/feature_inputs.hpp"
#include "tools/verify/measure.hpp"
#include "tools/verify/uniform.hpp"

namespace kvjit {

enum class InputClass : unsigned {
  hidden,         // tokens that no query sees are NaN, infinite or 0xFF, or their memory is not mapped
  partly_hidden,  // tokens that few query rows see are NaN; rows that see them are not judged
  freed_pages,    // entries of the page table for pages that no query sees lead anywhere
  values,         // V of any size and distribution
  keys,           // K of any size and distribution, and queries that compensate it
  uneven_rows,    // some query rows are up to 1e4 times as long as the rest
  bad_rows,       // a query row is infinite or NaN; it is not judged
  sinks,          // sinks down to -4e29
};
constexpr int kInputClasses = 8;
const char* to_string(InputClass one);

// A set of classes.
class InputClasses {
 public:
  constexpr InputClasses() = default;
  constexpr InputClasses(std::initializer_list<InputClass> all) {
    for (const InputClass one : all) bits_ |= 1u << unsigned(one);
  }
  static constexpr InputClasses all() {
    InputClasses every;
    every.bits_ = (1u << kInputClasses) - 1;
    return every;
  }
  constexpr bool has(InputClass one) const { return bits_ >> unsigned(one) & 1; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr InputClasses operator&(InputClasses other) const {
    InputClasses both;
    both.bits_ = bits_ & other.bits_;
    return both;
  }
  constexpr InputClasses with(InputClass one) const {
    InputClasses more = *this;
    more.bits_ |= 1u << unsigned(one);
    return more;
  }
  constexpr InputClasses without(InputClass one) const {
    InputClasses less = *this;
    less.bits_ &= ~(1u << unsigned(one));
    return less;
  }
  std::vector<InputClass> list() const;
  bool operator==(const InputClasses&) const = default;

 private:
  unsigned bits_ = 0;
};

// The distribution of the rows of K or V.
enum class Numbers {
  ordinary,  // heavy_tailed, about N(0, 1)
  wide,      // a size from the format's whole range; tokens are up to 64 times (K: 1024 times) smaller
  tiny,      // V: a size of 1e-8 and below; K: the smallest that queries can compensate
  outliers,  // two channels and a few numbers are far larger than the rest
  offset,    // 50 deviations from 0
  ties,      // multiples of half a step, so that many numbers are between two codes
  zeros,     // half of the rows are 0
};
const char* to_string(Numbers numbers);

// What the bytes of a row that no query sees are.
enum class Unseen { ones, nan, infinite, unmapped };
const char* to_string(Unseen unseen);

// The draws of a case; they do not depend on its spec.
struct InputWish {
  InputClasses classes;                                         // the parts that the case has
  Numbers numbers[2] = {Numbers::ordinary, Numbers::ordinary};  // of K and V
  double place[2] = {};                                         // of a wide or tiny size in its range, 0 to 1
  double row_factor = 1;                                        // of long query rows
  float bad = 0;                                                // an element of the bad row
  bool is_all_bad = false;                                      // whether all its elements are
  Unseen unseen = Unseen::ones;

  // The wish without the parts that are not in `selection`.
  InputWish only(InputClasses selection) const;
  std::string text() const;
};
InputWish draw_inputs(Uniform& random);
// The wishes by which one spec is verified: each class of `classes` alone, with its furthest numbers.
std::vector<InputWish> verified_inputs(InputClasses classes);
// The classes of these names; `ordinary` names none.
InputClasses classes_of(const std::vector<std::string>& names);

// What bounds the sizes of K and V, besides their formats.
struct InputBounds {
  Element q_type = Element::f16;
  Element out_type = Element::f16;
  Element row_type = Element::f32;  // of the rows that are stored
  bool has_values_in_keys = false;  // K's rows are V's, too
  bool becomes_halves = false;      // the call makes halves of all numbers
};

// The exponent of two by which the rows of a side are multiplied.
int exponent_of(const InputWish& wish, int side, const Format& format, int dim, const InputBounds& bounds);

// Rows of one side: [row][dim]. scales: those of the rows, with the tensor scale for this exponent.
std::vector<float> draw_rows(const InputWish& wish, int side, const Format& format, int dim, std::size_t rows,
                             std::uint64_t seed, int exponent, const InputBounds& bounds);

// Queries for keys that draw_rows gave: [row][dim], rounded to q_type. `unjudged` gets the bad row.
std::vector<float> draw_queries(const InputWish& wish, int dim, std::size_t rows, std::uint64_t seed, int key_exponent,
                                Element q_type, std::vector<bool>& unjudged);

// Replaces some sinks by very negative ones.
void draw_sinks(const InputWish& wish, std::uint64_t seed, FeatureInputs& inputs);

}  // namespace kvjit
