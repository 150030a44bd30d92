// Unpack blocks with outliers. A block stores its own mask of outlier channels: channel i has a code of kHighBits if
// bit i of the mask is set, else one of kLowBits. Codes of either kind are packed one behind the other in the order of
// their channels, so the place of a code depends on how many bits of the mask are set before it. This unpacking is
// slow.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

namespace kv {

// The values of kCodes channels, from `channel` on, as halves. codes: the block's codes; mask: the block's mask.
template <class S, int kCodes>
KV_DEVICE void masked_values(SharedAddress codes, SharedAddress mask, int channel, u32 (&half)[kCodes]) {
  int high = 0;  // outlier channels before this one
  for (int byte = 0; byte < channel / 8; ++byte) high += count_bits(load_shared_u8(mask + byte));
  u32 bits = 0;
  KV_UNROLL
  for (int i = 0; i < kCodes; ++i) {
    if (i == 0 || (channel + i) % 8 == 0) bits = load_shared_u8(mask + (channel + i) / 8);
    if (i == 0) high += count_bits(bits & ((1u << channel % 8) - 1));
    const bool is_high = bits >> (channel + i) % 8 & 1;
    const int width = is_high ? S::kHighBits : S::kLowBits, at = (is_high ? high : channel + i - high) * width;
    const SharedAddress from = codes + (is_high ? S::kHighAt : S::kLowAt) + at / 8;
    const u32 window = load_shared_u8(from) | load_shared_u8(from + 1) << 8;  // a byte past the codes is still staged
    const u32 code = window >> at % 8 & ((1u << width) - 1);
    half[i] = S::half_value((is_high ? 1 << S::kLowBits : 0) + int(code));
    high += is_high;
  }
}

// Values of a lane read as half2: masked_row has two neighbouring channels of a row of K in a register, masked_column
// one channel of two tokens of V.
template <class S>
KV_DEVICE void masked_row(SharedAddress codes, SharedAddress mask, int row_lane, u32 (&h)[S::kReadCodes / 2]) {
  u32 half[S::kReadCodes];
  masked_values<S>(codes, mask + S::kMaskAt, row_lane * S::kReadCodes, half);
  KV_UNROLL
  for (int i = 0; i < S::kReadCodes / 2; ++i) h[i] = half[2 * i] | half[2 * i + 1] << 16;
}
template <class S>
KV_DEVICE void masked_column(SharedAddress codes0, SharedAddress mask0, SharedAddress codes1, SharedAddress mask1,
                             int row_lane, u32 (&h)[S::kReadCodes]) {
  u32 low[S::kReadCodes], high[S::kReadCodes];
  masked_values<S>(codes0, mask0 + S::kMaskAt, row_lane * S::kReadCodes, low);
  masked_values<S>(codes1, mask1 + S::kMaskAt, row_lane * S::kReadCodes, high);
  KV_UNROLL
  for (int i = 0; i < S::kReadCodes; ++i) h[i] = low[i] | high[i] << 16;
}

}  // namespace kv
