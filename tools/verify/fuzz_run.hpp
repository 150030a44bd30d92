// run_fuzz executes a random spec (fuzz.hpp): it fills a cache and makes the call. It compares output and lse with
// attention in double precision, row by row, the launch report with the request, and appended rows with those of
// quantize. A spec passes, is refused as its rules say, or has failed. A case that fails is run with each class of its
// inputs alone, to say which of them it fails by.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/jit/context.hpp"
#include "tools/verify/fuzz.hpp"

namespace kvjit {

enum class FuzzVerdict { passed, refused, failed };  // refused: the library gave a message that the rules expect
struct FuzzOutcome {
  FuzzVerdict verdict = FuzzVerdict::failed;
  std::string reason;           // why it failed or was refused
  std::string program;          // id of the program; empty: the spec was refused before there was one
  double error = 0;             // largest relative L2 error of a sequence, less what sparse_v may cost it
  bool is_by_rounding = false;  // an error above the limit passed, because rounding to f16 explains it
  // The classes of inputs with each of which alone the case fails too; "ordinary": it fails without any.
  std::vector<std::string> guilty;
};

// Makes the call of a case with a program of the caller's; one.toml is not read. Programs that have several kernels for
// many query rows are judged by one of them, which the case's seed decides: that of ways_of(...)[seed % size].
Result<void> run_case(const FuzzCase& one, const Problem& problem, const std::shared_ptr<Program>& program,
                      const std::shared_ptr<Context>& context, FuzzOutcome& judged);
// What attends to many query rows in a program: decode first, then prefill in one and in two passes where it has them.
std::vector<ManyRows> ways_of(const ProgramSource& source, bool is_ragged);

FuzzOutcome run_fuzz(const FuzzCase& one, const Registry& registry, const std::shared_ptr<Context>& context);

}  // namespace kvjit
