// Tune: the shapes of decode blocks measured on the present device, and the best of them as a row of specs/tuning.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generator/catalogue/tuning.hpp"
#include "runtime/jit/context.hpp"
#include "tools/verify/harness.hpp"

namespace kvjit {

// A shape and what it took, a time for each cache; or why it was not timed.
struct TunedShape {
  BlockShape shape;
  std::vector<double> us;
  int registers = 0;
  std::string refused;  // "" if it was timed
  double ratio = 0;     // of the planner's own shape's times to these, geometric mean: above 1 is faster
};
struct TuneResult {
  std::vector<TunedShape> shapes;  // the planner's own first
  std::size_t best = 0;
};

// What is worth measuring, the planner's own choice first: of equal warps, stages and tile the most copies of tables
// that fit.
std::vector<BlockShape> shapes_to_measure(const std::vector<BlockShape>& fitting);
// The same block otherwise inside: what the planner decides by estimated registers, the other way.
std::vector<BlockShape> variants_of(const BlockShape& shape, const Problem& problem);

// Microseconds of a program over each of the caches.
using TimeProgram = std::function<Result<std::vector<double>>(std::shared_ptr<Program>)>;
// All shapes, then the variants of the best three. Another shape than the planner's own must be faster by more than the
// noise on the whole, and slower by more than that for none of the caches.
Result<TuneResult> tune(const Problem& problem, const Registry& registry, const std::shared_ptr<Context>& context,
                        const TimeProgram& time);

// rows with `row` in the place of what it measures anew, or behind them.
std::vector<TuningRow> with_row(std::vector<TuningRow> rows, const TuningRow& row);

// A line a shape; caches: a heading for each of its times.
std::string tune_table(const std::string& program, const std::vector<std::string>& caches, const TuneResult& result);
nlohmann::ordered_json to_json(const std::string& program, const TuneResult& result);

}  // namespace kvjit
