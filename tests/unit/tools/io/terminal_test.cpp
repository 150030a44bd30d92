// tools/io/terminal.cpp: the rules of colours, and the flag of Ctrl-C.
// SPDX-License-Identifier: MIT
#include "tools/io/terminal.hpp"

#include <doctest/doctest.h>

#include <csignal>

namespace kvjit {
namespace {

TEST_CASE("colours follow the usual variables") {
  CHECK(may_colour(true, {nullptr, nullptr, nullptr, "xterm"}));
  CHECK_FALSE(may_colour(false, {nullptr, nullptr, nullptr, "xterm"}));
  CHECK_FALSE(may_colour(true, {"1", nullptr, nullptr, "xterm"}));
  CHECK(may_colour(true, {"", nullptr, nullptr, "xterm"}));
  CHECK_FALSE(may_colour(true, {nullptr, "0", nullptr, "xterm"}));
  CHECK(may_colour(true, {nullptr, "1", nullptr, "xterm"}));
  CHECK(may_colour(false, {nullptr, "0", "1", "dumb"}));
  CHECK_FALSE(may_colour(false, {nullptr, nullptr, "0", "xterm"}));
  CHECK_FALSE(may_colour(false, {"1", nullptr, "1", "xterm"}));
  CHECK_FALSE(may_colour(true, {nullptr, nullptr, nullptr, "dumb"}));
  CHECK_FALSE(may_colour(true, {nullptr, nullptr, nullptr, nullptr}));
}

TEST_CASE("only three words are coloured, where they stand as words of kvjit") {
  CHECK(coloured("error: no\n") == "\033[1;31merror:\033[0m no\n");
  CHECK(coloured("a.toml:1:2: error: no error: here\n") == "a.toml:1:2: \033[1;31merror:\033[0m no error: here\n");
  CHECK(coloured("x: warning: y\n") == "x: \033[1;33mwarning:\033[0m y\n");
  CHECK(coloured("ok    a ok\nokay\n") == "\033[32mok\033[0m    a ok\nokay\n");
  CHECK(coloured("") == "");
}

TEST_CASE("the first SIGINT sets a flag") {
  const Interrupts interrupts;
  CHECK_FALSE(Interrupts::is_requested());
  std::raise(SIGINT);
  CHECK(Interrupts::is_requested());
}

}  // namespace
}  // namespace kvjit
