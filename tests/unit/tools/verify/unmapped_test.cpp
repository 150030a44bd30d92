// tools/verify/unmapped.cpp: touched pages are recorded, the process goes on, and memory is as before afterwards.
// SPDX-License-Identifier: MIT
#include "tools/verify/inputs/unmapped.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

namespace kvjit::test {
namespace {

constexpr int kPages = 8;

struct Pages {
  std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  volatile unsigned char* bytes = static_cast<unsigned char*>(
      mmap(nullptr, kPages* size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ~Pages() { munmap(const_cast<unsigned char*>(bytes), kPages * size); }
  DevicePointer at(std::size_t page, std::size_t byte = 0) const {
    return reinterpret_cast<DevicePointer>(bytes) + page * size + byte;
  }
};

TEST_CASE("a touch of memory that was taken away is recorded, and the memory keeps its bytes") {
  const Pages pages;
  for (std::size_t page = 0; page < kPages; ++page) pages.bytes[page * pages.size] = static_cast<unsigned char>(page);
  {
    const Unmapped unmapped({{pages.at(2), pages.at(5)}});
    CHECK(Unmapped::count() == 0);
    CHECK(pages.bytes[1 * pages.size] == 1);
    CHECK(pages.bytes[5 * pages.size] == 5);
    CHECK(Unmapped::count() == 0);
    CHECK(pages.bytes[3 * pages.size] == 3);
    CHECK(pages.bytes[3 * pages.size + 7] == 0);
    CHECK(Unmapped::count() == 1);
    CHECK(Unmapped::first() == pages.at(3));
    pages.bytes[4 * pages.size + 9] = 1;
    CHECK(Unmapped::count() == 2);
  }
  CHECK(pages.bytes[2 * pages.size] == 2);
  const Unmapped none({});
  CHECK(Unmapped::count() == 0);
}

TEST_CASE("pages that hold a byte outside the range stay") {
  const Pages pages;
  const Unmapped unmapped({{pages.at(1, 1), pages.at(2, pages.size - 1)}});
  (void)pages.bytes[1 * pages.size], (void)pages.bytes[2 * pages.size + 5];
  CHECK(Unmapped::count() == 0);
}

TEST_CASE("an address without memory is a touch, too") {
  const Pages pages;
  const auto* const gone = pages.bytes;
  const std::size_t far = pages.size * ((std::size_t{1} << 40) / pages.size);  // bytes, ahead of or behind any memory
  const Unmapped unmapped({});
  CHECK(gone[0] == 0);
  CHECK(*reinterpret_cast<volatile const unsigned char*>(pages.at(0) - far) == 0xff);
  CHECK(Unmapped::count() == 1);
}

}  // namespace
}  // namespace kvjit::test
