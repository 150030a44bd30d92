// The first pass of prefill in two makes halves of the cache. A row that leaves their range is divided by a power of
// two before it is rounded, and the exponent is stored for the second pass (args/context_chunks.cuh). What is no finite
// number is stored as it is: the rows that see it become NaN.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "args/context_chunks.cuh"
#include "kernels/prefill/powers_of_two.cuh"
#include "formats/number_rows.cuh"

namespace kv {

template <class Plan>
requires requires {
  Plan::kFitsRows;
}
struct RowRange<Plan> {
  // All lanes of the warp call it. row_lane: the number of the lane among those of the row. x: its values.
  template <int kValues>
  KV_DEVICE static void fit(const CodecArgs& args, const CodecRow& at, int row_lane, bool has_values,
                            float (&x)[kValues]) {
    float most = 0.f;
    KV_UNROLL
    for (int i = 0; i < kValues; ++i)
      if (absolute(x[i]) < float_of(0x7f800000u)) most = larger(most, absolute(x[i]));
    if (!has_values) most = 0.f;
    KV_UNROLL
    for (int mask = 1; mask < Plan::kRowLanes; mask <<= 1) most = larger(most, shfl_xor(most, mask));
    const int exponent = exponent_of_row(most);
    const auto& call = static_cast<const BoundedCodecArgs&>(args);
    if (row_lane == 0 && has_values) {
      const i64 dim = args.keep_rotated ? Plan::F::kStored : Plan::kHeadDim;
      call.exponents[at.in_x / dim] = u8(exponent + kExponentBias);
      if (exponent != 0) *call.powers.used = call.powers.chunk;
    }
    const float factor = power_of_two(-exponent);
    KV_UNROLL
    for (int i = 0; i < kValues; ++i) x[i] *= factor;
  }
};

}  // namespace kv
