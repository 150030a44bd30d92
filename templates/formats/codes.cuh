// Codes: their meaning, and the code that a value gets. Values are in units of the block's scale. The generator writes
// a Data struct with the constants of a section, and names one of three kinds of codes over it:
//
//   every kind      kCount (codes a block), kBits (of a code), kCodeXor (of the stored bits), Fields (where bits lie)
//   PlainCodes      the codes are numbers themselves. Number: an element type of formats/minifloat.cuh; kAt: their
//                   place in the block, in bytes
//   UniformCodes    value = code - kOffset; codes are within kLeast .. kMost. Rounding: HalfUp or HalfAway
//   TableCodes      a codebook. value(code); kBounds bounds between cells, bound(i), ascending; cell_code(cell).
//                   SignedZeroCodes: one in which -0 has a code of its own
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/fields.cuh"
#include "formats/minifloat.cuh"

namespace kv {

template <class Data>
struct PlainCodes : Data {
  static constexpr bool kIsTable = false, kIsWide = Data::Number::kIsWide;
  KV_DEVICE static float value(u32 code) { return Data::Number::decode(code); }
  KV_DEVICE static u32 code(float v) { return Data::Number::encode(v); }
};

// The whole part of 0 <= v < 2^23. Conversions have an eighth of an addition's rate, so this adds instead.
KV_DEVICE u32 whole_part(float v) { return bits_of(add_rz(v, 8388608.f)) & 0x7fffffu; }

// trunc(v + offset + 0.5), clamped. A NaN gets the least code.
struct HalfUp {
  template <class Data>
  KV_DEVICE static u32 code(float v) {
    static_assert(Data::kLeast >= 0);
    const float shifted = add_rn(v, Data::kOffset + 0.5f);
    return whole_part(smaller(larger(shifted, float(Data::kLeast)), float(Data::kMost)));
  }
};

// v rounded to an integer, halves away from zero, plus offset, clamped. A NaN gets the least code.
struct HalfAway {
  template <class Data>
  KV_DEVICE static u32 code(float v) {
    v = smaller(larger(v, float(Data::kLeast - Data::kOffset)), float(Data::kMost - Data::kOffset));
    // Towards zero, so that what is below a half stays below a whole.
    const int whole = int(whole_part(add_rz(absolute(v), 0.5f)));
    return u32(Data::kOffset + (v < 0.f ? -whole : whole));
  }
};

template <class Data, class Rounding>
struct UniformCodes : Data {
  static constexpr bool kIsTable = false, kIsWide = false;
  KV_DEVICE static float value(u32 code) { return float(int(code) - Data::kOffset); }
  KV_DEVICE static u32 code(float v) { return Rounding::template code<Data>(v); }
};

template <class Data>
struct TableCodes : Data {
  static constexpr bool kIsTable = true, kIsWide = false;
  // The cell of v is the number of bounds that v reaches. A value on a bound is in the upper cell, a NaN in the last.
  KV_DEVICE static u32 code(float v) {
    return cell_of([v](float bound) { return !(v < bound); });
  }
  // The code of v / d, by comparing v with bound * d. If the scale d is 0, this is the code of 0.
  KV_DEVICE static u32 code_by_product(float v, float d) {
    return d == 0.f ? code(0.f) : cell_of([v, d](float bound) { return mul_rn(bound, d) <= v; });
  }

 private:
  template <class Reaches>
  KV_DEVICE static u32 cell_of(const Reaches& reaches) {  // bisects the bounds
    constexpr int kFirstStep = 1 << (Data::kBits - 1);
    int cell = 0;
    KV_UNROLL
    for (int step = kFirstStep; step > 0; step >>= 1)
      if (cell + step <= Data::kBounds && reaches(Data::bound(cell + step - 1))) cell += step;
    return Data::cell_code(cell);
  }
};

// One of the bounds is 0, which -0 reaches as a number. It is below that bound as hardware converts it.
template <class Data>
struct SignedZeroCodes : TableCodes<Data> {
  KV_DEVICE static u32 code(float v) {
    return TableCodes<Data>::code(bits_of(v) == 0x80000000u ? float_of(0x80000001u) : v);
  }
};

}  // namespace kv
