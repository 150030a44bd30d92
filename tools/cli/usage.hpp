// Values of flags and mistakes on the command line. The validators state a range or a closed list in words; help,
// manual and completion print the same. usage_error turns what the parser found into an Error that names the nearest
// verb or flag.
// SPDX-License-Identifier: MIT
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/base/options.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

// Between an option's type and its range in CLI::Option::get_type_name(), which joins them with a colon.
inline constexpr const char* kRangeMark = ": ";

inline constexpr int kMostThreads = 1024;
inline constexpr const char* kAllProcessors = "all processors";

// The value is a whole number from lowest to highest; `unit` stands for it in the help: "N".
CLI::Option* whole_number(CLI::Option* option, const char* unit, long long lowest, long long highest);
// The value is a decimal number from lowest to highest.
CLI::Option* decimal_number(CLI::Option* option, const char* unit, double lowest, double highest);
// The value is one of the words.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& words);
// --arch and --as-ptx: which text the verb runs, written to `options`.
void text_options(CLI::App& verb, Options& options);
// --kernel: which kernel attends; the value is written to `many_rows`, which outlives the parser.
CLI::Option* kernel_option(CLI::App& verb, ManyRows& many_rows, const char* help);

// The verb that the arguments chose, with the verb before it: "cache gc"; "": none.
std::string chosen_verb(const CLI::App& app);

// A parser's failure in words. `app` is the parser after the failure: it knows the words that it could not place.
Error usage_error(const CLI::App& app, const CLI::ParseError& failure);

// The command line of these words, with each of the flags and its value in place of what it had; quoted for a shell.
std::string line_with(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& flags);

// There is no verb `name`: the error with the nearest one of `app`.
Error unknown_verb(const CLI::App& app, const std::string& name);

}  // namespace kvjit
