// Slots: the number of the place in a cache of each token of a call. A call passes them as an array [sequence][token].
// A negative slot means that the token has no place and is left out.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"

namespace kv {

// The integer type of slots, with the values of runtime/kvjit.h.
enum class SlotType : int { i64 = 0, i32 = 1 };

// Arguments of quantize and dequantize by slots of any type, which are kernels of their own (formats/stored_slots.cuh).
// These have no CodecArgs::slots and a first_token of 0.
struct IndexedCodecArgs : PagedCodecArgs {
  const void* numbers;  // the slots, [sequence][token]
};

}  // namespace kv
