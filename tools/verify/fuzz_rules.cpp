// The rules by which random specs are refused: see fuzz_rules.hpp.
// SPDX-License-Identifier: MIT
#include "tools/verify/fuzz_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace kvjit::fuzz {
namespace {

// Bytes of all heads of a token. 0 for an inline format: its tokens have a multiple of 16 bytes if there are 8 or 16
// heads.
int token_bytes(const SideWish& side, int heads, const Registry& registry) {
  const auto stored = side.stored(registry);
  return stored ? heads * stored->head_bytes(side.dim) : 0;
}
// Whether the row of a head fills the lanes of a warp.
bool fills_lanes(const SideWish& side) { return !side.named || !side.named->is_ragged(side.dim); }
// Whether all heads certainly fit a block: its shared memory, with 64 tokens and 8 query rows of each head, and its
// warps. A head takes a warp, which holds its whole output. If outputs are wide, or blocks of the format store masks, a
// block has 8 warps at most.
bool certainly_fits(const Draw& draw, int heads, const Registry& registry) {
  constexpr int kMostBytes = 128 * 1024;
  const auto tile_bytes = [&](const SideWish& side) {
    return 64 * (side.named ? token_bytes(side, heads, registry) : heads * side.dim * 5 / 4);
  };
  constexpr int kFeatureRowBytes = 64;
  const int query_bytes = heads * 8 * (draw.k.rotated_dim(registry) * 4 + (draw.has_features() ? kFeatureRowBytes : 0)),
            output = draw.v.rotated_dim(registry);
  const auto is_masked = [](const SideWish& side) { return side.named && side.named->stored_mask > 0; };
  const bool has_few_warps = output > 128 || is_masked(draw.k) || is_masked(draw.v);
  return std::max(tile_bytes(draw.k), tile_bytes(draw.v)) + query_bytes <= kMostBytes && output <= 256 &&
         (!has_few_warps || heads <= 8);
}

}  // namespace

std::string Draw::toml() const {
  std::vector<std::string> features;
  const std::pair<bool, const char*> named[] = {{causal, "causal"},
                                                {alibi, "alibi"},
                                                {mask, "mask"},
                                                {mask_slopes, "mask_slopes"},
                                                {packed_mask, "packed_mask"},
                                                {sinks, "sinks"},
                                                {lse, "lse"},
                                                {position_offset, "position_offset"},
                                                {token_ranges, "token_ranges"}};
  for (const auto& [wanted, name] : named)
    if (wanted) features.push_back(fmt::format("\"{}\"", name));
  std::string text = fmt::format(
      "[k]\n{}[v]\n{}[attention]\nhead_dim_k = {}\nhead_dim_v = {}\nq_heads_per_kv = {}\n{}query_length = {}\n"
      "q_type = \"{}\"\nout_type = \"{}\"\n",
      k.toml, v.toml, k.dim, v.dim, gqa, varlen ? "query_length = \"any\"\nmax_" : "", queries, q_type, out_type);
  if (!features.empty()) text += fmt::format("features = [{}]\n", fmt::join(features, ", "));
  if (softcap > 0) text += fmt::format("softcap = {:.1f}\n", softcap);
  if (!window.empty()) text += fmt::format("window = [{}, {}]\n", window[0], window[1]);
  if (append) text += "append = true\n";
  if (!fuse) text += "fuse = false\n";
  if (sparse_v > 0) text += fmt::format("sparse_v = {}\n", sparse_v);
  text += fmt::format("[cache]\nlayout = \"{}\"\n", to_string(layout));
  if (layout == Layout::paged)
    text += fmt::format("page_tokens = {}\npage_layout = \"{}\"\n", page_tokens, to_string(page_layout));
  if (token_heads > 0) text += fmt::format("token_heads = {}\n", token_heads);
  if (checks || !arch.empty()) text += "[target]\n";
  if (checks) text += "checks = true\n";
  if (!arch.empty()) text += fmt::format("arch = \"{}\"\n", arch);
  return text;
}

// Heads are whole blocks and whole rotation groups, in steps of 32 values. Formats that pad heads take any size;
// formats without blocks take any size of whole 16 bytes.
bool is_storable(const SideWish& side, const Registry& registry) {
  if (!side.named) return side.dim % std::max(side.block, 32) == 0;
  if (side.named->is_padded) return true;
  if (side.block == 1 && !side.named->is_transformed()) return side.dim * side.named->block_bytes % 16 == 0;
  return side.dim % 32 == 0 && side.stored(registry).has_value();
}

bool is_too_wide(const SideWish& v, const Registry& registry) {
  const int dim = v.rotated_dim(registry);
  return dim > 512 && dim % 512 != 0;
}

// V must have K's blocks. Formats with one block a head have the same blocks only for heads of one size.
bool can_be_front(const SideWish& v, const SideWish& k, const Registry& registry) {
  if (k.toml != v.toml || !k.named || k.named->is_transformed() || v.dim > k.dim) return false;
  const auto front = v.stored(registry), row = k.stored(registry);
  return front && row && front->block == row->block;
}

bool can_take_heads(const Draw& draw, int heads, const Registry& registry) {
  for (const SideWish* side : {&draw.k, &draw.v})
    if (!fills_lanes(*side) || (side->named && side->named->has_head_scales()) ||
        (side->named ? token_bytes(*side, heads, registry) % 16 != 0 : heads % 8 != 0))
      return false;
  return certainly_fits(draw, heads, registry);
}

// Several warps hold an output of more than 512 values, and each warp stages its own rows. So long rows may need more
// shared memory than a block has.
std::vector<std::string> limits(const Draw& draw, const Registry& registry) {
  std::vector<std::string> says;
  // The bytes of formats that are stated by numbers are left to the library.
  if (draw.token_heads % 8 != 0 && (!draw.k.named || !draw.v.named)) says.emplace_back("bytes a token, no multiple of");
  if (draw.token_heads > 0 && !certainly_fits(draw, draw.token_heads, registry)) {
    says.emplace_back("leave no block shape in");
    return says;
  }
  const auto keys = draw.k.stored(registry);
  if (keys && keys->head_bytes(draw.k.dim) >= 512 && draw.v.rotated_dim(registry) > 512)
    says.emplace_back("bytes of shared memory on");
  return says;
}

std::vector<std::string> refusals(const Draw& draw, const Registry& registry) {
  std::vector<std::string> says;
  const auto rule = [&](bool is_broken, std::initializer_list<const char*> texts) {
    if (is_broken) says.insert(says.end(), texts.begin(), texts.end());
  };
  for (const SideWish* side : {&draw.k, &draw.v}) {
    rule(!is_storable(*side, registry), {"is not a multiple of", "must be one of 16 bytes", "cannot store heads of"});
    const auto stored = side->stored(registry);
    rule(draw.is_of_rows() && stored && stored->head_bytes(side->dim) % 2 != 0, {"rows of an even number of bytes"});
  }
  rule(draw.mask_slopes && !draw.mask, {"multiplies a mask that is not there"});
  rule(draw.mask_slopes && draw.alibi, {"both take the slopes"});
  rule(draw.append && draw.position_offset, {"append stores the new tokens"});
  rule(draw.append && draw.token_ranges, {"append stores new tokens"});
  rule(draw.varlen && (draw.append || draw.token_heads > 0), {"with query_length = \"any\""});
  rule(draw.token_heads == 0 && is_too_wide(draw.v, registry), {"has no registers for"});
  if (draw.token_heads == 0) return says;
  rule(draw.append, {"is not served with it"});
  rule(draw.gqa * draw.queries > kMostHeadRows, {"query rows of a head"});
  for (const SideWish* side : {&draw.k, &draw.v}) {
    rule(!fills_lanes(*side), {"do not fill the lanes of a warp"});
    rule(side->named && side->named->has_head_scales(), {"a scale for each head"});
    rule(token_bytes(*side, draw.token_heads, registry) % 16 != 0, {"bytes a token, no multiple of 16"});
  }
  return says;
}

}  // namespace kvjit::fuzz
