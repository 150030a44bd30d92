// runtime/base/arch_name.cpp: names of archs, their numbers, and whose PTX is portable.
// SPDX-License-Identifier: MIT
#include "runtime/base/arch_name.hpp"

#include <doctest/doctest.h>

using namespace kvjit;

TEST_CASE("the number of an arch orders chips by age") {
  CHECK(number_of_arch("sm_75") == 75);
  CHECK(number_of_arch("sm_90a") == 90);
  CHECK(number_of_arch("sm_103f") == 103);
  CHECK(number_of_arch("sm_120") > number_of_arch("sm_90"));
  for (const char* name : {"", "sm_", "80", "sm_a", "sm_8x", "sm_80b", "compute_80", "sm_-80", "sm_0"})
    CHECK_MESSAGE(number_of_arch(name) == 0, name);
}

TEST_CASE("a suffix is taken off, and its PTX is not portable") {
  CHECK(without_suffix("sm_90a") == "sm_90");
  CHECK(without_suffix("sm_100f") == "sm_100");
  CHECK(without_suffix("sm_89") == "sm_89");
  CHECK(has_portable_ptx("sm_89"));
  CHECK(has_portable_ptx("sm_90"));
  CHECK_FALSE(has_portable_ptx("sm_90a"));
  CHECK_FALSE(has_portable_ptx("sm_100f"));
  CHECK_FALSE(has_portable_ptx(""));
  CHECK_FALSE(has_portable_ptx("80"));
}
