// Names of integers of a fixed width, the same for every compiler, and the registers that a row takes. The host runtime
// includes this file too, through the other files of this folder.
// SPDX-License-Identifier: MIT
#pragma once

namespace kv {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

// Registers that each lane of a warp needs for a row of `values` numbers. Value i is in lane i % 32, register i / 32.
constexpr int per_lane(int values) { return (values + 31) / 32; }

}  // namespace kv
