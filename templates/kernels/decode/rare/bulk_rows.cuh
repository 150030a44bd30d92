// Long rows by bulk copies (sm_90 and later), for warp teams whose V is in K's rows: one lane issues a copy for
// each row, and a barrier of the stage counts the bytes. Asynchronous copies of 16 bytes each took the pipe of shared
// memory a third of its time, and held back the registers of their addresses until then (NOTES.md, "Values in K's
// rows").
//
// A bulk copy is issued when those before it have left the queue, so a tile's copies at once hold up the warp, too. The
// team waits for the probabilities of all its warps. So inside a round stage_rows() posts a request, and the warp
// issues the copies when its probabilities are out (rare/bulk_products.cuh).
//
// Ring, which the generator writes, says where stages and barriers are:
//   kAt, kStageBytes     the stages, kWarps side by side and kStages of these one after the other
//   kBarriersAt          for each stage of each warp 16 bytes: the barrier, and the parity of its phase
//   kRequestsAt          a request for each warp
//
// A warp waits for its own tile. The barrier of the team behind the scores makes the tile visible to the other warps.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/bulk_copy.cuh"
#include "device/elect.cuh"
#include "kernels/decode/rare/record_rows.cuh"

namespace kv {

template <class Side>
concept HasBulkRows = IsRecord<Side> && requires {
  typename Side::Ring;
};

// CopyRequest holds the copies that a warp has not issued yet. The lane that elect() chooses alone reads and writes it.
struct CopyRequest {
  enum State : u32 {
    kIdle,     // copies are issued at once
    kAwaited,  // a round has begun: copies wait for its products
    kPosted    // there are such copies
  };
  static constexpr int kBytes = 32;
  SharedAddress at;

  KV_DEVICE State state() const { return State(load_shared_u32(at)); }
  KV_DEVICE void set(State state) const { store_shared_u32(at, state); }
  KV_DEVICE void post(SharedAddress to, const u8* from, i64 token_stride) const {
    store_shared_u128(at, kPosted, to, u32((i64)from), u32((i64)from >> 32));
    store_shared_u32(at + 16, u32(token_stride));
    store_shared_u32(at + 20, u32(token_stride >> 32));
  }
  // Calls issue(to, from, token_stride) for what was posted.
  template <class Issue>
  KV_DEVICE void read(const Issue& issue) const {
    u32 from[2], stride[2];
    load_shared_u64(from, at + 8);
    load_shared_u64(stride, at + 16);
    issue(SharedAddress(load_shared_u32(at + 4)), (const u8*)(i64(from[1]) << 32 | i64(from[0])),
          i64(stride[1]) << 32 | i64(stride[0]));
  }
};
template <class Ring>
KV_DEVICE CopyRequest request_of_warp() {
  return {SharedAddress(Ring::kRequestsAt + warp() * CopyRequest::kBytes)};
}

// Returns the barrier of the stage that an address is in.
template <class Ring>
KV_DEVICE SharedAddress barrier_of_stage(SharedAddress at) {
  return Ring::kBarriersAt + (at - Ring::kAt) / Ring::kStageBytes * 16;
}

// Opens the barriers of the warp's stages. The entry calls it ahead of decode().
template <class Ring>
KV_DEVICE void open_ring() {
  if (elect()) {
    KV_UNROLL
    for (int stage = 0; stage < Ring::kStages; ++stage) {
      const SharedAddress barrier = Ring::kBarriersAt + (stage * Ring::kWarps + warp()) * 16;
      open_barrier(barrier, 1);
      store_shared_u32(barrier + 8, 0);
    }
    request_of_warp<Ring>().set(CopyRequest::kIdle);
    publish_barriers();
  }
  sync_warp();  // the barriers are open
}
// Waits for the rows of the warp's stage.
template <class Ring>
KV_DEVICE void await_rows(SharedAddress stage) {
  const SharedAddress barrier = barrier_of_stage<Ring>(stage);
  const u32 parity = load_shared_u32(barrier + 8);
  wait_phase(barrier, parity);
  sync_warp();  // every lane has read the parity
  if (lane() == 0) store_shared_u32(barrier + 8, parity ^ 1u);
}

// Issues the copies of kRows rows. One lane calls it.
template <HasBulkRows Side, int kRows>
KV_DEVICE void copy_rows(SharedAddress to, const u8* from, i64 token_stride) {
  const SharedAddress barrier = barrier_of_stage<typename Side::Ring>(to);
  arrive_and_announce(barrier, kRows * Side::kRowBytes);
  KV_UNROLL
  for (int row = 0; row < kRows; ++row, from += token_stride)
    copy_bulk(to + slot_at<Side>(row), from, Side::kRowBytes, barrier);
}

template <HasBulkRows Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_rows(SharedAddress to, const u8* from, i64 token_stride, int valid) {
  using Ring = typename Side::Ring;
  if constexpr (kIsWhole) {
    if (elect()) {
      const CopyRequest request = request_of_warp<Ring>();
      if (request.state() == CopyRequest::kAwaited) {
        request.post(to, from, token_stride);
      } else {
        // This tile is ahead of a split's first round. What threads stored in the stages before comes first: a part of
        // a tile at the end of the split before, and sums that were merged. They stored it ahead of a barrier of the
        // block, and this lane's fence is after that barrier. Posted copies need no other fence, as the same lane
        // issues them, no tile of a split follows a part of a tile, and rows that were cleared have had theirs.
        yield_to_copies();
        copy_rows<Side, kRows>(to, from, token_stride);
      }
    }
  } else {
    stage_halves<Side, kRows>(to, from, token_stride, valid);
    sync_warp();  // all lanes have stored
    if (lane() == 0) arrive(barrier_of_stage<Ring>(to));
  }
}
// In place of that of kernels/decode/rare/staged_stores.cuh.
template <HasBulkRows Side>
KV_DEVICE void end_stores(Side) {
  yield_to_copies();
  sync_warp();
}
template <HasBulkRows Side, int kTile, bool kIsWhole>
KV_DEVICE void stage_tile(SharedAddress to, i64 token_stride, const u8* codes, const u8*, int valid) {
  stage_rows<Side, kTile, kIsWhole>(to, codes, token_stride, valid);
}
// A page has whole tiles.
template <HasBulkRows Side, int kRows, bool kIsWhole>
KV_DEVICE void stage_page(SharedAddress to, SharedAddress, const CacheSide& side, const u8* codes, const u8*,
                          int valid) {
  stage_rows<Side, kRows, kIsWhole>(to, codes, side.codes_token_stride, valid);
}

}  // namespace kv
