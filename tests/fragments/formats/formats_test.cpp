// templates/formats: small floats over all their bits and for many floats, fields of codes at every width and offset,
// reductions over groups, and the rounding of uniform codes. Each is compared with its definition in the generator or
// with a definition in this file.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "formats/codes.cuh"
#include "formats/groups.cuh"
#include "formats/minifloat_bias15.cuh"
#include "formats/rare/vectors.cuh"
#include "formats/trellis.cuh"
#include "generator/base/minifloat.hpp"
#include "generator/formats/e8.hpp"
#include "generator/formats/format.hpp"
#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

// Returns floats on which a rounding may fail: random bits, and the neighbours of every value of the type and of every
// midpoint between two values.
template <class Decode>
std::vector<float> interesting_floats(const Decode& decode) {
  std::vector<float> all = {0.f, -0.f, INFINITY, -INFINITY, 448.f, 464.f, 61439.f, 61440.f, 1e-45f};
  std::mt19937 random(7);
  for (int i = 0; i < 1'000'000; ++i) {
    const float f = kv::float_of(random());
    if (!std::isnan(f)) all.push_back(f);
  }
  for (int b = 0; b < 255; ++b) {
    const float here = decode(std::uint8_t(b)), middle = (here + decode(std::uint8_t(b + 1))) / 2;
    for (const float v : {here, middle})
      for (const float f : {v, std::nextafter(v, INFINITY), std::nextafter(v, -INFINITY)})
        if (std::isfinite(f)) all.push_back(f);
  }
  return all;
}

template <class Number, class Decode, class Encode>
void check_number(const Decode& decode, const Encode& encode) {
  int wrong = 0;
  for (unsigned b = 0; b < 256; ++b) {
    const float mine = Number::decode(b), codec = decode(std::uint8_t(b));
    wrong += std::memcmp(&mine, &codec, 4) != 0 && !(std::isnan(mine) && std::isnan(codec));
  }
  CHECK(wrong == 0);
  for (const float f : interesting_floats(decode)) wrong += Number::encode(f) != encode(f);
  CHECK(wrong == 0);
  for (const float f : {NAN, -NAN}) CHECK(Number::encode(f) == encode(f));
}

}  // namespace

TEST_CASE("8-bit floats convert as the codec says, both ways") {
  check_number<kv::E4m3>(float_from_e4m3, e4m3_from_float);
  check_number<kv::E5m2>(float_from_e5m2, e5m2_from_float);
  check_number<kv::E4m3b15>(float_from_e4m3b15, e4m3b15_from_float);
  check_number<kv::Ue4m3>(float_from_ue4m3, ue4m3_from_float);
}

TEST_CASE("E8M0 is the power of two at or below") {
  for (unsigned b = 0; b < 255; ++b) {
    CHECK(kv::E8m0::decode(b) == float_from_e8m0(std::uint8_t(b)));
    CHECK(kv::E8m0::encode(kv::E8m0::decode(b)) == b);
    if (b > 0 && b < 254) CHECK(kv::E8m0::encode(1.75f * kv::E8m0::decode(b)) == b);
  }
  for (const float f : {0.f, -1.f, -INFINITY, NAN}) CHECK(kv::E8m0::encode(f) == 0);
  CHECK(kv::E8m0::encode(INFINITY) == 255);
  CHECK(kv::E8m0::decode(255) == INFINITY);
}

namespace {

// Writes codes with `packed` in units of kUnit bytes and reads them back with `load`.
template <int kBits, int kLow, int kSplit, int kUnit>
void check_field() {
  constexpr int kCount = 96, kAt = 3, kBytes = kCount * kBits / 8;
  using Field = kv::CodeField<kAt, kBits, kLow, kSplit>;
  std::mt19937 random(kBits * 8 + kLow);
  std::vector<kv::u8> codes(kCount + 2), block(kAt + kBytes), by_bit(kAt + kBytes);
  for (kv::u8& code : codes) code = kv::u8(random());
  const kv::u32 mask = (1u << kBits) - 1;
  for (int j = 0; j < kBytes; j += kUnit) {
    const kv::u32 unit = Field::template packed<kUnit>(codes.data(), j);
    for (int i = 0; i < kUnit; ++i) block[std::size_t(kAt + j + i)] = kv::u8(unit >> 8 * i);
  }
  for (int k = 0; k < kCount; ++k) {
    const kv::u32 part = codes[std::size_t(k)] >> kLow & mask;
    for (int bit = 0; bit < kBits; ++bit) {
      const int at = Field::bit_of(k) + bit;
      by_bit[std::size_t(kAt + at / 8)] |= kv::u8((part >> bit & 1) << at % 8);
    }
    CHECK(Field::load(block.data(), k) == part << kLow);
  }
  CHECK(block == by_bit);
}

// Writes and reads back codes in nibbles. The generator defines where their bits lie.
template <int kGroups, int kUnit>
void check_nibbles() {
  constexpr int kCount = 32 * kGroups, kAt = 2, kBytes = 12 * kGroups;
  using Coded = kv::NibbleField<kAt, kGroups>;
  Field field;
  field.bits = 3, field.is_nibbles = true, field.bytes = kBytes;
  std::mt19937 random(kGroups);
  std::vector<kv::u8> codes(kCount), block(kAt + kBytes), by_bit(kAt + kBytes);
  for (kv::u8& code : codes) code = kv::u8(random());
  for (int j = 0; j < kBytes; j += kUnit) {
    const kv::u32 unit = Coded::template packed<kUnit>(codes.data(), j);
    for (int i = 0; i < kUnit; ++i) block[std::size_t(kAt + j + i)] = kv::u8(unit >> 8 * i);
  }
  for (int k = 0; k < kCount; ++k) {
    const kv::u32 code = codes[std::size_t(k)] & 7u;
    for (int bit = 0; bit < 3; ++bit) {
      const int at = field.bit_of(k, bit);
      by_bit[std::size_t(kAt + at / 8)] |= kv::u8((code >> bit & 1) << at % 8);
    }
    CHECK(Coded::load(block.data(), k) == code);
  }
  CHECK(block == by_bit);
}

template <int kBits>
void check_widths() {
  check_field<kBits, 0, 0, 1>();
  check_field<kBits, 0, 0, 2>();
  if constexpr (kBits < 8) check_field<kBits, 8 - kBits, 0, 1>();
  if constexpr (32 % kBits == 0) check_field<kBits, 0, 0, 4>();
}

}  // namespace

TEST_CASE("fields of 1 to 8 bits, any part of a code, streams and split nibbles") {
  check_widths<1>();
  check_widths<2>();
  check_widths<3>();
  check_widths<4>();
  check_widths<5>();
  check_widths<6>();
  check_widths<7>();
  check_widths<8>();
  check_nibbles<1, 1>();
  check_nibbles<2, 2>();
  check_nibbles<4, 2>();
  check_nibbles<4, 4>();
  check_field<4, 0, 16, 1>();
  check_field<4, 2, 8, 2>();
  check_field<4, 0, 16, 4>();
}

namespace {

template <int kGroup>
void check_groups() {
  constexpr int kPerLane = 4, kRow = 128;
  std::mt19937 random(kGroup);
  std::vector<float> x(kRow);
  for (float& v : x) v = float(int(random() % 7)) - 3;  // few different values, so that there are ties
  struct Seen {
    float sum, in_order, largest, best, first;
  };
  std::vector<Seen> seen(kRow);
  const auto ran = run_grid(
      [&] {
        float sum[kPerLane], in_order[kPerLane], most[kPerLane], best[kPerLane], first[kPerLane];
        for (int e = 0; e < kPerLane; ++e)
          sum[e] = in_order[e] = most[e] = best[e] = first[e] = x[std::size_t(e * 32 + kv::lane())];
        kv::sum_over_groups<kGroup>(sum);
        kv::sum_groups_in_order<kGroup>(in_order);
        kv::largest_of_groups<kGroup>(most);
        kv::best_of_groups<kGroup>(best, 0.f, [](float a, float b) { return std::fabs(a) > std::fabs(b); });
        kv::first_of_groups<kGroup>(first);
        for (int e = 0; e < kPerLane; ++e)
          seen[std::size_t(e * 32 + kv::lane())] = {sum[e], in_order[e], most[e], best[e], first[e]};
      },
      {}, 32, 0);
  REQUIRE(ran);
  for (int i = 0; i < kRow; ++i) {
    const int from = i / kGroup * kGroup;
    float sum = 0, most = -INFINITY, best = 0;
    for (int j = from; j < from + kGroup; ++j) {
      const float v = x[std::size_t(j)];
      sum += v;
      most = std::max(most, v);
      if (std::fabs(v) > std::fabs(best)) best = v;
    }
    const Seen& mine = seen[std::size_t(i)];
    CHECK(mine.sum == sum);
    CHECK(mine.in_order == sum);
    CHECK(mine.largest == most);
    CHECK(mine.best == best);
    CHECK(mine.first == x[std::size_t(from)]);
  }
}

struct Nibbles {
  static constexpr int kOffset = 8, kLeast = 0, kMost = 15;
};
struct SignedNibbles {
  static constexpr int kOffset = 8, kLeast = 1, kMost = 15;
};

}  // namespace

TEST_CASE("sums, maxima and the first of the best over groups of 16 to 128 values") {
  check_groups<16>();
  check_groups<32>();
  check_groups<64>();
  check_groups<128>();
}

TEST_CASE("uniform codes round and clamp as their definitions say") {
  for (int i = -4000; i <= 4000; ++i) {
    const float v = float(i) / 256;
    const float up = std::trunc(v + 8.5f), away = std::round(v) + 8;
    CHECK(kv::HalfUp::code<Nibbles>(v) == kv::u32(std::min(std::max(up, 0.f), 15.f)));
    CHECK(kv::HalfAway::code<SignedNibbles>(v) == kv::u32(std::min(std::max(away, 1.f), 15.f)));
  }
  for (const float v : {NAN, -INFINITY, -1e30f}) {
    CHECK(kv::HalfUp::code<Nibbles>(v) == 0);
    CHECK(kv::HalfAway::code<SignedNibbles>(v) == 1);
  }
  for (const float v : {INFINITY, 1e30f}) {
    CHECK(kv::HalfUp::code<Nibbles>(v) == 15);
    CHECK(kv::HalfAway::code<SignedNibbles>(v) == 15);
  }
}

struct Vectors {
  KV_DEVICE static float radius(kv::u32 i) { return 0.3f * float(i); }
};

TEST_CASE("vectors of E8 have the values of the codec, for every code") {
  std::vector<double> radii;
  for (kv::u32 i = 0; i < 16; ++i) radii.push_back(Vectors::radius(i));
  int wrong = 0;
  for (kv::u32 code = 0; code < 0x10000u; ++code)
    for (int i = 0; i < 8; ++i)
      wrong += kv::VectorCodes<Vectors>::value(code | kv::u32(i) << 16) != float(e8_value(code, i, radii));
  CHECK(wrong == 0);
}

}  // namespace kvjit
