// The oracle: attention in double precision by the formula, over K and V that are already decoded:
//
//      out = sum_t p_t v_t / (sum_t p_t + exp(sink)),  p_t = exp(softcap tanh(scale q.k_t / softcap) + added_t)
//
// The oracle shares no code with the kernels or the generator. Features are written here by hand.
// SPDX-License-Identifier: MIT
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace kvjit::test {

// The shape and the features of one sequence. Query head h reads KV head h / (heads / kv_heads).
struct OracleCase {
  int heads = 1, kv_heads = 1, queries = 1, tokens = 1, dim = 1;
  bool causal = false;  // query i has position tokens - queries + i and sees positions up to its own
  double scale = 0;     // factor of q.k; 0: 1 / sqrt(dim)
  int value_dim = 0;    // head size of v and of the output; 0: dim
  double softcap = 0;   // 0: none
  // Returns the number that is added to a score, by head, query and token. Minus infinity hides the token.
  std::function<double(int, int, int)> added = nullptr;
  std::vector<double> sinks = {};      // one for each head; empty: no sinks
  std::vector<double>* lse = nullptr;  // [heads][queries]: log-sum-exp, sinks included
};

// Takes q [heads][queries][dim] and k, v [kv_heads][tokens][dim]; returns [heads][queries][dim]. A query that sees no
// token gives zeros.
inline std::vector<double> oracle_attention(const OracleCase& c, std::span<const double> q, std::span<const double> k,
                                            std::span<const double> v) {
  const int value_dim = c.value_dim ? c.value_dim : c.dim;
  const auto row = [](std::span<const double> x, int dim, int index) {
    return x.subspan(std::size_t(index) * std::size_t(dim), std::size_t(dim));
  };
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  if (c.lse) c.lse->assign(std::size_t(c.heads) * std::size_t(c.queries), nothing);
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
        dot *= scale;
        if (c.softcap != 0) dot = c.softcap * std::tanh(dot / c.softcap);
        score.push_back(c.added ? dot + c.added(head, query, token) : dot);
      }
      if (!c.sinks.empty()) score.push_back(c.sinks[std::size_t(head)]);  // a sink is a token without a value
      const double largest = score.empty() ? nothing : *std::max_element(score.begin(), score.end());
      if (largest == nothing) continue;
      double sum = 0;
      for (double& s : score) sum += s = std::exp(s - largest);
      if (c.lse) (*c.lse)[std::size_t(head * c.queries + query)] = largest + std::log(sum);
      double* result = &out[std::size_t(head * c.queries + query) * std::size_t(value_dim)];
      for (int token = 0; token < visible; ++token)
        for (int i = 0; i < value_dim; ++i)
          result[i] += score[std::size_t(token)] / sum * row(v, value_dim, first_row + token)[std::size_t(i)];
    }
  return out;
}

}  // namespace kvjit::test
