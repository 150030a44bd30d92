// Codes of vectors of the lattice E8, as readers see them. Eight neighbouring values share two bytes: a root, which is
// one of the 240 shortest vectors of E8; an axis with a sign; and a radius, one of sixteen numbers of the format. The
// values are the integers round((4 root + axis) * radius). generator/formats/e8.hpp says what each bit means.
//
// The code of a value is both bytes, and above them the place of the value among the eight. Data has what
// formats/codes.cuh asks of every kind, kAt (the place of the bytes in the block), radius(i) and bound(i).
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/codes.cuh"

namespace kv {

inline constexpr int kVectorDim = 8, kVectorRadii = 16, kPairRoots = 112, kRoots = 240;

// VectorField is the bytes of a block's vectors, from byte kAt_ on.
template <int kAt_>
struct VectorField {
  static constexpr int kAt = kAt_;
  KV_DEVICE static u32 load(const u8* block, int k) {
    return load_bytes<2>(block + kAt + k / kVectorDim * 2) | u32(k % kVectorDim) << 16;
  }
};

// Returns the number of a pair of places a < b, in lexical order.
KV_DEVICE u32 pair_number(u32 a, u32 b) { return a * (15 - a) / 2 + b - a - 1; }

// Returns four times entry i of a root: 0, +-2 or +-4. A code that is no root has entries of 0.
KV_DEVICE int root_entry(u32 root, int i) {
  if (root >= kRoots) return 0;
  if (root >= kPairRoots) {
    const u32 signs = root - kPairRoots;  // of seven entries; an even number of all eight is negative
    return (i < 7 ? signs >> i & 1u : count_bits(signs) & 1u) ? 2 : -2;
  }
  u32 a = 0;
  while (a < 6 && pair_number(a + 1, a + 2) <= root / 4) ++a;
  const u32 b = root / 4 - pair_number(a, a + 1) + a + 1;
  if (u32(i) == a) return root & 2u ? 4 : -4;
  return u32(i) == b ? root & 1u ? 4 : -4 : 0;
}

template <class Data>
struct VectorCodes : Data {
  static constexpr bool kIsTable = false, kIsWide = false, kIsVector = true;
  KV_DEVICE static float value(u32 code) {
    constexpr float kWholes = 12582912.f;  // 1.5 * 2^23: a sum with it has no bits below 1
    const int i = int(code >> 16), axis = int(code >> 8 & 15u);
    const int whole = root_entry(code & 255u, i) + (axis / 2 != i ? 0 : axis % 2 ? -1 : 1);
    return add_rn(add_rn(mul_rn(float(whole), Data::radius(code >> 12 & 15u)), kWholes), -kWholes);
  }
};

}  // namespace kv
