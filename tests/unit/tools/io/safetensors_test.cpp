// tools/io/safetensors.cpp: files are read, wrong ones are refused, and a changed tensor leaves all others as they
// were.
// SPDX-License-Identifier: MIT
#include "tools/io/safetensors.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "runtime/base/input_file.hpp"
#include "tests/support/temp_folder.hpp"
#include "tools/io/files.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> file_of(const std::string& header, std::size_t data, std::uint64_t stated = 0) {
  const std::uint64_t length = stated ? stated : header.size();
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(length >> 8 * i));
  for (const char c : header) bytes.push_back(static_cast<std::uint8_t>(c));
  for (std::size_t i = 0; i < data; ++i) bytes.push_back(static_cast<std::uint8_t>(7 * i + 1));
  return bytes;
}

std::string refusal(const std::string& header, std::size_t data, std::uint64_t stated = 0) {
  const test::TempFolder folder;
  const std::string file = (fs::path(folder.path) / "m").string();
  REQUIRE(write_bytes(file, file_of(header, data, stated)));
  const auto opened = open_safetensors(file);
  return opened ? "" : opened.error().message.substr(file.size() + 2);
}

const std::string kA = R"("a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]})";
const std::string kB = R"("b":{"dtype":"F32","shape":[3],"data_offsets":[8,20]})";

TEST_CASE("tensors are found where they lie; the header may be padded and hold metadata") {
  const test::TempFolder folder;
  const std::string file = (fs::path(folder.path) / "m").string();
  const std::string header = "{\"__metadata__\":{\"x\":\"y\"}," + kA + "," + kB + "}   ";
  REQUIRE(write_bytes(file, file_of(header, 20)));
  const Safetensors model = open_safetensors(file).value();
  CHECK(model.tensors.size() == 2);
  CHECK(model.metadata.at("x") == "y");
  CHECK(model.tensor("b").value()->shape_text() == "[3]");
  CHECK(model.tensor("b").value()->begin == 8 + header.size() + 8);
  CHECK(read_tensor(model, *model.tensor("a").value()).value() ==
        std::vector<std::uint8_t>{1, 8, 15, 22, 29, 36, 43, 50});
  CHECK(model.tensor("bb").error().notes == std::vector<std::string>{"did you mean 'b'?"});
}

TEST_CASE("broken files are refused before memory is asked for") {
  CHECK(refusal("{" + kA + "}", 8) == "");
  CHECK(refusal("{}", 0) == "");
  CHECK(refusal("{" + kA + "}", 8, ~std::uint64_t{0}).find("states a header of 18446744073709551615 bytes") == 0);
  CHECK(refusal("{" + kA + "}", 8, 1000).find("states a header of 1000 bytes") == 0);
  CHECK(refusal("{}", 0, 3).find("states a header of 3 bytes") == 0);
  CHECK(refusal("[1]", 0) == "has a header that is not a JSON object");
  CHECK(refusal("{" + kA, 8) == "has a header that is not a JSON object");
  CHECK(refusal("{" + kA + "," + kA + "}", 8) == "names 'a' twice");
  CHECK(refusal("{" + kA + "}", 7) == "'a' lies at 0..8, but the file has 7 bytes of data");
  CHECK(refusal("{" + kA + "}", 9) == "1 bytes after the last tensor");
  CHECK(refusal("{" + kB + "}", 20) == "tensors leave a hole at byte 0 of the data");
  CHECK(refusal("{" + kA + R"(,"c":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})", 8) ==
        "tensors overlap at byte 4 of the data");
  CHECK(refusal(R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,8]}})", 8) ==
        "'a' has shape [2, 3] of F16, 12 bytes, but holds 8");
  CHECK(refusal(R"({"a":{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8) ==
        "'a' has a shape that no memory holds");
  CHECK(refusal(R"({"a":{"dtype":"F16","shape":[-4],"data_offsets":[0,8]}})", 8) ==
        "'a' has a shape that is not a list of sizes");
  CHECK(refusal(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[8,0]}})", 8).find("'a' lies at 8..0") == 0);
  CHECK(refusal(R"({"a":{"dtype":"F16","shape":[4]}})", 8) ==
        "'a' is not an object with dtype, shape and data_offsets");
  CHECK(refusal(R"({"a":1})", 0) != "");
  const test::TempFolder folder;
  CHECK(open_safetensors((fs::path(folder.path) / "none").string()).error().code == Code::bad_input);
  REQUIRE(write_bytes((fs::path(folder.path) / "short").string(), std::vector<std::uint8_t>{1, 2, 3}));
  CHECK(open_safetensors((fs::path(folder.path) / "short").string()).error().code == Code::bad_input);
}

TEST_CASE("a change touches its tensor alone, and a failed one leaves nothing behind") {
  const test::TempFolder folder;
  const std::string in = (fs::path(folder.path) / "in").string(), out = (fs::path(folder.path) / "out").string();
  const auto before = file_of("{\"__metadata__\":{\"x\":\"y\"}," + kA + "," + kB + "}", 20);
  REQUIRE(write_bytes(in, before));
  const Safetensors model = open_safetensors(in).value();
  REQUIRE(write_changed(model, {{"a", std::vector<std::uint8_t>(8, 0xEE)}}, out));
  auto expected = before;
  std::fill(expected.end() - 20, expected.end() - 12, std::uint8_t{0xEE});
  CHECK(read_bytes(out).value() == expected);
  CHECK(read_bytes(in).value() == before);
  CHECK_FALSE(write_changed(model, {{"a", std::vector<std::uint8_t>(7, 0)}}, out));
  CHECK(read_bytes(out).value() == expected);
  CHECK_FALSE(write_changed(model, {}, (fs::path(folder.path) / "no" / "folder").string()));
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator{}) == 2);
}

}  // namespace
}  // namespace kvjit
