// The lattice E8 as a codebook of vectors. Eight neighbouring values share two bytes, so a value has two bits:
//
//   byte 0    a root: one of the 240 shortest vectors of E8
//   byte 1    bits 0..3: an axis, twice its number, plus 1 for the negative one; bits 4..7: a radius of the codebook
//
// The values are the integers round((4 root + axis) * radius), half to even, in units of the scale. The roots are, in
// the order of their codes:
//
//   0..111      two entries of +-1: the pair of places (in lexical order) * 4 + 2 [the first is +1] + [the second is]
//   112..239    eight entries of +-1/2, of which an even number is negative: bit i is set where entry i < 7 is +1/2
//   240..255    none: codes that no writer stores. Their entries are 0, and the axis remains
//
// templates/formats/rare/vectors.cuh and rare/vector_rows.cuh are the same for kernels. Source: rk2v4-e8 of
// zhongpei/ninfer-4090.
// SPDX-License-Identifier: MIT
#pragma once
#include <span>

namespace kvjit {

// Values of a code; radii of a codebook; the largest entry of 4 root + axis.
inline constexpr int kE8Dim = 8, kE8Radii = 16, kE8MostEntry = 5;

// Returns four times entry i of a root: 0, +-2 or +-4.
int e8_root_entry(unsigned root, int i);

// Returns the value of place i of a stored code.
double e8_value(unsigned code, int i, std::span<const double> radii);

// The code of eight values: the root with the largest product with x (of equal ones a pair of +-1), the axis on which
// root and x differ most, and the radius by the length of x: the number of bounds, in units of the scale d, that it
// reaches. Radius 0 means zeros, whose code is 0. Works in float32, operation by operation as kernels do, so the
// squares of x must be float32 numbers: magnitudes from 1e-19 to 1e18.
unsigned e8_code(const float* x, float d, std::span<const double> bounds);

}  // namespace kvjit
