// Writes rows of vectors of the lattice E8 (formats/rare/vectors.cuh): a lane finds the code of eight values. Float32
// operations are those of the reference codec, in its order, because ties between roots and between axes are common.
// SPDX-License-Identifier: MIT
#pragma once
#include "formats/rare/vectors.cuh"
#include "formats/write_row.cuh"

namespace kv {

// Returns the root with the largest product with a vector of signs (bit i set: not negative) and magnitudes. A root of
// two entries takes the largest magnitudes; one of eight takes all, or all but twice the least if an odd number of them
// is negative.
KV_DEVICE u32 nearest_root(u32 signs, const float (&magnitude)[kVectorDim]) {
  float largest = magnitude[0], least = magnitude[0], sum = magnitude[0];
  u32 first = 0, least_at = 0;
  KV_UNROLL
  for (int i = 1; i < kVectorDim; ++i) {
    sum = add_rn(sum, magnitude[i]);
    if (magnitude[i] > largest) largest = magnitude[i], first = i;
    if (magnitude[i] < least) least = magnitude[i], least_at = i;
  }
  float second_largest = -1.f;
  u32 second = 0;
  KV_UNROLL
  for (int i = 0; i < kVectorDim; ++i)
    if (u32(i) != first && magnitude[i] > second_largest) second_largest = magnitude[i], second = i;
  const bool is_odd = count_bits(~signs & 255u) & 1;
  if (is_odd) sum = add_rn(sum, -2.f * least);
  if (!(add_rn(largest, second_largest) >= mul_rn(sum, 0.5f)))
    return kPairRoots + ((signs ^ (is_odd ? 1u << least_at : 0u)) & 127u);
  const u32 a = first < second ? first : second, b = first < second ? second : first;
  return pair_number(a, b) * 4 + 2 * (signs >> a & 1u) + (signs >> b & 1u);
}

// Returns the axis along which root and unit vector differ most, the first of equal ones.
KV_DEVICE u32 farthest_axis(u32 root, const float (&unit)[kVectorDim]) {
  float entry[kVectorDim], along = 0.f, largest = -1.f;
  u32 axis = 0;
  KV_UNROLL
  for (int i = 0; i < kVectorDim; ++i) {
    entry[i] = float(root_entry(root, i)) * (0.70710677f / 4);  // a quarter of 1 / |root|
    along = add_rn(along, mul_rn(unit[i], entry[i]));
  }
  KV_UNROLL
  for (int i = 0; i < kVectorDim; ++i) {
    const float rest = add_rn(unit[i], -mul_rn(along, entry[i]));
    if (absolute(rest) > largest) largest = absolute(rest), axis = 2 * i + (rest < 0.f);
  }
  return axis;
}

// Returns the code of eight values whose scale is d. A vector shorter than the first bound has the code 0.
template <class Codes>
KV_DEVICE u32 vector_code(const float (&x)[kVectorDim], float d) {
  float squares = 0.f, unit[kVectorDim], magnitude[kVectorDim];
  KV_UNROLL
  for (int i = 0; i < kVectorDim; ++i) squares = add_rn(squares, mul_rn(x[i], x[i]));
  const float length = sqrt_rn(squares);
  u32 radius = 0, signs = 0;
  KV_UNROLL
  for (int i = 0; i < kVectorRadii - 1; ++i) radius += length >= mul_rn(Codes::bound(i), d);
  if (radius == 0 || !(d > 0.f)) return 0;
  const float inverse = div_rn(1.f, length);
  KV_UNROLL
  for (int i = 0; i < kVectorDim; ++i) {
    unit[i] = mul_rn(x[i], inverse), magnitude[i] = absolute(unit[i]);
    signs |= u32(unit[i] >= 0.f) << i;
  }
  const u32 root = nearest_root(signs, magnitude);
  return root | (radius << 4 | farthest_axis(root, unit)) << 8;
}

// Stands for write_rotated() of formats/write_row.cuh. bytes: a float for each value, then the scale of each vector.
template <class Writer, int kPerLane>
requires(Writer::Encoder::F::Codes::kIsVector) KV_DEVICE
    void write_rotated(const float (&)[kPerLane], float (&rotated)[kPerLane], float tensor_scale, u8* bytes,
                       const StoredRow& to) {
  using R = typename Writer::Encoder;
  using F = typename R::F;
  using Codes = typename F::Codes;
  constexpr int kShared = R::Lanes::template registers_of<R::kSpan>();
  Scales<kPerLane> scales;
  R::Rule::template find<R>(rotated, tensor_scale, scales);
  float* const values = reinterpret_cast<float*>(bytes);
  float* const scale_of = values + F::kStored;
  KV_UNROLL
  for (int e = 0; e < kPerLane; ++e) {
    const int i = e * 32 + lane();
    if (e % kShared != 0) scales.d[e] = scales.d[e - 1];  // a value of the same span
    if (R::kLeast > 0.f && scales.d[e] < R::kLeast) scales.d[e] = R::kLeast;
    if constexpr (R::kByStored) scales.d[e] = F::Number::decode(F::Number::encode(scales.d[e]));
    values[i] = rotated[e];
    if (i % kVectorDim == 0) scale_of[i / kVectorDim] = scales.d[e];
  }
  sync_warp();
  KV_NO_UNROLL
  for (int vector = lane(); vector < F::kStored / kVectorDim; vector += 32) {
    const int first = vector * kVectorDim;
    float x[kVectorDim];
    KV_UNROLL
    for (int i = 0; i < kVectorDim; ++i) x[i] = values[first + i];
    store_bytes<2, unit_of<2>(Codes::kAt, F::kCodeStride, 2)>(
        codes_of<F>(to, first) + Codes::kAt + first % F::kBlock / kVectorDim * 2,
        vector_code<Codes>(x, scale_of[vector]));
  }
  store_numbers<F, typename F::Number, F::kScaleAt>(to, scales.d);
  Writer::pad(to);
}

}  // namespace kv
