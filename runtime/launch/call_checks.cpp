// Checks of a call's numbers and arrays: see call_checks.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/launch/call_checks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "runtime/launch/kv_checks.hpp"

namespace kvjit {

Result<void> check_counts(long long sequences, long long tokens, long long heads) {
  const std::pair<const char*, long long> counts[] = {{"sequences", sequences}, {"tokens", tokens}, {"heads", heads}};
  for (const auto& [name, count] : counts)
    if (count <= 0)
      return refuse(fmt::format("{} {}; at least 1 is needed (skip the call if there is nothing to do)", count, name));
  return {};
}

Result<void> check_factor(const char* name, double value, const char* possible) {
  const auto as_read = static_cast<float>(value);
  if (std::isnormal(as_read) && as_read > 0) return {};
  return refuse(fmt::format("{} {}; kernels read it as a float: {}", name, value, possible));
}

Footprint footprint_of(const RowsCheck& tensor) {
  const Wide bytes = tensor.element_bytes;
  return {tensor.name,
          tensor.rows.data,
          bytes * tensor.head_dim,
          0,
          {{bytes * tensor.rows.sequence_stride, tensor.sequences},
           {bytes * tensor.rows.query_stride, tensor.queries},
           {bytes * tensor.rows.head_stride, tensor.heads}}};
}

Result<void> check_rows(const RowsCheck& tensor) {
  const Footprint memory = footprint_of(tensor);
  if (memory.bytes() > std::numeric_limits<std::ptrdiff_t>::max())
    return refuse(
        fmt::format("{}: strides {}, {} and {} of {} sequences, {} queries or tokens and {} heads do not fit "
                    "64 bits",
                    tensor.name, tensor.rows.sequence_stride, tensor.rows.query_stride, tensor.rows.head_stride,
                    tensor.sequences, tensor.queries, tensor.heads));
  if (tensor.is_written && memory.overlaps_itself())
    return refuse(
        fmt::format("{}: rows of {} elements overlap, by strides {}, {} and {} of {} sequences, {} queries "
                    "or tokens and {} heads",
                    tensor.name, tensor.head_dim, tensor.rows.sequence_stride, tensor.rows.query_stride,
                    tensor.rows.head_stride, tensor.sequences, tensor.queries, tensor.heads));
  return {};
}

Result<void> check_apart(const RowsCheck& written, const RowsCheck& other) {
  return check_apart(footprint_of(written), footprint_of(other));
}

Result<void> check_first_token(long long first, long long tokens) {
  constexpr long long kMostTokens = 1 << 30;  // as in a call of attention, which reads no token behind them
  if (first >= 0 && first <= kMostTokens - tokens) return {};
  return refuse(fmt::format("first token {} of {} tokens; the cache has tokens 0 to 2^30 - 1", first, tokens));
}

Result<void> check_tensor_scale(const SideInfo& info, const char* name, float scale) {
  if (!std::isnormal(scale) || scale < 0)
    return refuse(fmt::format("{}: tensor scale {}; a positive number is needed, from 1.2e-38 on", name, scale));
  if (!info.has_tensor_scale && scale != 1)
    return refuse(fmt::format("{}: tensor scale {}; {} has none, so it must be 1", name, scale, info.format));
  return {};
}

Result<void> check_row_type(const char* name, kv::RowType type) {
  if (type == kv::RowType::f16 || type == kv::RowType::bf16 || type == kv::RowType::f32) return {};
  return refuse(fmt::format("{} has type {}; f16 (1), bf16 (2) and f32 (3) are possible", name, int(type)));
}

Result<void> check_slots(const char* name, const void* slots, kv::SlotType type) {
  if (type != kv::SlotType::i64 && type != kv::SlotType::i32)
    return refuse(fmt::format("{} have type {}; int64 (0) and int32 (1) are possible", name, int(type)));
  return check_pointer(name, slots, type == kv::SlotType::i32 ? 4 : 8);
}

Result<void> check_new_rows(const ProgramSource& source, const AttentionCall& call) {
  if (!source.append) {
    if (!call.new_k.data && !call.new_v.data) return {};
    return refuse(fmt::format("new tokens for {}, which does not append: attention.append = true", source.id));
  }
  KV_CHECK(check_row_type("new_k, new_v", call.new_type));
  const unsigned alignment = call.new_type == kv::RowType::f32 ? 4 : 2;
  KV_CHECK(check_pointer("new_k", call.new_k.data, alignment));
  return check_pointer("new_v", call.new_v.data, alignment);
}

Result<void> check_features(const ProgramSource& source, const AttentionCall& call) {
  const FeatureSet& set = source.features;
  const kv::FeatureArgs& features = call.features;
  struct Array {
    const char *name, *feature;
    const void* data;
    bool is_read, is_needed;
    unsigned alignment;
  };
  const Array arrays[] = {
      {"mask", "mask", features.mask, set.mask, set.mask, 2},
      {"packed_mask", "packed_mask", features.packed_mask, set.packed_mask, set.packed_mask, 4},
      {"slopes", "alibi\" or \"mask_slopes", features.slopes, set.has_slopes(), set.has_slopes(), 4},
      {"sinks", "sinks", features.sinks, set.sinks, set.sinks && !call.leaves_sinks, 4},
      {"lse", "lse", features.lse, set.lse, set.lse, 4},
      {"position_offsets", "position_offset", features.position_offsets, set.position_offset, false, 4},
      {"token_ranges", "token_ranges", features.token_ranges, set.token_ranges, set.token_ranges, 4}};
  for (const Array& array : arrays) {
    if (array.data && !array.is_read)
      return refuse(fmt::format("{} is given to program {}, which does not read it: attention.features = [\"{}\"]",
                                array.name, source.id, array.feature));
    if (array.is_needed || array.data) KV_CHECK(check_pointer(array.name, array.data, array.alignment));
  }
  const bool has_offset = features.position_offset != 0;
  if (has_offset && !set.position_offset)
    return refuse(
        fmt::format("position_offset {} is given to program {}, which does not read it: "
                    "attention.features = [\"position_offset\"]",
                    features.position_offset, source.id));
  constexpr int kMostOffset = 1 << 29;  // the sum with a length and a window still fits an int
  if (features.position_offset < -kMostOffset || features.position_offset > kMostOffset)
    return refuse(fmt::format("position_offset {}; -2^29 to 2^29 are possible", features.position_offset));
  if (features.packed_tokens != 0 && !set.packed_mask)
    return refuse(
        fmt::format("packed_tokens {} is given to program {}, which does not read it: "
                    "attention.features = [\"packed_mask\"]",
                    features.packed_tokens, source.id));
  if (features.packed_tokens < 0)
    return refuse(fmt::format("packed_tokens {}; 0 (all tokens) or more is possible", features.packed_tokens));
  if (call.leaves_sinks && !set.sinks)
    return refuse(fmt::format("leaves_sinks is set for program {}, which has none", source.id));
  return {};
}

}  // namespace kvjit
