// Decides whether a file is a terminal and may have colours, by the usual variables, and takes Ctrl-C.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdio>
#include <string>

namespace kvjit {

bool is_terminal(std::FILE* file);

// The variables that decide about colours; null: not set.
struct ColourVariables {
  const char* no_color = nullptr;        // NO_COLOR: never, unless empty
  const char* clicolor = nullptr;        // CLICOLOR: never if 0
  const char* clicolor_force = nullptr;  // CLICOLOR_FORCE: always, unless empty or 0
  const char* term = nullptr;            // TERM: never if dumb
};
bool may_colour(bool is_terminal, const ColourVariables& variables);
bool may_colour(std::FILE* file);  // by the environment

// The text with its words "error:", "warning:" and, at the begin of a line, "ok" coloured.
std::string coloured(const std::string& text);

// The text coloured if the file may have colours.
std::string for_terminal(std::FILE* file, const std::string& text);

// While one lives, the first SIGINT only sets a flag, so that a verb can print what it has; the second one ends the
// process.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  static bool is_requested();
};

}  // namespace kvjit
