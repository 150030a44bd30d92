// What no query of a call sees, and what may stand there. Engines never write that memory, or freed it: tokens behind
// the lengths, tokens that window, token_ranges, causal, mask or packed_mask hide, and pages of such tokens. Tests fill
// it with NaN, infinities or 0xFF, lead page tables astray, and take the memory away (unmapped.hpp).
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "tools/verify/harness.hpp"
#include "tools/verify/inputs/inputs.hpp"

namespace kvjit {

// One flag for each stored row: [sequence][kv_head][token], tokens up to the capacity.
using RowFlags = std::vector<bool>;

struct UnseenTokens {
  RowFlags hidden;   // no query row of the KV head sees the token
  RowFlags outside;  // lengths, causal, window and token_ranges hide it from all heads: kernels know it without reading
  // A token that few query rows of its KV head see; -1: none.
  struct Part {
    int sequence, kv_head, token;
  };
  std::vector<Part> partly;
  std::vector<bool> sees_part;  // [query row]: whether it sees such a token; in the order of Outcome::out
};

// counts: queries of each sequence. is_ragged: masks have the rows of all sequences one behind the other.
UnseenTokens unseen_tokens(const Problem& problem, const CacheShape& shape, const std::vector<int>& lengths,
                           const std::vector<int>& counts, bool is_ragged, const FeatureInputs& features);

// The row's bytes that a hidden token has: scales and numbers are NaN or infinite, and codes are 0xFF.
std::vector<std::uint8_t> unseen_row(const Format& format, int dim, Unseen unseen);

// Tokens that are at least this far from a token that a query sees may be without memory. Nearer ones share a tile.
constexpr int kMostTileTokens = 256;

// Rows whose memory may be taken away: those behind the lengths, and those `outside` that share no tile with a token
// inside.
RowFlags unmapped_rows(const CacheShape& shape, const std::vector<int>& lengths, const UnseenTokens& unseen);

}  // namespace kvjit
