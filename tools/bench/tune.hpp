// tune measures the shapes of decode's blocks on the present device. It times the planner's own shape and others that
// fit, then variants of the fastest, and keeps the best as a row of specs/tuning (`kvjit bench --tune`).
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
  int registers = 0;       // of a thread
  std::string refused;     // why the shape was not timed; "" if it was
  double ratio = 0;        // geometric mean of the planner's own times over these: above 1 is faster
};
struct TuneResult {
  std::vector<TunedShape> shapes;  // the planner's own comes first
  std::size_t best = 0;            // index of the shape to keep
};

// Chooses the shapes that are worth measuring; the first of `fitting`, the planner's own, stays first. Of shapes with
// equal warps, stages and tile only the first is kept, which has the most copies of tables that fit.
std::vector<BlockShape> shapes_to_measure(const std::vector<BlockShape>& fitting);
// Blocks of the same shape in which the planner's guesses by estimated registers are reversed: whether Q stays in
// registers, and how many subtiles are scored at once.
std::vector<BlockShape> variants_of(const BlockShape& shape, const Problem& problem);

// Times a program over each of the caches; returns microseconds.
using TimeProgram = std::function<Result<std::vector<double>>(std::shared_ptr<Program>)>;
// Measures all shapes, then the variants of the best three. A shape replaces the planner's own only if it is faster by
// more than the noise in the mean and for no cache slower by more than the noise.
Result<TuneResult> tune(const Problem& problem, const Registry& registry, const std::shared_ptr<Context>& context,
                        const TimeProgram& time);

// Returns the rows with `row` in place of the one for the same device and problem, or behind them if there is none.
std::vector<TuningRow> with_row(std::vector<TuningRow> rows, const TuningRow& row);

// A table with a line for each shape. `caches` are the headings of its times.
std::string tune_table(const std::string& program, const std::vector<std::string>& caches, const TuneResult& result);
nlohmann::ordered_json to_json(const std::string& program, const TuneResult& result);

}  // namespace kvjit
