// tools/io/report.cpp: aligned text for people.
// SPDX-License-Identifier: MIT
#include "tools/io/report.hpp"

#include <doctest/doctest.h>

namespace kvjit {
namespace {

TEST_CASE("columns align, numbers to the right, no blanks at the end") {
  CHECK(table_text({"name", "ms"}, {{"decode", "7"}, {"q", "123"}}) == "name     ms\ndecode    7\nq       123\n");
  CHECK(table_text({"a", "b"}, {{"1", "x"}, {"22", "-"}}) == " a  b\n 1  x\n22  -\n");
  CHECK(table_text({}, {}) == "");
}

TEST_CASE("facts align") { CHECK(info_text({{"a", "1"}, {"long", "2"}}) == "a     1\nlong  2\n"); }

TEST_CASE("numbers are short") {
  CHECK(short_number(0.000187234) == "0.000187");
  CHECK(byte_count(512) == "512 B");
  CHECK(byte_count(1536) == "1.5 KiB");
  CHECK(byte_count(3.0 * 1024 * 1024 * 1024) == "3.0 GiB");
}

TEST_CASE("letters of the table are replaced, once each") {
  CHECK(with_replaced("a & <b>", {{'&', "&amp;"}, {'<', "&lt;"}}) == "a &amp; &lt;b>");
  CHECK(with_replaced("", {{'a', "b"}}) == "");
}

}  // namespace
}  // namespace kvjit
