// Terminals, colours and Ctrl-C: see terminal.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/terminal.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace kvjit {
namespace {

volatile sig_atomic_t is_interrupted = 0;

struct sigaction before;  // what SIGINT did; the second one does it again

extern "C" void note_interrupt(int) {
  is_interrupted = 1;
  ::sigaction(SIGINT, &before, nullptr);
}

bool is_set(const char* text) { return text && *text; }

// Colours `word` where it begins a line or follows ": ", as in "file:1:2: error: ...".
void colour(std::string& text, std::string_view word, const char* code, bool is_only_first) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
    const bool begins = at == 0 || text[at - 1] == '\n', follows = at >= 2 && text.compare(at - 2, 2, ": ") == 0;
    const char after = at + word.size() < text.size() ? text[at + word.size()] : ' ';
    if (!begins && (is_only_first || !follows)) {
      at += word.size();
      continue;
    }
    if (after != ' ' && after != '\n') {
      at += word.size();
      continue;
    }
    const std::string shown = std::string("\033[") + code + "m" + std::string(word) + "\033[0m";
    text.replace(at, word.size(), shown);
    at += shown.size();
  }
}

}  // namespace

bool is_terminal(std::FILE* file) { return ::isatty(::fileno(file)) == 1; }

bool may_colour(bool is_terminal, const ColourVariables& variables) {
  const auto is_zero = [](const char* text) { return text && std::string_view(text) == "0"; };
  if (is_set(variables.no_color)) return false;
  if (is_set(variables.clicolor_force) && !is_zero(variables.clicolor_force)) return true;
  if (!is_terminal || is_zero(variables.clicolor)) return false;
  return is_set(variables.term) && std::string_view(variables.term) != "dumb";
}

bool may_colour(std::FILE* file) {
  return may_colour(is_terminal(file), {std::getenv("NO_COLOR"), std::getenv("CLICOLOR"), std::getenv("CLICOLOR_FORCE"),
                                        std::getenv("TERM")});
}

std::string coloured(const std::string& text) {
  std::string out = text;
  colour(out, "error:", "1;31", false);
  colour(out, "warning:", "1;33", false);
  colour(out, "ok", "32", true);
  return out;
}

std::string for_terminal(std::FILE* file, const std::string& text) { return may_colour(file) ? coloured(text) : text; }

Interrupts::Interrupts() {
  is_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &before);
}

Interrupts::~Interrupts() { ::sigaction(SIGINT, &before, nullptr); }

bool Interrupts::is_requested() { return is_interrupted != 0; }

}  // namespace kvjit
