// Which token of a cache a token of a call is, by numbers that the call brings: [sequence][token], of 64 or of 32 bits
// (the numbers of runtime/kvjit.h). Negative: none.
// SPDX-License-Identifier: MIT
#pragma once
#include "args/page_table.cuh"

namespace kv {

enum class SlotType : int { i64 = 0, i32 = 1 };

// quantize and dequantize by slots, in kernels of their own (formats/stored_slots.cuh); CodecArgs::slots is null then,
// first_token 0.
struct IndexedCodecArgs : PagedCodecArgs {
  const void* numbers;
};

}  // namespace kv
