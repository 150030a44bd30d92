// Plans whose K or V has a scale for each KV head (formats with `per = "head"`). Attention by a plan takes one scale of
// K and one of V, which are arguments. A kernel over several heads multiplies the scales of a head into a copy of its
// arguments, and goes on as if the plan had no others. Each kernel family has an overload that does so.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/attention.cuh"

namespace kv {

// The plan Bare, with the scales of K's heads, of V's or of both.
template <class Bare, bool kOfKeys, bool kOfValues>
struct HeadScaled : Bare {
  using BarePlan = Bare;
  static constexpr bool kScalesKeyHeads = kOfKeys, kScalesValueHeads = kOfValues;
};
template <class Plan>
concept HasHeadScales = requires {
  typename Plan::BarePlan;
};

// Arguments of a ragged batch are taken apart by sequences first (kernels/decode/query_ranges.cuh).
template <class Args>
concept IsOfOneLength = !requires(const Args& args) {
  args.varlen;
}
|| requires { Args::kIsOfSequence; };

// The scale of a KV head, in the place of a plane of scales.
KV_DEVICE float head_scale(const CacheSide& side, i64 sequence, i64 head) {
  return *reinterpret_cast<const float*>(side.scales + sequence * side.scales_sequence_stride +
                                         head * side.scales_head_stride);
}
template <class Plan>
KV_DEVICE float key_scale(const AttentionArgs& args, int sequence, int head) {
  return Plan::kScalesKeyHeads ? head_scale(args.k, sequence, head) : 1.f;
}
template <class Plan>
KV_DEVICE float value_scale(const AttentionArgs& args, int sequence, int head) {
  return Plan::kScalesValueHeads ? head_scale(args.v, sequence, head) : 1.f;
}

// The arguments for one KV head of a sequence.
template <class Plan, class Args>
KV_DEVICE Args args_of_head(const Args& args, int sequence, int head) {
  Args own = args;
  own.scale_log2 *= key_scale<Plan>(args, sequence, head);
  own.value_scale *= value_scale<Plan>(args, sequence, head);
  return own;
}

}  // namespace kv
