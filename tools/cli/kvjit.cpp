// main of the command `kvjit`: it runs the verb that the arguments choose and prints errors. Exit codes are the values
// of Code (generator/base/result.hpp).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <new>

#include "runtime/base/temporary.hpp"
#include "tools/cli/cli.hpp"

namespace kvjit {
namespace {

// Prints the error, and as a document too if the output is JSON. Returns the exit code.
int report(const Cli& cli, const Error& error) {
  if (cli.is_json) cli.print({{"error", to_json(error)}}, "");
  cli.print_error(render(error));
  return static_cast<int>(error.code);
}

// Parses the command line and runs the verb. Returns the exit code.
int run_command(Cli& cli, int argc, char** argv) {
  cli.options = Options::from_environment();
  cli.options.must_open_bundles = true;
  const Result<int> outcome =
      parse_command_line({argv + 1, argv + std::max(argc, 1)}, cli).and_then([&cli]() { return cli.action(); });
  return outcome ? *outcome : report(cli, outcome.error());
}

}  // namespace
}  // namespace kvjit

int main(int argc, char** argv) {
  using namespace kvjit;
  remove_temporaries_on_signals();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of a write, as a full disk is
  Cli cli;
  int code = static_cast<int>(Code::internal);
  // kvjit's own code throws nothing. Libraries do: for memory, and for what nobody thought of.
  try {
    code = run_command(cli, argc, argv);
  } catch (const std::bad_alloc&) {
    code = report(cli, Error{Code::environment, "not enough memory"});
  } catch (const std::exception& error) {
    code = report(cli, Error{Code::internal, fmt::format("a bug of kvjit: {}", error.what())});
  }
  if (const auto closed = cli.close_output(); !closed) return report(cli, closed.error());
  return code;
}
