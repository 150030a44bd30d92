// Help, manual page and shell completion. All three are written from one table: the verbs and flags that the parser
// knows, and the texts and examples of manual.cpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvjit {

// A flag or a positional, described without the parser's notation.
struct Argument {
  std::vector<std::string> names;  // "-o", "--output"; of a positional its name
  std::string value;               // "N", "auto|gpu|cpu"; empty: a flag without a value
  std::string range;               // "1 to 1024"; empty: none is stated
  std::string preset;              // the default; empty: none
  std::string what;                // one sentence without a full stop
  bool is_positional = false;
  bool is_required = false;
  bool is_repeatable = false;  // of positionals
};
std::vector<Argument> arguments_of(const CLI::App& app);

std::vector<const CLI::App*> verbs_of(const CLI::App& app);  // in the order of the help

// A command line, and what it does.
struct Example {
  std::string command;
  std::string what;
};
std::vector<Example> examples_of(const std::string& verb);

std::string help_text(const CLI::App& app);  // of the command or of one of its verbs
std::string man_page(const CLI::App& app);   // of the whole command, as roff

// The completion script of a shell: bash, zsh or fish.
std::string completion(const CLI::App& app, const std::string& shell);

}  // namespace kvjit
