// Finds the page table of a side among the arguments of a call: it lies kTableAt bytes behind the side.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"
#include "device/simt.cuh"

namespace kv {

template <Paged Side>
KV_DEVICE const PageTable& table_of(const CacheSide& side) {
  return *reinterpret_cast<const PageTable*>(reinterpret_cast<const u8*>(&side) + Side::kTableAt);
}

}  // namespace kv
