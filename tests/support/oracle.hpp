// Attention in double, straight from the formula, over K and V that are already decoded:
//
//   out = sum_t p_t v_t / sum_t p_t,  p_t = exp(scale q.k_t)
//
// Shares nothing with the kernels or the generator; it must never learn a feature from them.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace kvjit::test {

// One sequence. Head h reads KV head h / (heads / kv_heads).
struct OracleCase {
  int heads = 1, kv_heads = 1, queries = 1, tokens = 1, dim = 1;
  bool causal = false;  // query i stands at position tokens - queries + i and sees positions up to its own
  double scale = 0;     // 0: 1 / sqrt(dim)
  int value_dim = 0;    // of v and the output; 0: dim
};

// q [heads][queries][dim], k and v [kv_heads][tokens][dim] -> [heads][queries][dim]. A query that sees no
// token yields zeros.
inline std::vector<double> oracle_attention(const OracleCase& c, std::span<const double> q, std::span<const double> k,
                                            std::span<const double> v) {
  const int value_dim = c.value_dim ? c.value_dim : c.dim;
  const auto row = [](std::span<const double> x, int dim, int index) {
    return x.subspan(std::size_t(index) * std::size_t(dim), std::size_t(dim));
  };
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(double(c.dim));
  std::vector<double> out(std::size_t(c.heads) * std::size_t(c.queries) * std::size_t(value_dim), 0.0);
  for (int head = 0; head < c.heads; ++head)
    for (int query = 0; query < c.queries; ++query) {
      const int first_row = head / (c.heads / c.kv_heads) * c.tokens;
      const int visible = std::max(0, c.causal ? c.tokens - c.queries + query + 1 : c.tokens);
      std::vector<double> score;
      for (int token = 0; token < visible; ++token) {
        double dot = 0;
        for (int i = 0; i < c.dim; ++i)
          dot += row(q, c.dim, head * c.queries + query)[std::size_t(i)] *
                 row(k, c.dim, first_row + token)[std::size_t(i)];
        score.push_back(scale * dot);
      }
      if (score.empty()) continue;
      const double largest = *std::max_element(score.begin(), score.end());
      double sum = 0;
      for (double& s : score) sum += s = std::exp(s - largest);
      double* result = &out[std::size_t(head * c.queries + query) * std::size_t(value_dim)];
      for (int token = 0; token < visible; ++token)
        for (int i = 0; i < value_dim; ++i)
          result[i] += score[std::size_t(token)] / sum * row(v, value_dim, first_row + token)[std::size_t(i)];
    }
  return out;
}

}  // namespace kvjit::test
