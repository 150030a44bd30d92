// Codebooks: the values that codes stand for, computed or listed, and the bounds that decide which code a value gets.
// SPDX-License-Identifier: MIT
#pragma once
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

// Lloyd-Max quantizer of N(0,1) with 2^bits levels, ascending, exactly symmetric; converged to 1e-12. bits 1..8.
// The published tables agree to the digits they print (tests/unit/codebook_test.cpp).
std::vector<double> lloyd_max_normal(int bits);

// The same for one coordinate of a uniform unit vector of d dimensions, times sqrt(d), so that its variance is 1 as
// that of N(0,1), to which it tends. The density is proportional to (1 - t^2 / d)^((d - 3) / 2). d >= 3.
std::vector<double> lloyd_max_sphere(int bits, int d);

// Midpoints between neighbours: values.size() - 1 bounds.
std::vector<double> midpoints(const std::vector<double>& values);

// #{B <= v}: the code of v. A value exactly on a bound goes to the upper cell, as every published CUDA kernel does.
int code_of(double v, const std::vector<double>& bounds);

}  // namespace kvjit
