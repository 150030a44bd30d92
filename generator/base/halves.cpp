// The search for a table's unit, over 2048 factors in [1, 2) of the reciprocal of the largest value.
// SPDX-License-Identifier: MIT
#include "generator/base/halves.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "generator/base/minifloat.hpp"

namespace kvjit {
namespace {

// Bits of a half's mantissa, with the leading one, down to the last bit that is set.
int significant_bits(std::uint16_t half) {
  return half & 0x7FFF ? 11 - std::countr_zero(unsigned(half | 0x400) & 0x7FF) : 0;
}

double weight(const std::vector<double>& weights, std::size_t i) { return weights.empty() ? 1 : weights[i]; }

// Tables that were searched for before. A planner asks for the table of a codebook for each side, team and range of
// queries that it plans, and a search takes a tenth of a millisecond. Any thread may ask.
class KnownTables {
  using Key = std::pair<std::vector<double>, std::vector<double>>;  // values, weights
  static constexpr std::size_t kMost = 256;                         // more than a process has formats
  std::mutex mutex_;
  std::map<Key, HalfTable> tables_;

 public:
  template <class Search>
  HalfTable get(Key key, const Search& search) {
    const std::lock_guard lock(mutex_);
    const auto table = tables_.find(key);
    if (table != tables_.end()) return table->second;
    if (tables_.size() >= kMost) tables_.clear();
    return tables_.emplace(std::move(key), search()).first->second;
  }
};

// Of units that are equally good it takes the one whose numbers have the fewest significant bits, so that their
// products with short scales are exact.
HalfTable search_unit(const std::vector<double>& values, const std::vector<double>& weights) {
  double largest = 0;
  for (double v : values) largest = std::max(largest, std::fabs(v));
  std::pair<double, int> best{1e300, 0};
  double best_factor = 1;
  for (int i = 0; i < 2048; ++i) {
    const double factor = (1 + i / 2048.0) / largest;
    std::pair<double, int> cost;
    for (std::size_t at = 0; at < values.size() && cost.first <= best.first; ++at) {  // The cost only grows.
      const double v = values[at];
      const std::uint16_t half = f16_from_float(float(v * factor));
      const double exact = v * factor, off = float_from_f16(half) - exact;
      cost.first += weight(weights, at) * (off * off / (exact * exact + 1e-30) * v * v);
      cost.second += significant_bits(half);
    }
    if (cost < best) best = cost, best_factor = factor;
  }
  HalfTable table{1 / best_factor, {}};
  for (double v : values) table.halves.push_back(f16_from_float(float(v * best_factor)));
  return table;
}

}  // namespace

HalfTable halves_of(const std::vector<double>& values, const std::vector<double>& weights) {
  static KnownTables tables;
  return tables.get({values, weights}, [&] { return search_unit(values, weights); });
}

double relative_rounding(const std::vector<double>& values, const HalfTable& table,
                         const std::vector<double>& weights) {
  double rest = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = float_from_f16(table.halves[i]) * table.unit - values[i];
    rest += weight(weights, i) * off * off, all += weight(weights, i) * values[i] * values[i];
  }
  return all > 0 ? std::sqrt(rest / all) : 0;
}

}  // namespace kvjit
