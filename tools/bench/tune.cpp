// Chooses and times block shapes: see tune.hpp.
// SPDX-License-Identifier: MIT
#include "tools/bench/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "generator/kernels/decode/plan.hpp"
#include "generator/program.hpp"
#include "runtime/base/parallel.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

constexpr std::size_t kMostShapes = 12;  // shapes that are measured, without variants
constexpr std::size_t kMostVaried = 3;   // shapes whose variants are measured too: Q in registers or not, subtiles
constexpr int kRounds = 3;               // times that every shape is timed
constexpr double kAlike = 1.005;         // ratio up to which shapes are equally fast; then the planner's order decides
constexpr double kNoise = 1.01;          // ratio by which the least medians of one kernel differ in one run

// Compiles the decode kernels on all cores, so that loading them later takes no compile. A kernel that fails here fails
// again when it is loaded, and is reported then.
void compile_all(const std::shared_ptr<Context>& context, const std::vector<ProgramSource>& programs) {
  in_parallel(programs.size(), std::max(1u, std::thread::hardware_concurrency()),
              [&](std::size_t i) { (void)context->get(programs[i].kernels.at(Role::decode)); });
}

// Geometric mean of own / other over the caches.
double ratio_of(const std::vector<double>& own, const std::vector<double>& other) {
  double logs = 0;
  for (std::size_t i = 0; i < own.size(); ++i) logs += std::log(own[i] / other[i]);
  return std::exp(logs / double(own.size()));
}

bool is_slower_anywhere(const std::vector<double>& own, const std::vector<double>& other) {
  for (std::size_t i = 0; i < own.size(); ++i)
    if (other[i] > kNoise * own[i]) return true;
  return false;
}

// Times shapes in rounds and takes the least time of each: if the device is slower for a while, it is so for all shapes
// of a round.
class Measuring {
 public:
  Measuring(const Problem& problem, const Registry& registry, std::shared_ptr<Context> context, TimeProgram time)
      : problem_(problem), registry_(registry), context_(std::move(context)), time_(std::move(time)) {}

  // Adds shapes to the result and times them in the same rounds as the planner's shape and the best shape so far. A
  // kernel that spills is not timed, unless it is the planner's.
  Result<void> measure(const std::vector<BlockShape>& shapes) {
    std::vector<std::size_t> timed;
    if (!result.shapes.empty()) timed.push_back(0);
    if (result.best > 0) timed.push_back(result.best);
    std::vector<ProgramSource> sources;
    for (const BlockShape& shape : shapes) {
      KV_TRY(source, make_program(problem_, registry_, shape));
      source.prefill_choice = PrefillChoice::never;  // the shapes are those of decode's blocks
      sources.push_back(std::move(source));
    }
    compile_all(context_, sources);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      KV_TRY(program, Program::create(context_, sources[i]));
      const KernelRecord* const record = program->record(Role::decode);
      result.shapes.push_back({shapes[i], {}, record->registers, "", 0});
      programs_.push_back(program);
      if (record->spill_bytes > 0 && programs_.size() > 1)
        result.shapes.back().refused = fmt::format("spills {} bytes", record->spill_bytes);
      else
        timed.push_back(programs_.size() - 1);
    }
    for (int round = 0; round < kRounds; ++round)
      for (const std::size_t i : timed) KV_CHECK(time_once(i));
    choose();
    return {};
  }
  // The kMostVaried shapes whose variants are measured: the best, then the fastest in the mean.
  std::vector<BlockShape> fastest() const {
    std::vector<TunedShape> timed;
    for (std::size_t i = 0; i < result.shapes.size(); ++i)
      if (i != result.best && result.shapes[i].refused.empty()) timed.push_back(result.shapes[i]);
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
    std::vector<BlockShape> shapes = {result.shapes[result.best].shape};
    for (const TunedShape& each : timed)
      if (shapes.size() < kMostVaried) shapes.push_back(each.shape);
    return shapes;
  }

  TuneResult result;

 private:
  Result<void> time_once(std::size_t i) {
    KV_TRY(us, time_(programs_[i]));
    std::vector<double>& least = result.shapes[i].us;
    if (least.empty()) least = us;
    for (std::size_t c = 0; c < us.size(); ++c) least[c] = std::min(least[c], us[c]);
    return {};
  }
  void choose() {
    result.best = 0;
    const std::vector<double>& own = result.shapes[0].us;
    for (std::size_t i = 0; i < result.shapes.size(); ++i) {
      TunedShape& shape = result.shapes[i];
      if (!shape.refused.empty()) continue;
      shape.ratio = ratio_of(own, shape.us);
      if (shape.ratio > kNoise && shape.ratio > kAlike * result.shapes[result.best].ratio &&
          !is_slower_anywhere(own, shape.us))
        result.best = i;
    }
  }

  const Problem& problem_;
  const Registry& registry_;
  std::shared_ptr<Context> context_;
  TimeProgram time_;
  std::vector<std::shared_ptr<Program>> programs_;  // programs_[i] has result.shapes[i]
};

}  // namespace

std::vector<BlockShape> shapes_to_measure(const std::vector<BlockShape>& fitting) {
  std::vector<BlockShape> chosen;
  for (const BlockShape& shape : fitting) {
    const auto is_alike = [&](const BlockShape& other) {
      return shape.warps == other.warps && shape.stages == other.stages && shape.tile == other.tile;
    };
    if (chosen.size() < kMostShapes && std::none_of(chosen.begin(), chosen.end(), is_alike)) chosen.push_back(shape);
  }
  return chosen;
}

std::vector<BlockShape> variants_of(const BlockShape& shape, const Problem& problem) {
  Tuning requested;
  requested.match = Tuning::Match::requested, requested.shape = shape;
  const auto plan = plan_decode(problem, requested);
  if (!plan) return {};
  std::vector<BlockShape> variants;
  for (const bool holds : {plan->hold_queries, !plan->hold_queries})
    for (const int subtiles : {plan->subtiles, 3 - plan->subtiles}) {
      BlockShape variant = shape;
      if (holds != plan->hold_queries) variant.hold_queries = holds;
      if (subtiles != plan->subtiles) variant.subtiles = subtiles;
      const bool is_possible = subtiles * 16 <= shape.tile && (plan->team == 1 || subtiles == plan->subtiles);
      if (!(variant == shape) && is_possible) variants.push_back(variant);
    }
  return variants;
}

Result<TuneResult> tune(const Problem& problem, const Registry& registry, const std::shared_ptr<Context>& context,
                        const TimeProgram& time) {
  KV_TRY(fitting, decode_shapes(problem));
  if (fitting.empty())
    return fail(Code::unsupported, fmt::format("{}: no shape of blocks fits {}", problem.id, problem.arch.name));
  Measuring measuring(problem, registry, context, time);
  KV_CHECK(measuring.measure(shapes_to_measure(fitting)));
  std::vector<BlockShape> variants;
  for (const BlockShape& shape : measuring.fastest())
    for (const BlockShape& variant : variants_of(shape, problem)) variants.push_back(variant);
  KV_CHECK(measuring.measure(variants));
  return measuring.result;
}

std::vector<TuningRow> with_row(std::vector<TuningRow> rows, const TuningRow& row) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const TuningRow& r) { return r.is_for_same(row); });
  if (found == rows.end())
    rows.push_back(row);
  else
    *found = row;
  return rows;
}

std::string tune_table(const std::string& program, const std::vector<std::string>& caches, const TuneResult& result) {
  std::vector<std::string> headings = {"", "blocks"};
  for (const std::string& cache : caches) headings.push_back(cache);
  headings.insert(headings.end(), {"x untuned", "registers", ""});
  std::vector<std::vector<std::string>> lines;
  for (std::size_t i = 0; i < result.shapes.size(); ++i) {
    const TunedShape& tuned = result.shapes[i];
    std::vector<std::string> line = {i == result.best ? "*" : "", to_string(tuned.shape)};
    for (std::size_t c = 0; c < caches.size(); ++c)
      line.push_back(tuned.refused.empty() ? fmt::format("{:.2f}", tuned.us[c]) : "-");
    line.insert(line.end(), {tuned.refused.empty() ? fmt::format("{:.3f}", tuned.ratio) : "-",
                             std::to_string(tuned.registers), tuned.refused});
    lines.push_back(std::move(line));
  }
  return program + ": us by sequences x KV heads x tokens\n" + table_text(headings, lines);
}

nlohmann::ordered_json to_json(const std::string& program, const TuneResult& result) {
  nlohmann::ordered_json shapes = nlohmann::ordered_json::array();
  for (const TunedShape& tuned : result.shapes) {
    nlohmann::ordered_json shape = {{"warps", tuned.shape.warps},   {"stages", tuned.shape.stages},
                                    {"tile", tuned.shape.tile},     {"copies", tuned.shape.copies},
                                    {"registers", tuned.registers}, {"median_us", tuned.us},
                                    {"ratio", tuned.ratio}};
    if (tuned.shape.subtiles) shape["subtiles"] = *tuned.shape.subtiles;
    if (tuned.shape.hold_queries) shape["hold_queries"] = *tuned.shape.hold_queries;
    if (!tuned.refused.empty()) shape["refused"] = tuned.refused;
    shapes.push_back(std::move(shape));
  }
  return {{"program", program}, {"best", result.best}, {"shapes", shapes}};
}

}  // namespace kvjit
