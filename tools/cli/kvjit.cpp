// main of the command `kvjit`: it runs the verb that the arguments choose and prints errors. Exit codes are the values
// of Code (generator/base/result.hpp).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "runtime/base/temporary.hpp"
#include "tools/cli/cli.hpp"

int main(int argc, char** argv) {
  using namespace kvjit;
  remove_temporaries_on_signals();
  Cli cli;
  cli.options = Options::from_environment();
  cli.options.must_open_bundles = true;
  const Result<int> outcome =
      parse_command_line({argv + 1, argv + std::max(argc, 1)}, cli).and_then([&cli]() { return cli.action(); });
  if (outcome) {
    if (std::fflush(stdout) != 0) return static_cast<int>(Code::environment);
    return *outcome;
  }
  if (cli.is_json) cli.print({{"error", to_json(outcome.error())}}, "");
  fmt::print(stderr, "{}", render(outcome.error()));
  return static_cast<int>(outcome.error().code);
}
