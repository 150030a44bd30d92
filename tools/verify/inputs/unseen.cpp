// Finds what no query sees: see unseen.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/inputs/unseen.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvjit {
namespace {

// The bits of NaN or infinity in a number of `bytes` bytes of a type; false: the type has none.
bool special_bits(ScaleType type, bool is_nan, std::uint32_t& bits) {
  switch (type) {
    case ScaleType::f16:
      return bits = is_nan ? 0x7e00 : 0x7c00, true;
    case ScaleType::bf16:
      return bits = is_nan ? 0x7fc0 : 0x7f80, true;
    case ScaleType::f32:
      return bits = is_nan ? 0x7fc00000 : 0x7f800000, true;
    case ScaleType::e4m3:
      return bits = 0x7f, true;  // it has no infinity
    case ScaleType::ue4m3:
      return false;
    case ScaleType::e8m0:
      return bits = 0xff, true;  // it has no infinity
  }
  return false;
}

bool special_bits(Element element, bool is_nan, std::uint32_t& bits) {
  switch (element) {
    case Element::f16:
      return special_bits(ScaleType::f16, is_nan, bits);
    case Element::bf16:
      return special_bits(ScaleType::bf16, is_nan, bits);
    case Element::f32:
      return special_bits(ScaleType::f32, is_nan, bits);
    case Element::e4m3:
      return special_bits(ScaleType::e4m3, is_nan, bits);
    case Element::e5m2:
      return bits = is_nan ? 0x7e : 0x7c, true;
    default:
      return false;
  }
}

void repeat_bits(std::span<std::uint8_t> bytes, std::uint32_t bits, int each) {
  for (std::size_t at = 0; at + static_cast<std::size_t>(each) <= bytes.size(); at += static_cast<std::size_t>(each))
    std::memcpy(&bytes[at], &bits, static_cast<std::size_t>(each));
}

}  // namespace

UnseenTokens unseen_tokens(const Problem& problem, const CacheShape& shape, const std::vector<int>& lengths,
                           const std::vector<int>& counts, bool is_ragged, const FeatureInputs& features) {
  const int heads = shape.kv_heads, group = problem.q_heads_per_kv, tokens = static_cast<int>(shape.tokens);
  const auto rows = static_cast<std::size_t>(shape.sequences * heads) * static_cast<std::size_t>(tokens);
  UnseenTokens unseen{RowFlags(rows, true), RowFlags(rows, true), {}, {}};
  FeatureSet by_position = problem.features;  // what kernels know ahead of any read of the cache or of a mask
  by_position.mask = by_position.packed_mask = false;
  int first_query = 0;
  for (int s = 0; s < shape.sequences; ++s) {
    const int length = lengths[static_cast<std::size_t>(s)], count = counts[static_cast<std::size_t>(s)];
    const int first = is_ragged ? std::exchange(first_query, first_query + count) : 0;
    const ScoreRule rule(problem.features, problem.causal, features, s, count, length, first),
        known_rule(by_position, problem.causal, features, s, count, length, first);
    const auto at = [&](int head, int token) {
      return static_cast<std::size_t>(s * heads + head) * static_cast<std::size_t>(tokens) +
             static_cast<std::size_t>(token);
    };
    const std::size_t first_row = unseen.sees_part.size();
    unseen.sees_part.resize(first_row + static_cast<std::size_t>(heads * group * count));
    for (int head = 0; head < heads; ++head) {
      int best = group * count, part = -1;  // the token that the fewest rows see, but not all of them
      for (int t = 0; t < length; ++t) {
        int seen = 0;
        for (int row = 0; row < group * count; ++row) {
          const int q_head = head * group + row / count, query = row % count;
          seen += !std::isinf(rule.score(q_head, query, t, 0));
          if (!std::isinf(known_rule.score(q_head, query, t, 0))) unseen.outside[at(head, t)] = false;
        }
        unseen.hidden[at(head, t)] = seen == 0;
        if (seen > 0 && seen < best) best = seen, part = t;
      }
      if (part < 0 || 2 * best > group * count) continue;
      unseen.partly.push_back({s, head, part});
      for (int row = 0; row < group * count; ++row)
        if (!std::isinf(rule.score(head * group + row / count, row % count, part, 0)))
          unseen.sees_part[first_row + static_cast<std::size_t>(head * group * count + row)] = true;
    }
  }
  if (!shape.rows.shares_sequences || shape.sequences == 1) return unseen;
  // All sequences read the rows of the first. No part is known, because other sequences may see such a token.
  const std::size_t each = rows / static_cast<std::size_t>(shape.sequences);
  for (RowFlags* flags : {&unseen.hidden, &unseen.outside}) {
    for (std::size_t i = each; i < rows; ++i)
      if (!(*flags)[i]) (*flags)[i % each] = false;
    flags->resize(each);
  }
  unseen.partly.clear(), std::fill(unseen.sees_part.begin(), unseen.sees_part.end(), false);
  return unseen;
}

std::vector<std::uint8_t> unseen_row(const Format& format, int dim, Unseen unseen) {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(format.head_bytes(dim)), 0xff);
  if (unseen == Unseen::ones) return row;
  const bool is_nan = unseen != Unseen::infinite;
  for (std::size_t block = 0; block < row.size(); block += static_cast<std::size_t>(format.block_bytes))
    for (const Field& field : format.fields) {
      const std::span<std::uint8_t> bytes(&row[block + static_cast<std::size_t>(field.at)],
                                          static_cast<std::size_t>(field.bytes));
      std::uint32_t bits = 0;
      if (field.kind == FieldKind::codes && format.segments.empty()) {
        const Section& section = format.sections[static_cast<std::size_t>(field.section)];
        if (section.kind == CodeKind::plain && special_bits(section.element, is_nan, bits))
          repeat_bits(bytes, bits, section.bits / 8);
      } else if (field.kind == FieldKind::scale) {
        if (special_bits(format.scale.type, is_nan, bits)) repeat_bits(bytes, bits, bytes_of(format.scale.type));
      } else if (field.kind == FieldKind::minimum || field.kind == FieldKind::residual_norm) {
        special_bits(ScaleType::f16, is_nan, bits), repeat_bits(bytes, bits, 2);
      }
    }
  return row;
}

RowFlags unmapped_rows(const CacheShape& shape, const std::vector<int>& lengths, const UnseenTokens& unseen) {
  const auto tokens = static_cast<std::size_t>(shape.tokens);
  const std::size_t stored = unseen.outside.size() / tokens / static_cast<std::size_t>(shape.kv_heads);
  RowFlags unmapped(unseen.outside.size(), true);
  for (std::size_t s = 0; s < stored; ++s) {
    const int longest = stored == 1 ? *std::max_element(lengths.begin(), lengths.end()) : lengths[s];
    for (std::size_t head = 0; head < static_cast<std::size_t>(shape.kv_heads); ++head) {
      const std::size_t first = (s * static_cast<std::size_t>(shape.kv_heads) + head) * tokens;
      int near = -kMostTileTokens;  // the last token inside
      for (int t = 0; t < longest; ++t) {
        if (!unseen.outside[first + static_cast<std::size_t>(t)]) near = t;
        if (t - near < kMostTileTokens) unmapped[first + static_cast<std::size_t>(t)] = false;
      }
      near = longest + kMostTileTokens;
      for (int t = longest - 1; t >= 0; --t) {
        if (!unseen.outside[first + static_cast<std::size_t>(t)]) near = t;
        if (near - t < kMostTileTokens) unmapped[first + static_cast<std::size_t>(t)] = false;
      }
    }
  }
  return unmapped;
}

}  // namespace kvjit
