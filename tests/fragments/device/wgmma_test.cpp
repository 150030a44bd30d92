// templates/device/wgmma.cuh: products of warpgroups, of bfloats and of bytes (E4M3), as the CPU back-end computes
// them.
// SPDX-License-Identifier: MIT
#include "device/wgmma.cuh"

#include <doctest/doctest.h>

#include <cmath>

#include "generator/base/minifloat.hpp"
#include "kernels/codec/wgmma_rotation.cuh"
#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

void on_one_warp(const std::function<void()>& body, std::size_t shared_bytes) {
  const auto ran = run_grid(body, {}, 32, shared_bytes);
  INFO((ran ? std::string() : ran.error().message));
  CHECK(ran.has_value());
}

// Small integers, which every operand type holds exactly.
float row_value(int row, int k) { return float((row * 7 + k * 3) % 11 - 5); }
float column_value(int k, int n) { return float((k * 5 + n * 13) % 9 - 4); }

// Checks that d of the first warp is `times` the product.
void check_sums(const float (&d)[64], float times) {
  const int g = kv::lane() >> 2, c = kv::lane() & 3;
  for (int i = 0; i < 64; ++i) {
    float want = 0;
    for (int k = 0; k < 128; ++k) want += row_value(g + i % 4 / 2 * 8, k) * column_value(k, i / 4 * 8 + 2 * c + i % 2);
    CHECK(d[i] == times * want);
  }
}

}  // namespace

TEST_CASE("rows of bfloats where they are staged, times an operand of bfloats") {
  constexpr int kRowsAt = kv::kOperandBytes;
  on_one_warp(
      [] {
        for (int i = kv::lane(); i < 128 * 128; i += 32) {
          const int k = i % 128, n = i / 128;
          kv::store_shared_u16(kv::operand_place(n, k), kv::bf16_from_f32(column_value(k, n)));
          if (n < 16)
            kv::store_shared_u16(kRowsAt + kv::row_operand_place(n, k / 8) + k % 8 * 2,
                                 kv::bf16_from_f32(row_value(n, k)));
        }
        kv::sync_warp();
        float d[64];
        kv::wgmma_64x128x16<false>(d, kv::BfloatRows{kRowsAt}, 0, 0);
        for (int step = 1; step < 8; ++step) kv::wgmma_64x128x16<true>(d, kv::BfloatRows{kRowsAt}, 0, step);
        kv::wgmma_commit();
        kv::wgmma_end(d);
        check_sums(d, 1);
      },
      kRowsAt + kv::kRowOperandBytes);
}

TEST_CASE("fragments of halves as bytes, times an operand of bytes") {
  on_one_warp(
      [] {
        const int g = kv::lane() >> 2, c = kv::lane() & 3;
        for (int i = kv::lane(); i < 128 * 64; i += 32) {
          const int k = i % 64 * 2, n = i / 64;
          const kv::u32 pair = kv::pack_f16x2(column_value(k, n), column_value(k + 1, n));
          kv::store_shared_u16(kv::byte_operand_place(n, kv::byte_of(k)), kv::u16(kv::e4m3x4_from_f16x4(pair, 0)));
        }
        kv::sync_warp();
        kv::u32 halves[8][1][4], bytes[4][4];
        for (int i = 0; i < 32; ++i) {
          const int row = g + i % 2 * 8, k = i / 4 * 16 + 2 * c + i % 4 / 2 * 8;
          halves[i / 4][0][i % 4] = kv::pack_f16x2(row_value(row, k), row_value(row, k + 1));
        }
        kv::byte_fragments(bytes, halves);
        float d[64];
        kv::wgmma_64x128x32_e4m3<false>(d, bytes[0], 0, 0);
        for (int i = 1; i < 8; ++i) kv::wgmma_64x128x32_e4m3<true>(d, bytes[i % 4], 0, i % 4);
        kv::wgmma_commit();
        kv::wgmma_end(d);
        check_sums(d, 2);
        d[0] = 1 + 0x1p-13f, d[1] = 1 + 0x1p-14f;
        const kv::u32 zeros[4] = {};
        kv::wgmma_64x128x32_e4m3<true>(d, zeros, 0, 0);
        kv::wgmma_commit();
        kv::wgmma_end(d);
        CHECK(d[0] == 1 + 0x1p-13f);
        CHECK(d[1] == 1);  // a device keeps 14 bits of such sums and truncates
      },
      kv::kByteOperandBytes);
}

TEST_CASE("all 65,536 halves become the E4M3 that the codec says") {
  int wrong = 0;
  for (unsigned h = 0; h < 65536; ++h) {
    const float f = float_from_f16(std::uint16_t(h));
    if (std::isnan(f)) continue;
    const kv::u32 four = kv::e4m3x4_from_f16x4(h | h << 16, h);
    for (const int byte : {0, 1, 2}) wrong += (four >> 8 * byte & 0xff) != e4m3_from_float(f);
    wrong += four >> 24 != 0;
  }
  CHECK(wrong == 0);
}

}  // namespace kvjit
