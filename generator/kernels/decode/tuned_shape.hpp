// find_tuning: which measured block shape (specs/tuning) serves a problem, and how well it matches.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/catalogue/tuning.hpp"
#include "generator/resolve/problem.hpp"

namespace kvjit {

// The row of specs/tuning that serves a problem best.
struct Tuning {
  enum class Match {
    exact,         // measured for these formats, rows and layout on this device
    nearest,       // on this device, for heads of nearly as many bytes and as many blocks of 8 query rows
    other_device,  // exact or nearest, but on another device of the arch
    none,          // there is no such row, and the planner takes its own shape
    requested,     // the caller gives the shape, to measure it
  } match = Match::none;
  bool is_same_shape = false;  // the row was measured for this very problem, so its shape must fit
  BlockShape shape;
  Where where;      // of the row
  std::string why;  // for the Decision
};
Tuning find_tuning(const std::vector<TuningRow>& rows, const Problem& problem);
const char* to_string(Tuning::Match match);

}  // namespace kvjit
