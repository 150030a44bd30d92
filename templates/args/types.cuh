// Fixed-width names, the same on every compiler. Included by the host runtime too (through args.cuh).
// SPDX-License-Identifier: MIT
#pragma once

namespace kv {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

// Registers of each lane for a row of numbers: value i in lane i % 32, register i / 32.
constexpr int per_lane(int values) { return (values + 31) / 32; }

}  // namespace kv
