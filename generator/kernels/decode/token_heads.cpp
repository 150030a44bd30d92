// check_token_heads: which problems blocks can serve that take all heads of a token together
// (templates/kernels/decode/token_heads.cuh).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "generator/kernels/decode/plan.hpp"

namespace kvjit {
namespace {

constexpr int kMostRows = 8;  // query rows of a head, which are one block of columns

Result<void> refuse(const Problem& problem, const std::string& what, std::vector<std::string> notes = {}) {
  notes.emplace_back("leave cache.token_heads out: heads are read one by one then");
  return fail(Code::unsupported, fmt::format("cache.token_heads = {}: {}", problem.token_heads, what), {},
              std::move(notes));
}

}  // namespace

Result<void> check_token_heads(const DecodePlan& plan, const Problem& problem) {
  if (!problem.arch.has("bulk_copy"))
    return refuse(problem, fmt::format("{} has no bulk copies", problem.arch.name), {"sm_90 and later have them"});
  if (plan.query_rows() > kMostRows)
    return refuse(problem, fmt::format("{} query rows of a head (attention.q_heads_per_kv times query_length); at most "
                                       "{} are served",
                                       plan.query_rows(), kMostRows));
  if (problem.append) return refuse(problem, "attention.append is not served with it");
  for (const SidePlan* side : {&plan.k, &plan.v}) {
    if (side->format.has_head_scales())
      return refuse(problem, fmt::format("a scale for each head ({}): a block takes one for all", side->format.name));
    if (side->format.has_segments())
      return refuse(problem, fmt::format("records of segments ({}), of which a token has one", side->format.name));
    if (side->pad_bytes > 0)
      return refuse(problem, fmt::format("heads of {} that do not fill the lanes of a warp", side->format.name));
    if (const int bytes = problem.token_heads * side->row_bytes; bytes % 16 != 0)
      return refuse(problem, fmt::format("heads of {} bytes ({}) are {} bytes a token, no multiple of 16",
                                         side->row_bytes, side->format.name, bytes));
  }
  return {};
}

}  // namespace kvjit
