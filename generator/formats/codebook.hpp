// Codebooks: computes the values that codes stand for by the Lloyd-Max rule, and the bounds that decide which code a
// value gets. Listed codebooks are read in format_codebook.cpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

// The Lloyd-Max quantizer of N(0,1) with 2^bits levels, bits 1..8. Levels ascend, are exactly symmetric, and are
// converged to 1e-12. The published tables agree to the digits that they print
// (tests/unit/generator/formats/codebook_test.cpp).
std::vector<double> lloyd_max_normal(int bits);

// The Lloyd-Max quantizer of one coordinate of a uniform unit vector of d >= 3 dimensions, times sqrt(d). With that
// factor its variance is 1, and its distribution tends to N(0,1). The density is proportional to (1 - t^2 / d)^((d - 3)
// / 2).
std::vector<double> lloyd_max_sphere(int bits, int d);

// The midpoints between neighbours: values.size() - 1 bounds.
std::vector<double> midpoints(const std::vector<double>& values);

// The cell of v: how many bounds are at most v. A value on a bound goes to the upper cell, as in every published CUDA
// kernel.
int code_of(double v, const std::vector<double>& bounds);

}  // namespace kvjit
