// Causal attention, for plans without other features. The kQueries queries of a call are the last tokens of the cache,
// so query i stands at position length - kQueries + i. It sees the tokens up to its own.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "features/every_value.cuh"

namespace kv {

template <int kQueries>
struct Causal : EveryValue {
  static constexpr bool kMayHide = kQueries > 1;
  KV_DEVICE static bool cuts(int last, int length) { return last > length - kQueries; }
  KV_DEVICE static bool sees(int query, int token, int length) { return token <= length - kQueries + query; }
};

}  // namespace kv
