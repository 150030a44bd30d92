// runtime/device/backend.cpp: which text a GPU runs, as machine code or as PTX, and what is said where it does not.
// SPDX-License-Identifier: MIT
#include "runtime/device/backend.hpp"

#include <doctest/doctest.h>

using namespace kvjit;

namespace {

DeviceInfo gpu(const std::string& own_arch) {
  DeviceInfo info;
  info.is_gpu = true;
  info.name = "NVIDIA H200";
  info.own_arch = own_arch;
  return info;
}

Options asked(const std::string& arch, bool as_ptx) {
  Options options;
  options.arch = arch;
  options.as_ptx = as_ptx;
  return options;
}

Error refusal(const std::string& own_arch, const std::string& arch, bool as_ptx) {
  DeviceInfo info = gpu(own_arch);
  const auto chosen = choose_arch(asked(arch, as_ptx), info);
  REQUIRE_FALSE(chosen);
  return chosen.error();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a GPU runs its own arch as machine code, with and without suffix") {
  for (const char* arch : {"", "sm_90a", "sm_90"}) {
    DeviceInfo info = gpu("sm_90a");
    REQUIRE(choose_arch(asked(arch, false), info));
    CHECK(info.arch == (*arch ? arch : "sm_90a"));
    CHECK_FALSE(info.runs_ptx);
    CHECK_FALSE(contains(device_text(info, info.arch), "PTX"));
  }
}

TEST_CASE("older archs run as PTX, and the device says so") {
  for (const char* arch : {"sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"}) {
    DeviceInfo info = gpu("sm_90a");
    REQUIRE(choose_arch(asked(arch, true), info));
    CHECK(info.arch == arch);
    CHECK(info.own_arch == "sm_90a");
    CHECK(info.runs_ptx);
  }
  DeviceInfo info = gpu("sm_90a");
  REQUIRE(choose_arch(asked("sm_80", true), info));
  CHECK(device_text(info, info.arch) == "NVIDIA H200, text for sm_80, run as PTX on sm_90");
  info = gpu("sm_120a");
  CHECK(choose_arch(asked("sm_103", true), info));  // compared as numbers, not as words
}

TEST_CASE("without the flag an older arch is refused, and the flag is named") {
  const Error error = refusal("sm_90a", "sm_80", false);
  CHECK(error.code == Code::unsupported);
  CHECK(error.message == "kernels for sm_80 are asked for; the device is sm_90a (NVIDIA H200)");
  CHECK(contains(render(error), "--arch sm_80 --as-ptx runs the text for sm_80 here, as PTX"));
  CHECK(contains(render(error), "--device cpu"));
  // What would not run as PTX either is offered no flag.
  for (const char* arch : {"sm_100", "sm_100a", "sm_80a"})
    CHECK_FALSE(contains(render(refusal("sm_90a", arch, false)), "--as-ptx"));
}

TEST_CASE("PTX of a suffix, of a later GPU and of no arch is refused") {
  Error error = refusal("sm_90a", "sm_90a", true);
  CHECK(error.code == Code::unsupported);
  CHECK(contains(error.message, "PTX of sm_90a is not portable"));
  CHECK(contains(render(error), "runs sm_90a as machine code"));
  error = refusal("sm_90a", "sm_100a", true);
  CHECK(contains(error.message, "PTX of sm_100a is not portable"));
  CHECK(contains(render(error), "PTX of sm_100 is portable"));
  error = refusal("sm_90a", "sm_100", true);
  CHECK(error.message == "PTX of sm_100 runs on sm_100 and later GPUs; NVIDIA H200 is sm_90");
  CHECK(refusal("sm_86", "sm_87", true).code == Code::unsupported);
  CHECK(refusal("sm_90a", "80", true).code == Code::bad_input);
  error = refusal("sm_90a", "", true);
  CHECK(error.code == Code::usage);
  CHECK(contains(render(error), "--arch sm_80 --as-ptx"));
}

TEST_CASE("of several archs the first that runs is named") {
  const DeviceInfo info = gpu("sm_90a");
  CHECK(contains(way_to_run({"sm_100a", "sm_90", "sm_80"}, info), "--arch sm_90 runs"));
  CHECK(contains(way_to_run({"sm_100a", "sm_80"}, info), "--arch sm_80 --as-ptx runs"));
  CHECK(way_to_run({"sm_100a", "sm_120"}, info).empty());
}

TEST_CASE("the CPU back-end runs the text of any arch, and no PTX") {
  const auto sm_75 = open_cpu(asked("sm_75", false)), own = open_cpu({});
  REQUIRE(sm_75);
  CHECK((*sm_75)->info().arch == "sm_75");
  CHECK(device_text((*sm_75)->info(), "sm_75") == "CPU back-end, text for sm_75");
  REQUIRE(own);
  CHECK((*own)->info().arch == "sm_90a");
  const auto ptx = open_cpu(asked("sm_75", true));
  REQUIRE_FALSE(ptx);
  CHECK(ptx.error().code == Code::usage);
  CHECK(contains(ptx.error().message, "only GPUs run PTX"));
}
