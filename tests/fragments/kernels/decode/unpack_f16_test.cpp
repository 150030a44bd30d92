// templates/kernels/decode/unpack_f16.cuh: 4-bit codes become half2 words through a table in shared memory, along a row
// (K) and down a column of two rows (V).
// SPDX-License-Identifier: MIT
#include "kernels/decode/unpack_f16.cuh"

#include <doctest/doctest.h>

#include <random>

#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

// A table whose entries encode their codes: the half of code c is 0x3c00 + c. K indexes the table with stored bytes, V
// with 4-bit code lanes.
template <int kSlots>
struct SectionOf {
  static constexpr int kBits = 4, kReadWords = 2, kReadCodes = 16, kUnpackedCodes = 16, kCodeLaneBits = kSlots,
                       kTableAt = 128, kTableStride = 128;
  static kv::u32 half_value(int code) { return 0x3c00u + kv::u32(code); }
  static void unpack(const kv::u32 (&w)[2], kv::u32* y) { y[0] = w[0], y[1] = w[1]; }
  using Pairs = kv::TablePairs<SectionOf>;
};
using Section = SectionOf<0>;
kv::u32 pair_of(kv::u32 low, kv::u32 high) {
  return Section::half_value(int(low)) | Section::half_value(int(high)) << 16;
}
kv::u32 nibble(kv::u32 word, int i) { return word >> 4 * i & 15; }

TEST_CASE("bytes of two codes index pairs: of neighbours along a row, of two rows down a column") {
  int wrong = 0;
  const auto body = [&] {
    if (kv::lane() == 0)
      for (int i = 0; i < 256; ++i)
        for (int copy = 0; copy < 32; ++copy)
          kv::store_shared_u32(Section::kTableAt + kv::u32(i) * Section::kTableStride + kv::u32(copy) * 4,
                               kv::TablePairs<Section>::entry(i, 0));
    kv::sync_warp();
    std::mt19937 random(unsigned(kv::lane()));
    for (int round = 0; round < 100; ++round) {
      const kv::u32 a[2] = {kv::u32(random()), kv::u32(random())}, b[2] = {kv::u32(random()), kv::u32(random())};
      kv::u32 row[8], column[16];
      kv::ByteRead<Section>::row(a, row, kv::table_of_lane<32>());
      kv::CodeLaneRead<SectionOf<4>>::column(a, b, column, kv::table_of_lane<32>());
      for (int word = 0; word < 2; ++word)
        for (int j = 0; j < 4; ++j) {
          wrong += row[4 * word + j] != pair_of(nibble(a[word], 2 * j), nibble(a[word], 2 * j + 1));
          for (int half = 0; half < 2; ++half)  // first all low nibbles of a word, then all high ones
            wrong += column[8 * word + 4 * half + j] !=
                     pair_of(nibble(a[word], 2 * j + half), nibble(b[word], 2 * j + half));
        }
    }
  };
  const auto ran = run_grid(body, {}, 32, 128 + 256 * 128);
  INFO((ran ? std::string() : ran.error().message));
  CHECK(ran.has_value());
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace kvjit
