// Samples of ggml's case matrix in which every value of every axis has its share. ggml_sample takes, again and again,
// the case whose values the sample lacks most. ggml_sample_of_programs does the same with programs, which cost far more
// than cases on the CPU back-end.
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

// The value of a case on each axis: "head sizes" -> "192/128", "mask" -> "no" ...
std::map<std::string, std::string> ggml_axes(const GgmlCase& one);
// Multiplications that attention over a case takes.
double ggml_work(const GgmlCase& one);

// Takes `count` cases, each of them the one whose values the sample lacks most by then.
std::vector<GgmlCase> ggml_sample(const std::vector<GgmlCase>& cases, std::size_t count, std::uint64_t seed);

// Takes at least `count` cases with every value of every axis, by few programs. A program serves all cases that it can
// (GgmlCase::served_by). For machines on which a program takes long to compile. Leaves out cases with more than
// most_work multiplications.
std::vector<GgmlCase> ggml_sample_of_programs(const std::vector<GgmlCase>& cases, std::size_t count, double most_work);

// The values of axes that some case of `cases` has and no case of `sample`.
std::set<std::pair<std::string, std::string>> ggml_left_out(const std::vector<GgmlCase>& cases,
                                                            const std::vector<GgmlCase>& sample);

}  // namespace kvjit
