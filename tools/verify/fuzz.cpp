// Draws random specs and calls: see fuzz.hpp. draw_spec draws the spec, draw_token_heads changes some specs to
// token-major heads, draw_call draws sizes, row places and the call. The meaning of a seed depends on the order of
// draws. So a new draw takes a separate random stream, and old seeds still name the same specs.
// SPDX-License-Identifier: MIT
#include "tools/verify/fuzz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/verify/fuzz_rules.hpp"
#include "tools/verify/uniform.hpp"

namespace kvjit {

using namespace fuzz;

namespace {

constexpr double kMostWork = 1e8;  // products of one call: about a second on the CPU back-end
constexpr int kMostTokens = 700;   // of a sequence
constexpr int kMostRows = 160;     // query rows

// A named format, or (one in eight) one that the spec describes inline by its parameters.
SideWish side(Uniform& random, const Registry& registry) {
  SideWish wish;
  if (random.once_in(8)) {
    wish.block = random.one_of<int>({32, 64, 128});
    const std::vector<std::string> rotations = {"none", "wht_signed"};
    wish.toml = fmt::format("bits = {}\nblock = {}\nrotation = \"{}\"\n", 1 + random.below(8), wish.block,
                            random.one_of(rotations));
    return wish;
  }
  std::vector<const Format*> all;
  for (const auto& [name, format] : registry.formats())
    if (!format.has_segments()) all.push_back(&format);  // records have few head sizes, and tests of their own
  wish.named = random.one_of(all);
  wish.block = wish.named->block;
  wish.toml = fmt::format("format = \"{}\"\n", wish.named->name);
  return wish;
}

// Draws features that may be combined, except for a few combinations that break a rule on purpose.
void draw_features(Draw& draw, Uniform& random) {
  constexpr int kBroken = 60;  // one in so many specs breaks a rule
  draw.causal = random.once_in(2);
  draw.mask = random.once_in(4);
  draw.mask_slopes = (draw.mask && random.once_in(2)) || random.once_in(kBroken);
  draw.alibi = (!draw.mask_slopes && random.once_in(5)) || random.once_in(kBroken);
  draw.packed_mask = random.once_in(6);
  draw.sinks = random.once_in(4);
  draw.lse = random.once_in(3);
  draw.append = random.once_in(7);
  draw.position_offset = random.once_in(6) && (!draw.append || random.once_in(kBroken / 7));
  draw.softcap = random.once_in(4) ? random.one_of<double>({5, 30, 50}) : 0;
  if (random.once_in(4))
    draw.window = {random.one_of<int>({-1, 0, 1, 15, 63, random.below(300)}), random.one_of<int>({-1, 0, 3})};
  draw.fuse = !random.once_in(8);
  draw.checks = random.once_in(10);
  const std::vector<std::string> types = {"f16", "f16", "bf16", "f32"};
  draw.q_type = random.one_of(types), draw.out_type = random.one_of(types);
}

Draw draw_spec(Uniform& random, const Registry& registry) {
  Draw draw;
  draw.k = side(random, registry), draw.v = random.once_in(3) ? draw.k : side(random, registry);
  const std::vector<int> dims = {32, 40, 64, 64, 72, 80, 96, 112, 128, 128, 128, 192, 256, 256, 320, 512, 576};
  draw.k.dim = random.one_of(dims), draw.v.dim = random.once_in(3) ? random.one_of(dims) : draw.k.dim;
  for (SideWish* side : {&draw.k, &draw.v})
    for (int tries = random.once_in(40) ? 0 : 100; tries > 0 && !is_storable(*side, registry); --tries)
      side->dim = random.one_of(dims);
  const bool may_be_wide = draw.v.named && !draw.v.named->is_transformed() && random.once_in(10);
  while (is_too_wide(draw.v, registry) && !may_be_wide) do
      draw.v.dim = random.one_of(dims);
    while (!is_storable(draw.v, registry));
  draw_features(draw, random);
  draw.gqa = random.one_of<int>({1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16, 20, 32});
  draw.queries =
      std::min(random.one_of<int>({1, 1, 1, 2, 3, 4, 8, 1 + random.below(75)}), std::max(kMostRows / draw.gqa, 1));
  draw.layout = random.one_of<Layout>({Layout::rows, Layout::planar, Layout::paged});
  draw.page_layout = random.one_of<Layout>({Layout::rows, Layout::planar});
  draw.page_tokens = 8 << random.below(6);
  // sparse_v needs a warp that holds the whole output.
  const bool is_alone = draw.gqa * draw.queries <= 8 && draw.v.rotated_dim(registry) <= 256;
  if (is_alone && random.once_in(3)) draw.sparse_v = random.one_of<double>({1e-9, 1e-4});
  return draw;
}

// Makes the spec one of token-major heads, with as many heads and query rows as the rules allow. One in kBroken breaks
// a rule on purpose. Every other one has no features, as tile features have a form of their own without.
void draw_token_heads(Draw& draw, Uniform& random, const Registry& registry) {
  constexpr int kBroken = 20;
  std::vector<int> counts = {2, 3, 4, 5, 6, 8, 8, 12, 16};
  if (!random.once_in(kBroken))
    std::erase_if(counts, [&](int heads) { return !can_take_heads(draw, heads, registry); });
  if (counts.empty()) return;
  draw.token_heads = random.one_of(counts), draw.layout = Layout::rows;
  if (!random.once_in(kBroken)) draw.append = false;
  if (random.once_in(2)) {
    draw.alibi = draw.mask = draw.mask_slopes = draw.packed_mask = draw.token_ranges = draw.position_offset = false;
    draw.sinks = draw.lse = false;
    draw.softcap = 0, draw.window = {};
  }
  if (random.once_in(kBroken)) return;
  draw.gqa = std::min(draw.gqa, kMostHeadRows), draw.queries = std::min(draw.queries, kMostHeadRows / draw.gqa);
}

// Makes the spec one of run-time query lengths. One in kBroken breaks a rule on purpose.
void draw_varlen(Draw& draw, Uniform& random) {
  constexpr int kBroken = 20;
  if (draw.token_heads > 0 && !random.once_in(kBroken)) return;
  draw.varlen = true;
  if (!random.once_in(kBroken)) draw.append = false;
  draw.queries = 1 + random.below(std::max(kMostRows / draw.gqa, 1));
  draw.sparse_v = 0;  // it needs a warp that holds the whole output of all queries
}

// The queries of the call: one number for all sequences, or a ragged batch, of which a third has no queries or few.
void draw_queries(FuzzCase& result, const Draw& draw, Uniform& random) {
  KernelHarness::Call& call = result.call;
  if (random.once_in(3)) {
    call.queries = 1 + random.below(draw.queries);
    return;
  }
  for (int s = 0; s < result.shape.sequences; ++s)
    call.query_counts.push_back(random.once_in(3) ? random.below(std::min(draw.queries, 3) + 1)
                                                  : random.below(draw.queries + 1));
  if (*std::max_element(call.query_counts.begin(), call.query_counts.end()) == 0) call.query_counts[0] = 1;
}

// Whether a format holds numbers beyond the range of f16.
bool is_wide(const Format& format) {
  const bool has_wide_scale = format.has_scale() && format.scale.type != ScaleType::f16 &&
                              format.scale.type != ScaleType::e4m3 && format.scale.type != ScaleType::ue4m3;
  return !format.has_segments() && !format.is_transformed() &&
         (has_wide_scale || format.has_tensor_scale() ||
          (format.codes().kind == CodeKind::plain && format.codes().element != Element::f16));
}

// Gives a spec formats beyond the range of f16, and queries and outputs that hold such numbers. Few of all formats are
// wide, and faults of range are in these.
void draw_wide(Draw& draw, Uniform& random, const Registry& registry) {
  std::vector<const Format*> wide;
  for (const auto& [name, format] : registry.formats())
    if (is_wide(format)) wide.push_back(&format);
  for (SideWish* side : {&draw.k, &draw.v}) {
    if (random.once_in(3)) continue;
    SideWish other = *side;
    other.named = random.one_of(wide);
    other.block = other.named->block;
    other.toml = fmt::format("format = \"{}\"\n", other.named->name);
    if (is_storable(other, registry) && (side == &draw.k || !is_too_wide(other, registry))) *side = other;
  }
  const std::vector<std::string> types = {"bf16", "f32"};
  draw.q_type = random.one_of(types), draw.out_type = random.one_of(types);
}

// A length in tokens. Half of the lengths are next to a multiple of a tile, a page or a block of a mask.
int length(Uniform& random) {
  const int near = random.one_of<int>({0, 16, 32, 64, 128, 256, 512}) + random.below(3) - 1;
  return random.once_in(2) ? std::max(near, 0) : random.below(kMostTokens + 1);
}

// Draws the counts of sequences, heads and tokens, the places of rows, and the call.
void draw_call(FuzzCase& result, const Draw& draw, const Registry& registry, Uniform& random) {
  CacheShape& shape = result.shape;
  shape.sequences = 1 + random.below(4), shape.kv_heads = 1 + random.below(4);
  if (draw.token_heads > 0) shape.kv_heads = draw.token_heads;
  const double row_work = double(draw.gqa) * draw.queries * (draw.k.dim + draw.v.dim);
  const auto work = [&] { return shape.sequences * shape.kv_heads * row_work * kMostTokens; };
  while (work() > 4 * kMostWork && shape.sequences * shape.kv_heads > 1)
    (shape.sequences > 1 ? shape.sequences : shape.kv_heads) -= 1;
  const int most_tokens = static_cast<int>(kMostTokens * std::clamp(kMostWork / work(), 0.1, 1.));
  KernelHarness::Call& call = result.call;
  if (random.once_in(4))
    call.tokens = std::clamp(length(random), 1, most_tokens);
  else
    for (int s = 0; s < shape.sequences; ++s) call.lengths.push_back(std::min(length(random), most_tokens));
  const std::vector<int> lengths = result.lengths();
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) call.lengths[0] = 1;
  shape.tokens = std::max(longest, 1) + random.below(20);
  call.blocks = random.one_of<int>({0, 0, 1, 2, 3, 7, 17, 64});
  call.is_reference = !draw.append && random.once_in(8);
  call.q = {random.once_in(2), random.one_of<int>({0, 0, 1, 8, 24})};
  call.out = {random.once_in(2), random.one_of<int>({0, 0, 1, 8, 24})};
  result.variant = random.below(3);
  result.leaves_sinks = draw.sinks && random.once_in(3);
  result.writes_on_device = draw.append || random.once_in(5);
  result.new_type = random.one_of<Element>({Element::f16, Element::bf16, Element::f32});
  for (const int s : {0, 1})
    if (const SideWish& one = s == 0 ? draw.k : draw.v; one.named && one.named->has_tensor_scale())
      result.tensor_scale[s] = random.one_of<float>({1.f, 0.25f, 3.f});
  shape.places = random.one_of<PagePlaces>({PagePlaces::own, PagePlaces::other, PagePlaces::slots});
  if (draw.layout != Layout::rows || random.once_in(2)) return;
  RowPlaces& rows = shape.rows;
  rows = {random.once_in(2), 2 * random.below(16), 2 * random.below(20), 1 + random.below(2), false, false};
  rows.shares_sequences = !result.writes_on_device && random.once_in(4);
  if (draw.token_heads > 0) {  // token-major heads need dense rows at multiples of 16 bytes
    rows.by_head = false, rows.front = rows.front / 16 * 16, rows.behind = 0, rows.capacity_factor = 1;
    return;
  }
  rows.has_values_in_keys = !result.writes_on_device && can_be_front(draw.v, draw.k, registry) && random.once_in(2);
  if (rows.has_values_in_keys) result.tensor_scale[1] = result.tensor_scale[0];
}

// The archs that have bulk copies, which token-major heads need.
std::vector<std::string> with_bulk_copies(std::vector<std::string> archs, const Registry& registry) {
  std::erase_if(archs, [&](const std::string& name) {
    const auto arch = registry.require_arch(name, {});
    return !arch || !(*arch)->has("bulk_copy");
  });
  return archs;
}

}  // namespace

std::vector<int> FuzzCase::lengths() const {
  return call.lengths.empty() ? std::vector<int>(static_cast<std::size_t>(shape.sequences), call.tokens) : call.lengths;
}

bool FuzzCase::expects(const std::string& refusal) const {
  const auto is_said = [&](const std::string& text) { return refusal.find(text) != std::string::npos; };
  return std::any_of(refusals.begin(), refusals.end(), is_said) || std::any_of(limits.begin(), limits.end(), is_said);
}

std::string FuzzCase::text() const {
  const RowPlaces& rows = shape.rows;
  std::string text = fmt::format("# kvjit verify --fuzz 1 --seed {}\n{}", seed, toml);
  text += fmt::format("# {} sequences x {} KV heads x {} tokens, lengths {}{}, {} blocks{}\n", shape.sequences,
                      shape.kv_heads, shape.tokens, lengths(), call.lengths.empty() ? " (one for all)" : "",
                      call.blocks, call.is_reference ? ", the reference kernel" : "");
  text += fmt::format(
      "# cache: pages placed {}, rows {}, {} bytes in front, {} behind, capacity x {}{}{}, written by {}, tensor "
      "scales {}, "
      "{}\n",
      int(shape.places), rows.by_head ? "by head" : "by token", rows.front, rows.behind, rows.capacity_factor,
      rows.shares_sequences ? ", one for all sequences" : "", rows.has_values_in_keys ? ", V in K" : "",
      writes_on_device ? "quantize" : "the codec", tensor_scale[0], tensor_scale[1]);
  text += fmt::format("# queries by {} gap {}, output by {} gap {}, features variant {}{}, new tokens as {}\n",
                      call.q.by_query ? "query" : "head", call.q.gap, call.out.by_query ? "query" : "head",
                      call.out.gap, variant, leaves_sinks ? ", sinks left out" : "", to_string(new_type));
  if (!inputs.classes.empty()) text += fmt::format("# inputs: {}\n", inputs.text());
  if (!call.query_counts.empty()) text += fmt::format("# a ragged batch of {} queries\n", call.query_counts);
  if (call.queries > 0) text += fmt::format("# {} queries of each sequence\n", call.queries);
  return text;
}

std::vector<int> FuzzCase::query_counts(int query_length) const {
  if (!call.query_counts.empty()) return call.query_counts;
  return std::vector<int>(static_cast<std::size_t>(shape.sequences), call.queries > 0 ? call.queries : query_length);
}

FuzzCase fuzz_case(std::uint64_t seed, const Registry& registry, const std::vector<std::string>& archs,
                   InputClasses classes) {
  // The seed is hashed. Otherwise the streams of two neighbouring seeds would be the same, shifted by one number.
  Uniform random(Uniform(seed).bits());
  Draw draw = draw_spec(random, registry);
  if (!classes.empty())
    if (Uniform wide(Uniform(seed ^ 0x3c6ef372).bits()); wide.once_in(3)) draw_wide(draw, wide, registry);
  // Token-major heads were added later. Their separate stream leaves the specs of all other seeds unchanged.
  Uniform apart(Uniform(~seed).bits());
  if (apart.once_in(10)) draw_token_heads(draw, apart, registry);
  // As were run-time query lengths.
  Uniform varlen(Uniform(seed ^ 0x5bd1e995).bits());
  if (varlen.once_in(6)) draw_varlen(draw, varlen);
  // And ranges of tokens.
  draw.token_ranges = Uniform(Uniform(seed ^ 0x9e3779b9).bits()).once_in(8);
  FuzzCase result;
  result.seed = seed;
  result.refusals = refusals(draw, registry), result.limits = limits(draw, registry);
  draw_call(result, draw, registry, random);
  if (draw.varlen) draw_queries(result, draw, varlen);
  std::vector<std::string> possible = draw.token_heads > 0 ? with_bulk_copies(archs, registry) : archs;
  if (draw.token_heads > 0 && possible.empty()) possible = archs, result.limits.emplace_back("has no bulk copies");
  // The arch is drawn last, so that a seed is the same spec and call on every device.
  if (!possible.empty()) draw.arch = random.one_of(possible);
  // With the shared memory of these archs some specs have no block shape, or none whose registers hold wide outputs.
  constexpr int kAlwaysEnough = 160 << 10;
  const Arch* const arch = registry.arch(draw.arch);
  if (arch && arch->shared_bytes_per_block < kAlwaysEnough) {
    result.limits.emplace_back("bytes of shared memory on");
    if (draw.v.rotated_dim(registry) > 512) result.limits.emplace_back("has no registers for");
  }
  if (result.shape.rows.has_values_in_keys && seed % 2 == 0) {  // every second such program knows that V is in K's rows
    draw.v.toml += "in_keys = true\n";
    result.limits.emplace_back("with padded heads");
  }
  result.toml = draw.toml();
  Uniform inputs(Uniform(seed ^ 0xbb67ae85).bits());
  result.inputs = draw_inputs(inputs).only(classes);
  return result;
}

}  // namespace kvjit
