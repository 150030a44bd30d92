// generator/base/display.cpp: what a terminal would obey is escaped, and what is long is cut.
// SPDX-License-Identifier: MIT
#include "generator/base/display.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/rng.hpp"

using namespace kvjit;
using namespace std::string_literals;

TEST_CASE("printable text stays, commands to a terminal are escaped") {
  CHECK(displayed("head_dim = 128 # äé 漢字 😀") == "head_dim = 128 # äé 漢字 😀");
  CHECK(displayed("a\tb") == "a b");
  CHECK(displayed("\x1b[31mred\x07\r\n"s) == "\\x1b[31mred\\x07\\x0d\\x0a");
  CHECK(displayed("nul\0byte"s) == "nul\\x00byte");
  CHECK(displayed("\x7f\xc2\x9b") == "\\x7f\\x9b");         // DEL, and CSI as one character of C1
  CHECK(displayed("\u202egnp.exe") == "\\u{202e}gnp.exe");  // would show the rest from right to left
}

TEST_CASE("bytes that are no UTF-8 are shown one by one") {
  CHECK(displayed("n\xff.toml") == "n\\xff.toml");
  CHECK(displayed("\xc3") == "\\xc3");                    // cut off
  CHECK(displayed("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(displayed("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(displayed("\xf5\x80\x80\x80") == "\\xf5\\x80\\x80\\x80");
}

TEST_CASE("a long text keeps its start and its end") {
  const std::string cut = displayed("begin" + std::string(100'000'000, 'x') + "end", 60);
  CHECK(cut.substr(0, 6) == "beginx");
  CHECK(cut.substr(cut.size() - 4) == "xend");
  CHECK(cut.find(" ...99999948 bytes... ") != std::string::npos);
  CHECK(displayed(std::string(60, 'x'), 60) == std::string(60, 'x'));
  CHECK(displayed(std::string(61, 'x'), 60) != std::string(61, 'x'));
  CHECK(displayed_lines("one\n" + std::string(500, 'x') + "\nthree", 40).size() < 90);
  CHECK(displayed_lines(std::string(1'000'000, '\n'), 40).size() < 3000);
}

TEST_CASE("the caret stands below its character wherever the line is cut") {
  CHECK(excerpt_with_caret("k = 1", 5) == "k = 1\n    ^\n");
  CHECK(excerpt_with_caret("ab", 9) == "ab\n  ^\n");
  CHECK(excerpt_with_caret("\x1b[0m!x", 6) == "\\x1b[0m!x\n        ^\n");
  for (const int column : {1, 30, 61, 500, 1999, 2000, 2001}) {
    std::string line(2000, '.');
    if (column <= 2000) line[static_cast<std::size_t>(column) - 1] = '#';
    const std::string shown = excerpt_with_caret(line, column, 60);
    const std::size_t end = shown.find('\n'), caret = shown.find('^');
    CAPTURE(shown);
    CHECK(end <= 60);
    CHECK(caret - end - 1 <= 60);
    if (column <= 2000) CHECK(shown[caret - end - 1] == '#');
  }
}

TEST_CASE("whatever the bytes are, what is shown is printable and short") {
  test::Rng random(7);
  for (int run = 0; run < 3000; ++run) {
    std::string bytes(static_cast<std::size_t>(random.below(80)), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.below(256));
    const std::string shown = displayed(bytes, 40) + excerpt_with_caret(bytes, random.below(90), 40);
    CHECK(displayed_lines(shown, 10'000) == shown);  // valid UTF-8 without anything to escape
    CHECK(shown.size() < 600);
  }
}
