// Checks a program with inputs that bite: see verify_inputs.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/inputs/verify_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/verify/fuzz_run.hpp"

namespace kvjit {
namespace {

const char* name_of(ManyRows many_rows) {
  return many_rows == ManyRows::prefill    ? "prefill"
         : many_rows == ManyRows::two_pass ? "prefill in two passes"
                                           : "decode";
}

// Queries of a call: few, so that a quick check stays quick. A program with run-time lengths takes prefill for many.
int queries_of(const Problem& problem, ManyRows many_rows) {
  constexpr int kMany = 20;
  return !problem.varlen ? 0 : std::min(problem.query_length, many_rows == ManyRows::decode ? 1 : kMany);
}

}  // namespace

Result<std::string> verify_inputs(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program,
                                  const Problem& problem, InputClasses classes) {
  const ProgramSource& source = program->source();
  const int queries = std::max(problem.varlen ? 0 : problem.query_length, 20);
  const std::vector<ManyRows> ways = ways_of(source, false);
  for (const InputWish& wish : verified_inputs(classes))
    for (std::size_t way = 0; way <= ways.size(); ++way) {
      FuzzCase one;
      one.call.is_reference = way == ways.size();
      if (one.call.is_reference && problem.append) continue;
      const ManyRows many_rows = one.call.is_reference ? ManyRows::decode : ways[way];
      one.seed = 60 * ways.size() + way;  // the same numbers on every device, and this way
      one.inputs = wish;
      const int longest = 140 + queries, tile = source.tile_tokens;
      one.shape = {2, source.token_heads > 0 ? source.token_heads : 2, longest + 80};
      one.call.lengths = {std::min(tile / 2 + queries, longest), longest};
      if (wish.classes.has(InputClass::sinks)) one.call.lengths[0] = 0;  // its rows see nothing but their sinks
      one.call.queries = queries_of(problem, many_rows);
      FuzzOutcome outcome;
      const auto done = run_case(one, problem, program, context, outcome);
      if (done) continue;
      if (done.error().code != Code::differs && done.error().code != Code::internal)
        return tl::unexpected(done.error());
      return fmt::format("inputs {} by {}: {}; `--inputs {}` repeats this class", wish.text(),
                         one.call.is_reference ? "the reference kernel" : name_of(many_rows), done.error().message,
                         to_string(wish.classes.list().front()));
    }
  return std::string();
}

}  // namespace kvjit
