// runtime/base/input_file.cpp: only regular files of a sane size are read, and nothing that is named blocks.
// SPDX-License-Identifier: MIT
#include "runtime/base/input_file.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.hpp"

using namespace kvjit;
using kvjit::test::TempFolder;
namespace fs = std::filesystem;

namespace {
std::string refusal(const std::string& path) {
  const auto text = read_text(path);
  const auto bytes = read_bytes(path);
  REQUIRE(!text);
  CHECK(text.error().code == Code::bad_input);
  if (!bytes) CHECK(bytes.error().code == Code::bad_input);
  return text.error().message;
}
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("a file is read to its end, also through a link") {
  const TempFolder folder;
  const std::string file = folder.path + "/a", link = folder.path + "/b";
  std::ofstream(file, std::ios::binary) << std::string("x\0y", 3);
  fs::create_symlink(file, link);
  CHECK(read_text(link).value() == std::string("x\0y", 3));
  CHECK(read_bytes(file).value().size() == 3);
  std::ofstream(file, std::ios::binary | std::ios::trunc);
  CHECK(read_text(file).value().empty());
}

TEST_CASE("what is no regular file is refused by its kind") {
  const TempFolder folder;
  const std::string pipe = folder.path + "/pipe", socket_name = folder.path + "/socket";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);  // a read would wait forever
  CHECK(contains(refusal(pipe), "is a pipe, not a regular file"));
  CHECK(contains(refusal(folder.path), "is a folder"));
  CHECK(contains(refusal("/dev/zero"), "is a device"));
  CHECK(contains(refusal(folder.path + "/none"), "there is no such file"));
  CHECK(contains(refusal(std::string("a\0b", 3)), "is no file name"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_name.size() >= sizeof address.sun_path) return;
  std::strcpy(address.sun_path, socket_name.c_str());
  const File server(socket(AF_UNIX, SOCK_STREAM, 0));
  REQUIRE(bind(server.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(contains(refusal(socket_name), "cannot be read"));
}

TEST_CASE("sizes are checked before memory is allocated") {
  const TempFolder folder;
  const std::string file = folder.path + "/sparse";
  std::ofstream(file) << "x";
  fs::resize_file(file, kMaxTextBytes + 1);
  CHECK(contains(read_text(file).error().message, "has 16777217 bytes; at most 16777216 are read"));
  CHECK(read_bytes(file).has_value());
  fs::resize_file(file, std::uintmax_t{1} << 42);  // 4 TiB, more than a machine has
  CHECK(contains(read_bytes(file).error().message, "has 4398046511104 bytes"));
  CHECK(open_input(file, std::uint64_t{1} << 42)->size == std::uint64_t{1} << 42);
}
