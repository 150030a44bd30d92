// tools/io/npy.cpp: accepted .npy files read back exactly; others are refused with the reason.
// SPDX-License-Identifier: MIT
#include "tools/io/npy.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tools/io/files.hpp"

namespace kvjit {
namespace {

std::vector<std::uint8_t> as_bytes(std::span<const float> x) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(x.data());
  return {first, first + x.size_bytes()};
}

std::vector<std::uint8_t> with_header(const std::string& header, std::size_t element_bytes, std::uint8_t version = 1) {
  std::string file = "\x93NUMPY";
  file.append({char(version), 0, char(header.size()), char(header.size() >> 8)});
  if (version == 2) file.append(2, '\0');
  file += header + std::string(element_bytes, '\0');
  return {file.begin(), file.end()};
}

void check_refused(std::vector<std::uint8_t> file, const std::string& because) {
  const auto npy = parse_npy(std::move(file), "x.npy");
  REQUIRE_FALSE(npy);
  CHECK(npy.error().code == Code::bad_input);
  CHECK_MESSAGE(npy.error().message.rfind("x.npy: ", 0) == 0, npy.error().message);
  CHECK_MESSAGE(npy.error().message.find(because) != std::string::npos, npy.error().message);
  CHECK(npy.error().notes.size() == 1);
}

TEST_CASE("what is written reads back") {
  const std::vector<float> x = {0, -1.5f, 3.25e-8f, 1e30f, 2, 7};
  const auto npy = parse_npy(npy_bytes(NpyType::f32, {2, 3}, as_bytes(x)), "x.npy");
  REQUIRE(npy);
  CHECK(npy->type == NpyType::f32);
  CHECK(npy->shape == std::vector<long long>{2, 3});
  CHECK(npy->shape_text() == "[2, 3]");
  CHECK(npy->floats() == x);
}

TEST_CASE("elements start at a multiple of 64 in every shape") {
  for (const std::vector<long long>& shape : {std::vector<long long>{}, {6}, {1, 6}, {1, 1, 1, 1, 2, 3}}) {
    const std::size_t count = shape.empty() ? 1 : 6;
    const std::vector<std::uint8_t> elements(count * 8);
    const auto file = npy_bytes(NpyType::f64, shape, elements);
    CHECK((file.size() - elements.size()) % 64 == 0);
    const auto npy = parse_npy(file, "x.npy");
    REQUIRE(npy);
    CHECK(npy->shape == shape);
  }
}

TEST_CASE("f16, f64 and i8") {
  const std::vector<std::uint8_t> halves = {0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b};  // 1, -2, 65504
  CHECK(parse_npy(npy_bytes(NpyType::f16, {3}, halves), "x.npy")->floats() == std::vector<float>{1, -2, 65504});
  const double number = -0.375;
  std::vector<std::uint8_t> bytes(8);
  std::memcpy(bytes.data(), &number, 8);
  CHECK(parse_npy(npy_bytes(NpyType::f64, {1}, bytes), "x.npy")->floats() == std::vector<float>{-0.375f});
  CHECK(parse_npy(npy_bytes(NpyType::i8, {2}, std::vector<std::uint8_t>{0x80, 0x7f}), "x.npy")->floats() ==
        std::vector<float>{-128, 127});
}

TEST_CASE("version 2, double quotes and other spacing") {
  const auto npy = parse_npy(with_header(R"({"shape":(2,2),"fortran_order":False,"descr":"<f4"})", 16, 2), "x.npy");
  REQUIRE(npy);
  CHECK(npy->count() == 4);
}

TEST_CASE("what is refused") {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const auto changed = [&](const std::string& from, const std::string& to, std::size_t elements = 24) {
    std::string header = good;
    header.replace(header.find(from), from.size(), to);
    return with_header(header, elements);
  };
  REQUIRE(parse_npy(with_header(good, 24), "x.npy"));
  check_refused({}, "is not a .npy file");
  check_refused({'P', 'K', 3, 4, 0, 0, 0, 0, 0, 0, 0, 0}, "is not a .npy file");
  check_refused({0x93, 'N', 'U', 'M', 'P', 'Y', 1}, "cut off");
  check_refused(with_header(good, 24, 3), "version 3.0");
  check_refused(changed("<f4", ">f4"), "elements of type '>f4'");
  check_refused(changed("<f4", "<i8"), "elements of type '<i8'");
  check_refused(changed("False", "True"), "Fortran order");
  check_refused(changed("(2, 3)", "(2, -3)"), "shape");
  check_refused(changed("(2, 3)", "(2, x)"), "shape");
  check_refused(changed("'shape'", "'sharp'"), "shape");
  check_refused(with_header(good, 23), "holds 23 bytes of elements, but shape [2, 3] of f32 takes 24");
  check_refused(with_header(good, 25), "takes 24");
  auto long_header = with_header(good, 0);
  long_header[8] = 255;
  check_refused(long_header, "cut off");
}

TEST_CASE("a shape that no memory holds is refused before anything is allocated") {
  check_refused(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 2), }", 8),
                "shape");
  check_refused(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,), }", 8), "shape");
  check_refused(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4),
                "at most 8 dimensions");
}

TEST_CASE("a missing file and a folder are named") {
  for (const char* file : {"no-such-file.npy", "."}) {
    const auto npy = read_npy(file);
    REQUIRE_FALSE(npy);
    CHECK(npy.error().code == Code::bad_input);
    CHECK(npy.error().message.rfind(file, 0) == 0);
  }
}

TEST_CASE("a write that fails says so and leaves nothing") {
  const auto refused = write_npy("no-such-folder/x.npy", {1}, std::vector<float>{1});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::environment);
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("kvjit-npy-{}.npy", getpid())).string();
  REQUIRE(write_npy(file, {2}, std::vector<float>{1, 2}));
  REQUIRE(write_npy(file, {3}, std::vector<float>{3, 4, 5}));
  CHECK(read_npy(file)->floats() == std::vector<float>{3, 4, 5});
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace kvjit
