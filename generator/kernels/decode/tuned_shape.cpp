// find_tuning ranks the rows of a tuning file by device first, then by distance in formats, pages and rows.
// SPDX-License-Identifier: MIT
#include "generator/kernels/decode/tuned_shape.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <tuple>

namespace kvjit {
namespace {

// Within an eighth.
bool is_near(long long bytes, long long of_row) { return std::abs(bytes - of_row) * 8 <= of_row; }
// Blocks of 8 columns for so many query rows.
int columns(int rows) { return (rows + 7) / 8; }

}  // namespace

const char* to_string(Tuning::Match match) {
  constexpr const char* kNames[] = {"exact", "nearest", "other device", "default", "requested"};
  return kNames[int(match)];
}

Tuning find_tuning(const std::vector<TuningRow>& rows, const Problem& problem) {
  using Match = Tuning::Match;
  const int query_rows = problem.query_rows();
  const long long k_bytes = problem.k.head_bytes(problem.head_dim), v_bytes = problem.v.head_bytes(problem.v_dim());
  struct Rank {
    Match match = Match::none;
    double distance = 0;
    bool operator<(const Rank& other) const {
      return std::tie(match, distance) < std::tie(other.match, other.distance);
    }
  };
  Rank best;
  const TuningRow* best_row = nullptr;
  for (const TuningRow& row : rows) {
    if (problem.token_heads > 0) break;  // rows are for kernels that take one head
    // A shape that was measured for planar or rows also serves pages of that layout.
    if (row.layout != (problem.is_planar() ? Layout::planar : Layout::rows) || row.head_dim != problem.head_dim ||
        row.head_dim != problem.v_dim() || columns(row.rows) != columns(query_rows) || !is_near(k_bytes, row.k_bytes) ||
        !is_near(v_bytes, row.v_bytes))
      continue;
    const double distance = 8 * (row.k_name != problem.k.name) + 8 * (row.v_name != problem.v.name) +
                            (problem.page_tokens > 0) + std::abs(std::log2(double(query_rows) / row.rows));
    const bool is_own = problem.device.empty() || row.device == problem.device;
    const Rank rank{!is_own ? Match::other_device : distance == 0 ? Match::exact : Match::nearest, distance};
    if (!best_row || rank < best) best = rank, best_row = &row;
  }
  Tuning tuning;
  tuning.match = best.match;
  if (!best_row) {
    tuning.why = fmt::format("nothing {}was measured for {}", rows.empty() ? "" : "like it ", problem.arch.name);
    return tuning;
  }
  tuning.is_same_shape = best.distance == 0;
  tuning.shape = best_row->shape;
  tuning.where = best_row->where;
  tuning.why = fmt::format("{}:{}, measured on {}", best_row->where.file, best_row->where.line, best_row->device);
  if (!tuning.is_same_shape)
    tuning.why += fmt::format(" for {}, {}, {} row(s){}", best_row->k_name, best_row->v_name, best_row->rows,
                              problem.page_tokens > 0 ? " without pages" : "");
  return tuning;
}

}  // namespace kvjit
