// runtime/device/driver.cpp and the CUDA back-end: missing libraries and driver errors are explained; a real device, if
// there is one, moves bytes and times calls.
// SPDX-License-Identifier: MIT
#include "runtime/device/driver.hpp"

#include <doctest/doctest.h>

#include "runtime/device/backend.hpp"
#include "runtime/jit/context.hpp"

using namespace kvjit;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

CuResult name_of(CuResult status, const char** text) {
  if (status != 700) return 1;
  *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
  return 0;
}
CuResult string_of(CuResult status, const char** text) {
  if (status != 700) return 1;
  *text = "an illegal memory access was encountered";
  return 0;
}

}  // namespace

TEST_CASE("a missing driver names what was searched and what to do") {
  Options options;
  options.cuda_library = "/nowhere/libcuda.so.1";
  const auto opened = open_cuda(options);
  REQUIRE(!opened);
  CHECK(opened.error().code == Code::environment);
  CHECK(contains(opened.error().message, "libcuda"));
  CHECK(contains(render(opened.error()), "the loader finds no /nowhere/libcuda.so.1"));
  CHECK(contains(render(opened.error()), "CPU back-end"));
}

TEST_CASE("a library that is not a driver is named with what it lacks") {
  Options options;
  options.cuda_library = "libm.so.6";
  const auto opened = open_cuda(options);
  REQUIRE(!opened);
  CHECK(contains(opened.error().message, "has no cuGetErrorName"));
}

TEST_CASE("an error of the driver says what was done, its name and its meaning") {
  Driver driver;
  driver.cuGetErrorName = name_of;
  driver.cuGetErrorString = string_of;
  const Error known = driver.error(700, "launching decode").value();
  CHECK(known.message ==
        "launching decode: CUDA_ERROR_ILLEGAL_ADDRESS (error 700: an illegal memory access was encountered)");
  CHECK(known.code == Code::environment);
  CHECK(driver.error(12345, "x").value().message == "x: unknown error (error 12345: no description)");
}

TEST_CASE("compute capabilities become archs") {
  CHECK(arch_of(7, 5) == "sm_75");
  CHECK(arch_of(8, 7) == "sm_87");
  CHECK(arch_of(8, 9) == "sm_89");
  CHECK(arch_of(9, 0) == "sm_90a");
  CHECK(arch_of(10, 0) == "sm_100a");
  CHECK(arch_of(10, 3) == "sm_103a");
  CHECK(arch_of(11, 0) == "sm_110a");
  CHECK(arch_of(12, 0) == "sm_120a");
  CHECK(arch_of(12, 1) == "sm_121a");
}

TEST_CASE("asking for a GPU never ends on the CPU") {
  Options options;
  options.device = DeviceKind::gpu;
  options.cuda_library = "/nowhere/libcuda.so.1";
  options.cache_dir = "off";
  const auto context = Context::open(options);
  REQUIRE(!context);
  CHECK(context.error().code == Code::environment);
}

TEST_CASE("a real device moves bytes, times calls and refuses what it cannot do") {
  auto opened = open_cuda(Options::from_environment());
  if (!opened) {
    MESSAGE("skipped: " << opened.error().message);
    return;
  }
  Backend& device = **opened;
  CHECK(device.info().is_gpu);
  CHECK(device.info().multiprocessors > 0);
  const auto pointer = device.allocate(1024);
  REQUIRE(pointer);
  std::vector<unsigned char> bytes(1024, 0);
  CHECK(device.fill(*pointer, 0x5a, 1024));
  CHECK(device.copy_to_host(bytes.data(), *pointer, 1024));
  CHECK(bytes == std::vector<unsigned char>(1024, 0x5a));
  CHECK(device.info().l2_bytes > 0);

  // 4 calls warm up, then three graphs of 20 calls are captured for 50 turns; each graph is launched again without a
  // new capture.
  std::vector<int> buffer_sets;
  const auto copy = [&](Stream stream, int buffer_set) {
    buffer_sets.push_back(buffer_set);
    return device.copy_on_device(*pointer, *pointer + 512, 512, stream);
  };
  const auto timing = device.time(copy, 7, 50);
  REQUIRE(timing);
  CHECK(timing->repeats == 7);
  CHECK(timing->calls == 20);
  CHECK(timing->low_us > 0);
  CHECK(timing->low_us <= timing->median_us);
  CHECK(timing->median_us <= timing->high_us);
  REQUIRE(buffer_sets.size() == 4 + 3 * 20);
  for (int i = 0; i < 64; ++i) CHECK(buffer_sets[static_cast<std::size_t>(i)] == i % 50);
  device.release(*pointer);
  const auto too_much = device.allocate(std::size_t{1} << 50);
  REQUIRE(!too_much);
  CHECK(contains(too_much.error().message, "1125899906842624 bytes were requested"));
}
