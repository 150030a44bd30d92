// Staged rows that the hardware reads as 8 x 8 matrices of two bytes an element, a chunk of each of eight rows that differ in the lower three
// bits of their numbers: it is single chunks that are dealt anew for them.
// SPDX-License-Identifier: MIT
#pragma once
#include "core/stage.cuh"

namespace kv {

// Of rows of 64 bytes: chunk x lies at x ^ (x >> 3 & 3), which repeats every eight rows.
constexpr int kOfMatrices = 1;
template <>
KV_DEVICE u32 swizzled<kOfMatrices>(u32 byte) {
  return byte ^ (byte >> 7 & 3) << 4;
}

}  // namespace kv
