// No attention feature: every query sees every token.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"
#include "features/every_value.cuh"

namespace kv {

struct NoFeature : EveryValue {
  // Does any query row miss token `last` or an earlier one of its tile? (Then the tile needs sees() token by
  // token.)
  KV_DEVICE static bool cuts(int, int) { return false; }
  // Does query `query` of the call see token `token` of `length`?
  KV_DEVICE static bool sees(int, int, int) { return true; }
};

}  // namespace kv
