// Samples of ggml's case matrix in which the values of every axis are about equally frequent. ggml_sample repeatedly
// takes the case whose values are rarest in the sample. ggml_sample_of_programs does the same with programs, which cost
// far more than cases on the CPU back-end.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/verify/ggml/matrix.hpp"

namespace kvjit {

// The value of a case on each axis: "head sizes" -> "192/128", "mask" -> "no" ...
std::map<std::string, std::string> ggml_axes(const GgmlCase& one);
// Multiplications of attention over a case.
double ggml_work(const GgmlCase& one);

// Takes `count` cases one by one, each time the case whose values are rarest in the sample so far.
std::vector<GgmlCase> ggml_sample(const std::vector<GgmlCase>& cases, std::size_t count, std::uint64_t seed);

// Takes at least `count` cases with every value of every axis, by few programs, for machines on which a program takes
// long to compile. A program serves all cases that it can (GgmlCase::served_by). Cases with more than most_work
// multiplications are left out.
std::vector<GgmlCase> ggml_sample_of_programs(const std::vector<GgmlCase>& cases, std::size_t count, double most_work);

// The values of axes that occur in `cases` but not in `sample`.
std::set<std::pair<std::string, std::string>> ggml_left_out(const std::vector<GgmlCase>& cases,
                                                            const std::vector<GgmlCase>& sample);

}  // namespace kvjit
