// Converts structs of the C interface to those of the runtime, and back. Internal to api/.
// SPDX-License-Identifier: MIT
#pragma once
#include "runtime/device/backend.hpp"
#include "runtime/kvjit.h"
#include "runtime/launch/calls.hpp"

namespace kvjit::c_api {

inline kvjit::DevicePointer address(const void* pointer) { return reinterpret_cast<kvjit::DevicePointer>(pointer); }
inline kv::Rows convert(const kvjit_rows& rows) {
  return {rows.data, rows.sequence_stride, rows.query_stride, rows.head_stride};
}
inline kv::CacheSide convert(const kvjit_side& side) {
  return {static_cast<kv::u8*>(side.codes), static_cast<kv::u8*>(side.scales), side.codes_sequence_stride,
          side.codes_head_stride,           side.codes_token_stride,           side.scales_sequence_stride,
          side.scales_head_stride,          side.scales_token_stride};
}
inline kvjit_side convert(const kv::CacheSide& side) {
  return {side.codes,
          side.scales,
          side.codes_sequence_stride,
          side.codes_head_stride,
          side.codes_token_stride,
          side.scales_sequence_stride,
          side.scales_head_stride,
          side.scales_token_stride};
}
inline kv::PageTable convert(const kvjit_pages& pages) { return {pages.table, pages.row_stride}; }
inline kvjit_check convert(const kv::CheckRecord& found) {
  return {0,
          found.count > 0 ? kvjit::to_string(found.array) : nullptr,
          static_cast<kvjit_index>(found.index),
          static_cast<kvjit_index>(found.value),
          static_cast<kvjit_index>(found.least),
          static_cast<kvjit_index>(found.most),
          static_cast<kvjit_index>(found.count)};
}
inline kv::FeatureArgs convert_features(const kvjit_attention_call& c) {
  return {static_cast<const kv::u16*>(c.mask),
          c.mask_sequence_stride,
          c.mask_head_stride,
          c.mask_query_stride,
          c.packed_mask,
          c.packed_sequence_stride,
          c.packed_head_stride,
          c.packed_query_stride,
          c.packed_tokens,
          c.position_offset,
          c.position_offsets,
          c.token_ranges,
          c.slopes,
          c.sinks,
          c.lse};
}
inline kvjit::AttentionCall convert(const kvjit_attention_call& c) {
  static_assert(KVJIT_MOST_BLOCKS == kvjit::kMostBlocks && KVJIT_COUNTER_BYTES == kvjit::kCounterBytes);
  return {convert(c.q),
          convert(c.k),
          convert(c.v),
          convert(c.out),
          c.lengths,
          c.tokens,
          c.sequences,
          c.kv_heads,
          c.scale,
          c.k_tensor_scale != 0 ? c.k_tensor_scale : 1,
          c.v_tensor_scale != 0 ? c.v_tensor_scale : 1,
          c.blocks,
          convert(c.new_k),
          convert(c.new_v),
          static_cast<kv::RowType>(c.new_type),
          convert_features(c),
          c.leaves_sinks != 0,
          convert(c.k_pages),
          convert(c.v_pages),
          {static_cast<kv::CheckRecord*>(c.check), c.k_pages.pool_pages, c.v_pages.pool_pages, 0},
          kvjit::ManyRows::chosen,
          c.context_chunk_bytes,
          c.queries,
          c.query_starts,
          c.query_rows};
}

}  // namespace kvjit::c_api
