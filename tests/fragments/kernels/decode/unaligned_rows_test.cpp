// templates/kernels/decode/unaligned_rows.cuh: rows of any size at any even address are copied as the 16-byte chunks
// that contain them, and realigned when lanes load them.
// SPDX-License-Identifier: MIT
#include "kernels/decode/unaligned_rows.cuh"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "runtime/device/cpu/block_scheduler.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

constexpr int kStage = 64;  // shared address at which the stage begins
constexpr int kPage = 4096;

template <int kBytes, int kGap, bool kDealt, int kAlign = 32>
struct Side {
  static constexpr int kRowBytes = kBytes, kSlotAlign = kAlign,
                       kPitch = (kBytes + kAlign - 2 + kAlign - 1) / kAlign * kAlign + kGap;
  static constexpr bool kIsMisaligned = true, kHasEvenOddOrder = kDealt, kCachesInL1 = false;
};

// Pages of memory between two pages that cannot be accessed.
class Pages {
 public:
  explicit Pages(int count) : bytes_(std::size_t(count + 2) * kPage) {
    void* const all = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(all != MAP_FAILED);
    first_ = static_cast<kv::u8*>(all) + kPage;
    REQUIRE(mprotect(first_, std::size_t(count) * kPage, PROT_READ | PROT_WRITE) == 0);
    test::Rng rng(3);
    for (int i = 0; i < count * kPage; ++i) first_[i] = kv::u8(rng.bits());
  }
  ~Pages() { munmap(first_ - kPage, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  kv::u8* begin() { return first_; }

 private:
  std::size_t bytes_;
  kv::u8* first_ = nullptr;
};

// Stages rows and reads back every byte of them. Rows from `valid` on must be zeros.
template <class S, int kRows, bool kIsWhole>
void check_rows(const kv::u8* from, kv::i64 stride, int valid) {
  CAPTURE(S::kRowBytes);
  CAPTURE(stride);
  CAPTURE(valid);
  int wrong = 0, beyond = 0, torn = 0;  // torn: rows whose sectors are not aligned in shared memory
  const auto ran = run_grid(
      [&] {
        kv::stage_chunks<S, kRows, kIsWhole>(kStage, from, stride, valid);
        kv::copy_commit();
        kv::copy_wait<0>();
        kv::sync_warp();
        if (kv::lane() != 0) return;
        for (int row = 0; row < kRows; ++row) {
          const kv::u32 lower = kv::row_misalignment<S>(from, stride, row % 8);
          const kv::u32 misalignment = row % 16 < 8 ? lower : kv::upper_misalignment<S>(lower, stride);
          const kv::u32 begin = kStage + row * S::kPitch + misalignment;
          torn += (begin - kv::u32(kv::i64(from + row * stride))) % S::kSlotAlign != 0;
          beyond += begin < kStage || begin + S::kRowBytes > kStage + kRows * S::kPitch;
          for (int i = 0; i < S::kRowBytes; ++i)
            wrong += kv::load_shared_u8(begin + kv::u32(i)) != (row < valid ? from[row * stride + i] : 0u);
        }
      },
      {}, 32, kStage + kRows * S::kPitch);
  REQUIRE_MESSAGE(ran, ran.error().message);
  CHECK(beyond == 0);
  CHECK(torn == 0);
  CHECK(wrong == 0);
}

template <class S, int kRows>
void check_everywhere() {
  Pages pages(20);
  for (int late = 0; late < 32; late += 2)
    for (const kv::i64 stride :
         {kv::i64(S::kRowBytes), kv::i64(S::kRowBytes + 15) / 16 * 16, kv::i64(528), kv::i64(2 * S::kRowBytes + 6)}) {
      if (stride < S::kRowBytes || late + kRows * stride > 20 * kPage) continue;
      const kv::u8* const from = pages.begin() + late;
      check_rows<S, kRows, true>(from, stride, kRows);
      for (const int valid : {0, 1, kRows / 2 + 3, kRows}) check_rows<S, kRows, false>(from, stride, valid);
    }
}

// Every page but each row's own is inaccessible, and the row lies at an end of its page.
template <class S>
void check_bounds() {
  constexpr int kRows = 8;
  Pages pages(2 * kRows);
  for (int row = 0; row < kRows; ++row) REQUIRE(mprotect(pages.begin() + (2 * row + 1) * kPage, kPage, PROT_NONE) == 0);
  for (int room = 0; room < 32; room += 2)
    for (const int at : {room, kPage - S::kRowBytes - room}) {
      check_rows<S, kRows, true>(pages.begin() + at, 2 * kPage, kRows);
      check_rows<S, kRows, false>(pages.begin() + at, 2 * kPage, kRows - 1);
    }
  // The last valid row ends the accessible memory.
  for (int room = 0; room < 32; room += 2)
    check_rows<S, kRows, false>(pages.begin() + 2 * (kRows - 1) * kPage + room, 2 * kPage, 1);
}

// A lane read of every size at every address must return the bytes at that address.
template <int kUnit, int kBytes>
void check_window() {
  constexpr int kPlaces = 64, kAll = kPlaces + 3 * 16;
  std::vector<kv::u8> bytes(kAll);
  test::Rng rng(kBytes);
  for (kv::u8& byte : bytes) byte = kv::u8(rng.bits());
  int wrong = 0;
  const auto ran = run_grid(
      [&] {
        for (int i = kv::lane(); i < kAll; i += 32) kv::store_shared_u8(kv::SharedAddress(i), bytes[std::size_t(i)]);
        kv::sync_warp();
        for (int place = kv::lane(); place + kBytes <= kPlaces; place += 32) {
          kv::u32 words[(kBytes + 3) / 4];
          kv::load_unaligned<kUnit, kBytes>(0, kv::u32(place), words);
          for (int i = 0; i < kBytes; ++i)
            wrong += (words[i / 4] >> 8 * (i % 4) & 0xff) != bytes[std::size_t(place + i)];
        }
      },
      {}, 32, kAll);
  REQUIRE_MESSAGE(ran, ran.error().message);
  CAPTURE(kUnit);
  CAPTURE(kBytes);
  CHECK(wrong == 0);
}

template <int kUnit>
void check_windows() {
  check_window<kUnit, 1>();
  check_window<kUnit, 3>();
  check_window<kUnit, 4>();
  check_window<kUnit, 6>();
  check_window<kUnit, 8>();
  check_window<kUnit, 12>();
  check_window<kUnit, 13>();
  check_window<kUnit, 16>();
  check_window<kUnit, 24>();
}

}  // namespace

TEST_CASE("rows copied by chunks arrive whole, wherever they begin, and the rest is zeros") {
  check_everywhere<Side<66, 0, true>, 32>();
  check_everywhere<Side<66, 32, false>, 16>();
  check_everywhere<Side<66, 0, true, 16>, 32>();
  check_everywhere<Side<66, 16, false, 16>, 16>();
  check_everywhere<Side<18, 0, true>, 32>();
  check_everywhere<Side<34, 0, false>, 16>();  // three chunks
  check_everywhere<Side<72, 0, true>, 32>();   // five or six chunks, by alignment
  check_everywhere<Side<136, 32, true>, 16>();
  check_everywhere<Side<260, 0, false>, 16>();
  check_everywhere<Side<1040 + 8, 0, true>, 16>();  // more than one chunk a lane
}

TEST_CASE("no chunk is read that does not hold a byte of its row") {
  check_bounds<Side<66, 0, true>>();
  check_bounds<Side<66, 0, true, 16>>();
  check_bounds<Side<72, 0, false>>();
  check_bounds<Side<136, 0, false>>();
  check_bounds<Side<34, 32, true>>();
  check_bounds<Side<1048, 0, false>>();
}

TEST_CASE("unaligned loads: the bytes of a lane read from any place") {
  check_windows<4>();
  check_windows<8>();
  check_windows<16>();
}

TEST_CASE("rows in even-odd order: a slot each, the same for every eight") {
  std::vector<int> seen(32);
  for (int row = 0; row < 32; ++row) {
    ++seen[std::size_t(kv::slot_of<true>(row))];
    CHECK(kv::slot_of<true>(row) / 8 == row / 8);
    CHECK(kv::slot_of<false>(row) == row);
  }
  CHECK(std::count(seen.begin(), seen.end(), 1) == 32);
}

}  // namespace kvjit
