// A list of types, for things of which a plan has several: sections of a row, planes of a section.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

template <class... Items>
struct List {};

// Calls visit(Item{}) for each item, in order. The calls are unrolled at compile time.
template <class Visit, class... Items>
KV_DEVICE void for_each(List<Items...>, const Visit& visit) {
  (visit(Items{}), ...);
}

}  // namespace kv
