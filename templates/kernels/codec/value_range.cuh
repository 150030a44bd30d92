// The first pass of prefill in two makes halves of the cache. In checked programs it reports numbers that fp16 does not
// hold: the largest of a row goes to the record of the call, by the number of its token among all tokens of the call's
// sequences. What is no finite number is stored as it is: the rows that see it become NaN.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"
#include "args/context_chunks.cuh"
#include "kernels/auxiliary/check_value.cuh"
#include "formats/number_rows.cuh"

namespace kv {

template <class Plan>
requires requires {
  Plan::kValueArray;
}
struct ValueReport<Plan> {
  static constexpr i64 kMostHalf = 65504;

  template <int kValues>
  KV_DEVICE static void check(const CodecArgs& args, const CodecRow& at, const float (&x)[kValues]) {
    float most = 0.f;
    KV_UNROLL
    for (int i = 0; i < kValues; ++i)
      if (absolute(x[i]) < float_of(0x7f800000u)) most = larger(most, absolute(x[i]));
    if (most < 65520.f) return;  // smaller numbers are rounded to 65504
    const auto& call = static_cast<const Checked<BoundedCodecArgs>&>(args);
    const i64 value = most < 0x1p62f ? i64(most) : i64(1) << 62;
    check_value(call.record, Plan::kValueArray, i64(at.sequence) * call.most + call.first_token + at.token, value,
                -kMostHalf, kMostHalf);
  }
};

}  // namespace kv
