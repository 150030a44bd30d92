// Work tiles that one warp finds for all. The first warp of the producer finds the work tile of the next round while
// the present one runs, and posts it in shared memory. So the search takes no time and no registers of the consumers,
// and what only the ends of a work tile need is read again there.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/bulk_copy.cuh"
#include "kernels/prefill/work_tiles.cuh"

namespace kv {

// PostedWork is the view of a warp: it begins each round, and leaves it before it begins the next.
template <class Plan>
class PostedWork {
 protected:
  static constexpr int kSlots = 4;  // rounds that are posted, or not yet left by all warps
  static constexpr SharedAddress kWork = Plan::kPostsAt, kPosted = kWork + kSlots * sizeof(WorkTile),
                                 kLeft = kPosted + 8 * kSlots;
  static constexpr int kEnd = -1;  // the number of a work tile behind the end of the list

  KV_DEVICE static u32 phase(int round) { return u32(round) / kSlots % 2; }
  KV_DEVICE static WorkTile* place(int round) {
    return reinterpret_cast<WorkTile*>(shared_bytes() + kWork) + round % kSlots;
  }

 public:
  KV_DEVICE static void open() {  // by one thread of the block
    for (int i = 0; i < kSlots; ++i) {
      open_barrier(kPosted + 8 * i, 1);
      open_barrier(kLeft + 8 * i, Plan::kWarps + Plan::kConsumerWarps);
    }
  }
  // False behind the last round.
  KV_DEVICE bool begin(int round, WorkTile& work) const {
    wait_phase(kPosted + round % kSlots * 8, phase(round));
    recall(round, work);
    return work.number != kEnd;
  }
  // Reads the work tile of the round again, until the warp leaves it.
  KV_DEVICE void recall(int round, WorkTile& work) const { work = *place(int(hide_from_optimizer(u32(round)))); }
  KV_DEVICE void leave(int round) const {
    sync_warp();
    if (lane() == 0) arrive(kLeft + round % kSlots * 8);
  }
};

// WorkPoster is the view of the producer. Finder: WorkTiles; Order: the place that a block has in each round.
template <class Plan, class Finder, class Order>
class WorkPoster : public PostedWork<Plan> {
  using Base = PostedWork<Plan>;
  const Finder finder_;
  Order order_;
  bool is_over_ = false;

  KV_DEVICE void post(int round) {
    if (warp_uniform(is_over_)) return;
    WorkTile work{};
    is_over_ = !finder_.at(order_.place(finder_, round), work);
    if (is_over_) work.number = Base::kEnd;
    if (round >= Base::kSlots) wait_phase(Base::kLeft + round % Base::kSlots * 8, Base::phase(round) ^ 1);
    sync_warp();
    if (lane() == 0) {
      *Base::place(round) = work;
      arrive(Base::kPosted + round % Base::kSlots * 8);
    }
  }

 public:
  KV_DEVICE WorkPoster(const Finder& finder, const Order& order) : finder_(finder), order_(order) {}

  // As begin of PostedWork. The first warp posts the next round before that and, ahead of round 0, this one.
  KV_DEVICE bool begin_first(int round, WorkTile& work) {
    if (warp_uniform(warp() == 0)) {
      if (round == 0) post(0);
      post(round + 1);
    }
    return Base::begin(round, work);
  }
};
template <class Plan, class Args>
KV_DEVICE auto work_poster_of(const Args& args) {
  using Finder = decltype(work_tiles_of<Plan>(args));
  using Order = decltype(order_of<Plan>(args));
  return WorkPoster<Plan, Finder, Order>(work_tiles_of<Plan>(args), order_of<Plan>(args));
}

}  // namespace kv
