// tune measures shapes of decode's blocks on the device of a context (`kvjit bench --tune`). It times the planner's
// shape and others that fit, then variants of the fastest. The best becomes a row of specs/tuning.
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

struct TunedShape {
  BlockShape shape;
  std::vector<double> us;  // least median of a call, in microseconds, for each cache
  int registers = 0;       // registers of a thread
  std::string refused;     // why the shape was not timed; "" if it was
  double ratio = 0;        // geometric mean of the planner's times over this shape's: above 1 is faster
};
struct TuneResult {
  std::vector<TunedShape> shapes;  // the planner's shape comes first
  std::size_t best = 0;            // index of the best shape
};

// Chooses the shapes to measure; the first of `fitting`, the planner's, stays first. Of shapes with equal warps, stages
// and tile it takes only the first, which has the most copies of tables that fit.
std::vector<BlockShape> shapes_to_measure(const std::vector<BlockShape>& fitting);
// Variants of the shape with the opposite of the planner's choices by estimated registers: whether Q stays in
// registers, and how many subtiles are scored at once.
std::vector<BlockShape> variants_of(const BlockShape& shape, const Problem& problem);

// Times a program over each of the caches; returns microseconds.
using TimeProgram = std::function<Result<std::vector<double>>(std::shared_ptr<Program>)>;
// Measures all shapes, then the variants of the best three. A shape replaces the planner's only if it is faster by more
// than the noise in the mean and for no cache slower by more than the noise.
Result<TuneResult> tune(const Problem& problem, const Registry& registry, const std::shared_ptr<Context>& context,
                        const TimeProgram& time);

// Returns the rows with `row` in place of the row for the same device and problem, or at the end if there is none.
std::vector<TuningRow> with_row(std::vector<TuningRow> rows, const TuningRow& row);

// A table with a line for each shape. `caches` are the headings of its times.
std::string tune_table(const std::string& program, const std::vector<std::string>& caches, const TuneResult& result);
nlohmann::ordered_json to_json(const std::string& program, const TuneResult& result);

}  // namespace kvjit
