// No attention feature: every query sees every token. features/causal.cuh has the same two functions.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "features/every_value.cuh"

namespace kv {

struct NoFeature : EveryValue {
  static constexpr bool kMayHide = false;  // may a row not see a token?
  // Does a query row not see token `last` or an earlier one of its tile, in a sequence of `length` tokens? If so,
  // callers mask the tile by calling sees() for each of its tokens.
  KV_DEVICE static bool cuts(int, int) { return false; }
  // Does query `query` of the call see token `token` of a sequence of `length` tokens?
  KV_DEVICE static bool sees(int, int, int) { return true; }
};

}  // namespace kv
