// templates/device/simt.cuh on the CPU back-end: each collective and each conversion against its definition.
// SPDX-License-Identifier: MIT
#include "device/simt.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "generator/base/minifloat.hpp"
#include "generator/formats/reference_codec.hpp"
#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

void on_one_warp(const std::function<void()>& body, std::size_t shared_bytes = 0) {
  const auto ran = run_grid(body, {}, 32, shared_bytes);
  INFO((ran ? std::string() : ran.error().message));
  CHECK(ran.has_value());
}

}  // namespace

TEST_CASE("all 65,536 halves convert as the codec says, both ways") {
  int wrong = 0;
  for (unsigned h = 0; h < 65536; ++h) {
    const float mine = kv::f32_from_f16(h), codec = float_from_f16(std::uint16_t(h));
    wrong += std::memcmp(&mine, &codec, 4) != 0 && !(std::isnan(mine) && std::isnan(codec));
    if (!std::isnan(mine)) wrong += kv::f16_from_f32(mine) != h;
  }
  CHECK(wrong == 0);
}

TEST_CASE("floats round to halves and bfloats to nearest even") {
  std::mt19937 random(3);
  int wrong = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const float f = kv::float_of(random());
    if (std::isnan(f)) continue;
    wrong += kv::f16_from_f32(f) != f16_from_float(f);
    wrong += kv::bf16_from_f32(f) != bf16_from_float(f);
  }
  CHECK(wrong == 0);
  CHECK(kv::f16_from_f32(65519.99f) == 0x7bff);
  CHECK(kv::f16_from_f32(65520.f) == 0x7c00);
  CHECK(kv::f16_from_f32(1.5f * 0x1p-24f) == 0x0002);
}

TEST_CASE("permute picks bytes, shift_right crosses words") {
  CHECK(kv::permute(0x33221100u, 0x77665544u, 0x5140) == 0x55114400u);
  CHECK(kv::permute(0x33221100u, 0x77665544u, 0x7632) == 0x77663322u);
  CHECK(kv::shift_right(0x89abcdefu, 0x01234567u, 4) == 0x789abcdeu);
  CHECK(kv::shift_right(0x89abcdefu, 0x01234567u, 0) == 0x89abcdefu);
}

TEST_CASE("select_bytes and select_signs, of any words") {
  std::mt19937 random(9);
  const auto byte = [](kv::u32 a, kv::u32 b, kv::u32 i) { return (i < 4 ? a >> 8 * i : b >> 8 * (i - 4)) & 0xff; };
  for (int n = 0; n < 20'000; ++n) {
    const kv::u32 a = random(), b = random(), low = random() & 0x7777u, rest = random() << 16;
    kv::u32 bytes = 0, signs = 0;
    for (int i = 0; i < 4; ++i) {
      const kv::u32 from = byte(a, b, low >> 4 * i & 7);
      bytes |= from << 8 * i;
      signs |= (from >= 0x80 ? 0xffu : 0u) << 8 * i;
    }
    REQUIRE(kv::select_bytes(a, b, low | rest) == bytes);  // only the lower four nibbles are read
    REQUIRE(kv::select_signs(a, b, low | 0x8888u | rest) == signs);
  }
}

TEST_CASE("dot_bytes of unsigned bytes, from a sum on") {
  CHECK(kv::dot_bytes(0xff020304u, 0x01050607u, 1000u) == 1000u + 255 + 10 + 18 + 28);
  CHECK(kv::dot_bytes(0xffffffffu, 0x00ff0000u, 0u) == 255u * 255);
}

TEST_CASE("select_bits, larger magnitudes of pairs of halves, four bytes to halves") {
  std::mt19937 random(10);
  int wrong = 0;
  for (int i = 0; i < 100'000; ++i) {
    const kv::u32 mask = random(), a = random(), b = random();
    for (int bit = 0; bit < 32; ++bit)
      wrong += (kv::select_bits(mask, a, b) >> bit & 1) != ((mask >> bit & 1 ? a : b) >> bit & 1);
    kv::u32 four[2];
    kv::f16x4_from_e4m3x4(four, a);
    const kv::u32 larger = kv::larger_f16x2(a, b);
    for (int half = 0; half < 2; ++half) {
      const auto magnitude = [&](kv::u32 pair) { return std::fabs(kv::f32_from_f16(pair >> 16 * half & 0xffff)); };
      if (!std::isnan(magnitude(a)) && !std::isnan(magnitude(b)))
        wrong += magnitude(larger) != std::max(magnitude(a), magnitude(b));
    }
    for (int byte = 0; byte < 4; ++byte) {
      const float mine = kv::f32_from_f16(four[byte / 2] >> 16 * (byte % 2) & 0xffff),
                  codec = float_from_e4m3(std::uint8_t(a >> 8 * byte));
      wrong += mine != codec && !(std::isnan(mine) && std::isnan(codec));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("round_to_int goes to the nearest, ties to even") {
  for (int n = -32768; n < 32768; ++n) {
    REQUIRE(kv::round_to_int(float(n)) == n);
    REQUIRE(kv::round_to_int(float(n) + 0.5f) == (n % 2 == 0 ? n : n + 1));
    REQUIRE(kv::round_to_int(float(n) + 0.25f) == n);
    REQUIRE(kv::round_to_int(float(n) + 0.75f) == n + 1);
  }
  CHECK(kv::round_to_int(-0.0f) == 0);
  CHECK(kv::round_to_int(16777217.f * 100) == 1677721600);
}

TEST_CASE("shuffles, votes and ballots") {
  on_one_warp([] {
    const int lane = kv::lane();
    CHECK(kv::shfl(kv::u32(lane * 3), 7) == 21u);
    for (int mask = 1; mask < 32; mask <<= 1) CHECK(kv::shfl_xor(float(lane), mask) == float(lane ^ mask));
    CHECK(kv::ballot(lane % 3 == 0) == 0x49249249u);
    CHECK(kv::any(lane == 31));
    CHECK_FALSE(kv::any(lane == 32));
  });
}

TEST_CASE("mma_16x8x16 multiplies in the register layout of the PTX manual") {
  int a[16][16], b[16][8];
  std::mt19937 random(5);
  for (auto& row : a)
    for (int& v : row) v = int(random() % 9) - 4;
  for (auto& row : b)
    for (int& v : row) v = int(random() % 9) - 4;
  const auto pair = [](int lo, int hi) { return kv::pack_f16x2(float(lo), float(hi)); };
  on_one_warp([&] {
    const int g = kv::lane() >> 2, c = kv::lane() & 3;
    kv::u32 ra[4], rb[2];
    for (int i = 0; i < 4; ++i) {
      const int row = g + 8 * (i & 1), column = 2 * c + 8 * (i >> 1);
      ra[i] = pair(a[row][column], a[row][column + 1]);
    }
    for (int i = 0; i < 2; ++i) rb[i] = pair(b[2 * c + 8 * i][g], b[2 * c + 8 * i + 1][g]);
    float d[4] = {1.f, 2.f, 3.f, 4.f};
    kv::mma_16x8x16(d, ra[0], ra[1], ra[2], ra[3], rb[0], rb[1]);
    for (int i = 0; i < 4; ++i) {
      int want = i + 1;
      for (int k = 0; k < 16; ++k) want += a[g + 8 * (i >> 1)][k] * b[k][2 * c + (i & 1)];
      CHECK(d[i] == float(want));
    }
  });
}

namespace {

// Operands are random bytes from -128 (or 0) to 127 (or 255), with the extremes.
template <bool kIsUnsigned>
void check_integer_products() {
  int a[16][32], b[32][8];
  std::mt19937 random(6 + kIsUnsigned);
  const auto any = [&](int least, int most) {
    const unsigned r = random();
    return r % 8 == 0 ? least : r % 8 == 1 ? most : least + int(r / 8 % unsigned(most - least + 1));
  };
  for (auto& row : a)
    for (int& v : row) v = kIsUnsigned ? any(0, 255) : any(-128, 127);
  for (auto& row : b)
    for (int& v : row) v = any(-128, 127);
  on_one_warp([&] {
    const int g = kv::lane() >> 2, c = kv::lane() & 3;
    kv::u32 ra[4] = {}, rb[2] = {};
    for (int k = 0; k < 4; ++k) {
      for (int i = 0; i < 4; ++i) ra[i] |= kv::u32(a[g + 8 * (i & 1)][16 * (i >> 1) + 4 * c + k] & 0xff) << 8 * k;
      for (int i = 0; i < 2; ++i) rb[i] |= kv::u32(b[16 * i + 4 * c + k][g] & 0xff) << 8 * k;
    }
    int d[4] = {1, -2, 3000000, -4};
    const int before[4] = {d[0], d[1], d[2], d[3]};
    kv::mma_16x8x32<kIsUnsigned>(d, ra[0], ra[1], ra[2], ra[3], rb[0], rb[1]);
    for (int i = 0; i < 4; ++i) {
      int want = before[i];
      for (int k = 0; k < 32; ++k) want += a[g + 8 * (i >> 1)][k] * b[k][2 * c + (i & 1)];
      CHECK(d[i] == want);
    }
  });
}

}  // namespace

TEST_CASE("mma_16x8x32 multiplies signed bytes by signed ones, and unsigned by signed") {
  check_integer_products<false>();
  check_integer_products<true>();
}

TEST_CASE("arrivals are counted one by one") {
  kv::u32 counter = 3, before[64] = {};
  REQUIRE(
      run_grid([&] { before[kv::block_x() * 32 + kv::lane()] = kv::count_arrival(&counter); }, {2, 1, 1}, 32, 0, 5));
  CHECK(counter == 67);
  std::sort(before, before + 64);
  for (kv::u32 i = 0; i < 64; ++i) CHECK(before[i] == 3 + i);
}

TEST_CASE("arrivals of warps are counted one by one, and all lanes are told") {
  kv::u32 counter = 3;
  std::array<std::array<kv::u32, 32>, 4> before = {};
  const auto count = [&] {
    before[std::size_t(kv::block_x() * 2 + kv::warp())][std::size_t(kv::lane())] = kv::count_warp_arrival(&counter);
  };
  REQUIRE(run_grid(count, {2, 1, 1}, 64, 0, 5));
  CHECK(counter == 7);
  std::sort(before.begin(), before.end());
  for (kv::u32 i = 0; i < 4; ++i)
    for (const kv::u32 n : before[i]) CHECK(n == 3 + i);
}

TEST_CASE("a broken promise ends the launch and names its line, block and lane") {
  int line = 0, blocks_after = 0;
  const auto ran = run_grid(
      [&] {
        line = __LINE__ + 1;
        kv::device_assert(kv::block_x() < 1 || kv::lane() != 5);
        if (kv::block_x() > 1) ++blocks_after;
      },
      {3, 1, 1}, 32, 0);
  REQUIRE_FALSE(ran);
  CHECK(ran.error().code == Code::internal);
  INFO(ran.error().message);
  CHECK(ran.error().message.find("simt_test.cpp:" + std::to_string(line) + ": ") != std::string::npos);
  CHECK(ran.error().message.find("block (1, 0, 0), lane 5") != std::string::npos);
  CHECK(blocks_after == 0);
  CHECK(run_grid([] { kv::device_assert(true); }, {}, 32, 0));  // the failure does not affect the next launch
}

TEST_CASE("what a warp agrees on is said by all its lanes, and divides no warp") {
  CHECK(run_grid([] { CHECK(kv::warp_uniform(kv::warp() == 1) == (kv::warp() == 1)); }, {}, 64, 0));
  REQUIRE_FALSE(run_grid([] { kv::warp_uniform(kv::lane() < 31); }, {}, 32, 0));
}

TEST_CASE("lanes that leave out what the others of their warp agree on are named, the last time too") {
  for (const int absent : {0, 17, 31})  // the first lane to run, one between, the last
    for (const int turns : {1, 3}) {
      int line = 0;
      const auto ran = run_grid(
          [&] {
            line = __LINE__ + 1;
            for (int i = 0; i < turns - (kv::warp() == 1 && kv::lane() == absent); ++i) kv::warp_uniform(true);
          },
          {}, 64, 0);
      REQUIRE_FALSE(ran);
      INFO(ran.error().message);
      CHECK(ran.error().message.find("simt_test.cpp:" + std::to_string(line) + ": left out: ") != std::string::npos);
      CHECK(ran.error().message.find("block (0, 0, 0), lane " + std::to_string(32 + absent)) != std::string::npos);
    }
  CHECK(run_grid(
      [] {
        for (int i = 0; i < kv::warp(); ++i) kv::warp_uniform(true);
      },
      {}, 64, 0));  // warps may make different numbers of calls
}

TEST_CASE("transpose_8x8 transposes") {
  on_one_warp([] {
    const kv::u32 g = kv::lane() >> 2, c = kv::lane() & 3;
    const auto at = [](kv::u32 row, kv::u32 column) { return row * 8 + column; };
    const kv::u32 t = kv::transpose_8x8(at(g, 2 * c) | at(g, 2 * c + 1) << 16);
    CHECK(t == (at(2 * c, g) | at(2 * c + 1, g) << 16));
  });
}

TEST_CASE("a team of warps waits for itself alone, and learns of any vote") {
  int arrived[8] = {};
  const auto ran = run_grid(
      [&] {
        const int team = kv::warp() / 4;
        if (kv::lane() == 0) ++arrived[kv::warp()];
        kv::sync_team<4>();
        for (int warp = 4 * team; warp < 4 * team + 4; ++warp) CHECK(arrived[warp] == 1);
        CHECK(kv::any_of_team<4>(kv::thread() == 77) == (team == 0));
        CHECK_FALSE(kv::any_of_team<2>(false));
        if (team == 1) kv::sync_team<4>();  // the other team does not arrive
      },
      {}, 256, 0, 3);
  INFO((ran ? std::string() : ran.error().message));
  CHECK(ran.has_value());
}

TEST_CASE("load_matrices_transposed gives the second operand of mma_16x8x16") {
  const auto at = [](int matrix, int row, int column) { return kv::u32(matrix * 64 + row * 8 + column); };
  on_one_warp(
      [&] {
        const int g = kv::lane() >> 2, c = kv::lane() & 3;
        for (int i = kv::lane(); i < 4 * 64; i += 32) kv::store_shared_u16(kv::u32(i) * 2, kv::u32(i));
        kv::sync_warp();
        kv::u32 b[4];
        kv::load_matrices_transposed(b, kv::u32(kv::lane()) * 16);
        for (int m = 0; m < 4; ++m) CHECK(b[m] == (at(m, 2 * c, g) | at(m, 2 * c + 1, g) << 16));
      },
      4 * 128);
}

namespace {

// Compares a warp's rows of a warpgroup's product with products of the warp alone. b is read once by
// columns and once by rows.
template <int kColumns, bool kIsTransposed>
void check_warpgroup_columns() {
  on_one_warp(
      [] {
        const int g = kv::lane() >> 2, c = kv::lane() & 3;
        const auto a_of = [](int row, int k) { return float((row * 7 + k * 3) % 11 - 5); };
        const auto b_of = [](int k, int n) { return float((k * 5 + n * 13) % 9 - 4); };
        for (int i = kv::lane(); i < 16 * kColumns; i += 32) {
          const int k = i / kColumns, n = i % kColumns, row = kIsTransposed ? k % 8 : n % 8,
                    column = kIsTransposed ? n % 8 : k % 8;
          kv::store_shared_u16(kv::u32(n / 8 * 256 + k / 8 * 128 + row * 16 + column * 2),
                               kv::f16_from_f32(b_of(k, n)));
        }
        kv::sync_warp();
        kv::u32 a[4];
        for (int i = 0; i < 4; ++i) {
          const int row = g + i % 2 * 8, k = 2 * c + i / 2 * 8;
          a[i] = kv::pack_f16x2(a_of(row, k), a_of(row, k + 1));
        }
        float d[kColumns / 2];
        const auto sum = [&](int i) -> float& { return d[i]; };
        kv::wgmma_columns<kColumns, kIsTransposed>(sum, a[0], a[1], a[2], a[3], 0, false);
        kv::wgmma_columns<kColumns, kIsTransposed>(sum, a[0], a[1], a[2], a[3], 0, true);
        for (int i = 0; i < kColumns / 2; ++i) {
          float want = 0;
          for (int k = 0; k < 16; ++k) want += 2 * a_of(g + i % 4 / 2 * 8, k) * b_of(k, i / 4 * 8 + 2 * c + i % 2);
          CHECK(d[i] == want);
        }
      },
      16 * kColumns * 2);
}

}  // namespace

TEST_CASE("wgmma_columns multiplies columns as they lie in shared memory") {
  check_warpgroup_columns<16, false>();
  check_warpgroup_columns<32, true>();
  check_warpgroup_columns<64, false>();
  check_warpgroup_columns<64, true>();
}

TEST_CASE("asynchronous copies land when they are waited for, and not before") {
  alignas(16) kv::u8 from[32 * 16];
  for (int i = 0; i < 512; ++i) from[i] = kv::u8(i);
  on_one_warp(
      [&] {
        const kv::SharedAddress to = kv::SharedAddress(16 * kv::lane());
        kv::copy_async<16>(to, from + 16 * kv::lane(), 10);
        kv::copy_commit();
        kv::copy_commit();  // an empty group
        kv::copy_wait<2>();
        CHECK(kv::load_shared_u32(to) == 0xffffffffu);  // still poison
        kv::copy_wait<1>();
        CHECK(kv::load_shared_u8(to + 9) == kv::u32(kv::u8(16 * kv::lane() + 9)));
        CHECK(kv::load_shared_u8(to + 10) == 0u);  // past `valid`: zero-filled
        kv::copy_wait<0>();
      },
      512);
}

}  // namespace kvjit
