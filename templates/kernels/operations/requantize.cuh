// requantize: decodes stored rows and encodes them into a cache of another format. A warp takes one row and holds it in
// registers. Plan::From is a Reader (formats/read_row.cuh) and Plan::To a Writer (formats/write_row.cuh). If both
// formats rotate alike (Plan::kStaysRotated), values stay in the rotated domain.
// SPDX-License-Identifier: MIT
#pragma once
#include "kernels/operations/cache_tokens.cuh"
#include "device/simt.cuh"
#include "formats/read_row.cuh"
#include "formats/write_row.cuh"

namespace kv {

template <class Plan>
KV_DEVICE void requantize(const CopyArgs& args) {
  using From = typename Plan::From;
  using To = typename Plan::To;
  using Target = typename To::Encoder::F;
  u8* const bytes = shared_bytes() + warp() * Plan::kWarpBytes;
  const u32 number = u32(block_x()) * Plan::kWarps + warp();
  if (number >= operation_rows(args)) return;  // true of the whole warp
  const OperationRow row = operation_row(args, number);
  const i64 from = slot_of(args.from, row), to = slot_of(args.to, row);
  if (from < 0 || to < 0) return;
  const StoredRow source = stored_row<typename From::F>(args.from.side, row.sequence, row.head, from),
                  target = stored_row<Target>(args.to.side, row.sequence, row.head, to);
  float x[per_lane(From::F::kStored)];
  if constexpr (Plan::kStaysRotated) {
    read_rotated<From>(source, args.from.tensor_scale, x);
    write_rotated<To>(x, x, args.to.tensor_scale, bytes, target);
  } else {
    read_row<From>(source, args.from.tensor_scale, x);
    float values[per_lane(Target::kStored)];
    KV_UNROLL
    for (int e = 0; e < per_lane(Target::kStored); ++e)  // Either row may be longer than the head: zeros follow it.
      values[e] = e < per_lane(To::kHeadDim) && e * 32 + lane() < To::kHeadDim ? x[e] : 0.f;
    write_values<To>(values, args.to.tensor_scale, bytes, target);
  }
}

}  // namespace kv
