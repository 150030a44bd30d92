// A sample of ggml's case matrix in which every value of every axis has its share.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/verify/ggml_matrix.hpp"

namespace kvjit {

// "head sizes" -> "192/128", "mask" -> "no" ...: where a case stands on each axis.
std::map<std::string, std::string> ggml_axes(const GgmlCase& one);
// Products of numbers that attention over a case takes.
double ggml_work(const GgmlCase& one);

// `count` cases. Each is the one whose values the sample lacks most by then.
std::vector<GgmlCase> ggml_sample(const std::vector<GgmlCase>& cases, std::size_t count, std::uint64_t seed);

// At least `count` cases, and every value of every axis, by few programs, each of which serves all cases that it can
// (GgmlCase::served_by): for machines on which a program takes long to compile. Cases that take more than most_work are
// left out.
std::vector<GgmlCase> ggml_sample_of_programs(const std::vector<GgmlCase>& cases, std::size_t count, double most_work);

// Values of axes that some of `cases` have and none of `sample`.
std::set<std::pair<std::string, std::string>> ggml_left_out(const std::vector<GgmlCase>& cases,
                                                            const std::vector<GgmlCase>& sample);

}  // namespace kvjit
