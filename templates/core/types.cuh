// Fixed-width names, the same on every compiler. Included by the host runtime too (through args.cuh).
// SPDX-License-Identifier: MIT
#pragma once

namespace kv {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;

}  // namespace kv
