// find_tuning: which measured block shape (specs/tuning) serves a problem, and how well it matches.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/catalogue/tuning.hpp"
#include "generator/resolve/problem.hpp"

namespace kvjit {

// The row that serves a problem best, and how well.
struct Tuning {
  enum class Match {
    exact,         // measured for these formats, rows and layout on this device
    nearest,       // on this device, for a head of nearly as many bytes and as many columns of rows
    other_device,  // either of these on another device of the arch
    none,          // the planner's own choice
    asked,         // by whoever measures
  } match = Match::none;
  bool is_same_shape = false;  // the row is for this very problem: then it must fit
  BlockShape shape;
  Where where;
  std::string why;
};
Tuning find_tuning(const std::vector<TuningRow>& rows, const Problem& problem);
const char* to_string(Tuning::Match match);

}  // namespace kvjit
