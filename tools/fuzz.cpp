// Random specs: see fuzz.hpp.
// SPDX-License-Identifier: MIT
#include "tools/fuzz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/uniform.hpp"

namespace kvjit {
namespace {

constexpr double kMostWork = 1e8;  // products of one call: about a second on the CPU back-end
constexpr int kMostTokens = 700, kMostRows = 160;

// One side of a spec.
struct SideWish {
  std::string toml;
  const Format* named = nullptr;  // null: made of numbers
  int block = 0, dim = 0;
  // The format as it is stored, if heads of that size can be.
  Result<Format> stored(const Registry& registry) const {
    return named ? registry.format_for(named->name, dim, {}) : fail(Code::internal, "numbers have no name");
  }
  // Values of a head as attention has them.
  int inner_dim(const Registry& registry) const {
    const auto format = stored(registry);
    return format ? format->inner_dim(dim) : dim;
  }
};

struct Draw {
  SideWish k, v;
  int gqa = 1, queries = 1;
  Layout layout = Layout::rows, page_layout = Layout::planar;
  int page_tokens = 0;
  bool causal = false, alibi = false, mask = false, mask_slopes = false, packed_mask = false, position_offset = false;
  bool sinks = false, lse = false, append = false, fuse = true, checks = false;
  double softcap = 0, sparse_v = 0;
  std::vector<int> window;
  std::string q_type, out_type, arch;

  bool is_of_rows() const { return (layout == Layout::paged ? page_layout : layout) == Layout::rows; }
  std::string toml() const;
};

std::string Draw::toml() const {
  std::vector<std::string> features;
  const std::pair<bool, const char*> named[] = {
      {causal, "causal"},           {alibi, "alibi"}, {mask, "mask"}, {mask_slopes, "mask_slopes"},
      {packed_mask, "packed_mask"}, {sinks, "sinks"}, {lse, "lse"},   {position_offset, "position_offset"}};
  for (const auto& [wanted, name] : named)
    if (wanted) features.push_back(fmt::format("\"{}\"", name));
  std::string text = fmt::format(
      "[k]\n{}[v]\n{}[attention]\nhead_dim_k = {}\nhead_dim_v = {}\nq_heads_per_kv = {}\nquery_length = {}\n"
      "q_type = \"{}\"\nout_type = \"{}\"\n",
      k.toml, v.toml, k.dim, v.dim, gqa, queries, q_type, out_type);
  if (!features.empty()) text += fmt::format("features = [{}]\n", fmt::join(features, ", "));
  if (softcap > 0) text += fmt::format("softcap = {:.1f}\n", softcap);
  if (!window.empty()) text += fmt::format("window = [{}, {}]\n", window[0], window[1]);
  if (append) text += "append = true\n";
  if (!fuse) text += "fuse = false\n";
  if (sparse_v > 0) text += fmt::format("sparse_v = {}\n", sparse_v);
  text += fmt::format("[cache]\nlayout = \"{}\"\n", to_string(layout));
  if (layout == Layout::paged)
    text += fmt::format("page_tokens = {}\npage_layout = \"{}\"\n", page_tokens, to_string(page_layout));
  if (checks || !arch.empty()) text += "[target]\n";
  if (checks) text += "checks = true\n";
  if (!arch.empty()) text += fmt::format("arch = \"{}\"\n", arch);
  return text;
}

// Whether heads of its size can be stored: whole blocks and whole groups of rotation, 32 values at a time; padded formats take any
// size, numbers without blocks any of whole 16 bytes.
bool is_storable(const SideWish& side, const Registry& registry) {
  if (!side.named) return side.dim % std::max(side.block, 32) == 0;
  if (side.named->is_padded) return true;
  if (side.block == 1 && !side.named->is_transformed()) return side.dim * side.named->block_bytes % 16 == 0;
  return side.dim % 32 == 0 && side.stored(registry).has_value();
}

// Warps share the output by halves, and of more than 512 values only multiples of that split so.
bool is_too_wide(const SideWish& v, const Registry& registry) {
  const int dim = v.inner_dim(registry);
  return dim > 512 && dim % 512 != 0;
}

// Whether the front of K's rows is a row of V: the blocks are the same, which those of a whole head are only in heads of one size.
bool can_be_front(const SideWish& v, const SideWish& k, const Registry& registry) {
  if (k.toml != v.toml || !k.named || k.named->is_transformed() || v.dim > k.dim) return false;
  const auto front = v.stored(registry), row = k.stored(registry);
  return front && row && front->block == row->block;
}

// Several warps share an output of more than 512 values, and each stages rows of its own: long ones may be too many bytes.
std::vector<std::string> limits(const Draw& draw, const Registry& registry) {
  const auto keys = draw.k.stored(registry);
  if (!keys || keys->head_bytes(draw.k.dim) < 512 || draw.v.inner_dim(registry) <= 512) return {};
  return {"bytes of shared memory on"};
}

// What the library refuses, by rules of README "Spec file" and "Limits of decode", and what it says then.
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
  rule(draw.append && draw.position_offset, {"append stores the newest tokens"});
  rule(is_too_wide(draw.v, registry), {"has no registers for"});
  return says;
}

SideWish side(Uniform& random, const Registry& registry) {
  SideWish made;
  if (random.once_in(8)) {
    made.block = random.one_of<int>({32, 64, 128});
    const std::vector<std::string> rotations = {"none", "wht_signed"};
    made.toml = fmt::format("bits = {}\nblock = {}\nrotation = \"{}\"\n", 1 + random.below(8), made.block,
                            random.one_of(rotations));
    return made;
  }
  std::vector<const Format*> all;
  for (const auto& [name, format] : registry.formats()) all.push_back(&format);
  made.named = random.one_of(all);
  made.block = made.named->block;
  made.toml = fmt::format("format = \"{}\"\n", made.named->name);
  return made;
}

// Features that go together but for a few.
void draw_features(Draw& draw, Uniform& random) {
  constexpr int kBroken = 60;  // one in so many breaks a rule
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
  // Where one warp has room for the whole output.
  const bool is_alone = draw.gqa * draw.queries <= 8 && draw.v.inner_dim(registry) <= 256;
  if (is_alone && random.once_in(3)) draw.sparse_v = random.one_of<double>({1e-9, 1e-4});
  return draw;
}

// A length near something that kernels count in: tiles, pages, blocks of masks.
int length(Uniform& random) {
  const int near = random.one_of<int>({0, 16, 32, 64, 128, 256, 512}) + random.below(3) - 1;
  return random.once_in(2) ? std::max(near, 0) : random.below(kMostTokens + 1);
}

// How many sequences, heads and tokens, where they lie, and how the call is made.
void draw_call(FuzzCase& made, const Draw& draw, const Registry& registry, Uniform& random) {
  CacheShape& shape = made.shape;
  shape.sequences = 1 + random.below(4), shape.kv_heads = 1 + random.below(4);
  const double row_work = double(draw.gqa) * draw.queries * (draw.k.dim + draw.v.dim);
  const auto work = [&] { return shape.sequences * shape.kv_heads * row_work * kMostTokens; };
  while (work() > 4 * kMostWork && shape.sequences * shape.kv_heads > 1)
    (shape.sequences > 1 ? shape.sequences : shape.kv_heads) -= 1;
  const int most_tokens = static_cast<int>(kMostTokens * std::clamp(kMostWork / work(), 0.1, 1.));
  Trial::Call& call = made.call;
  if (random.once_in(4))
    call.tokens = std::clamp(length(random), 1, most_tokens);
  else
    for (int s = 0; s < shape.sequences; ++s) call.lengths.push_back(std::min(length(random), most_tokens));
  const std::vector<int> lengths = made.lengths();
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) call.lengths[0] = 1;
  shape.tokens = std::max(longest, 1) + random.below(20);
  call.blocks = random.one_of<int>({0, 0, 1, 2, 3, 7, 17, 64});
  call.is_reference = !draw.append && random.once_in(8);
  call.q = {random.once_in(2), random.one_of<int>({0, 0, 1, 8, 24})};
  call.out = {random.once_in(2), random.one_of<int>({0, 0, 1, 8, 24})};
  made.variant = random.below(3);
  made.leaves_sinks = draw.sinks && random.once_in(3);
  made.writes_on_device = draw.append || random.once_in(5);
  made.new_type = random.one_of<Element>({Element::f16, Element::bf16, Element::f32});
  for (const int s : {0, 1})
    if (const SideWish& one = s == 0 ? draw.k : draw.v; one.named && one.named->scale.rule == ScaleRule::tensor)
      made.tensor_scale[s] = random.one_of<float>({1.f, 0.25f, 3.f});
  shape.places = random.one_of<PagePlaces>({PagePlaces::own, PagePlaces::other, PagePlaces::slots});
  if (draw.layout != Layout::rows || random.once_in(2)) return;
  RowPlaces& rows = shape.rows;
  rows = {random.once_in(2), 2 * random.below(16), 2 * random.below(20), 1 + random.below(2), false, false};
  rows.shares_sequences = !made.writes_on_device && random.once_in(4);
  rows.has_values_in_keys = !made.writes_on_device && can_be_front(draw.v, draw.k, registry) && random.once_in(2);
  if (rows.has_values_in_keys) made.tensor_scale[1] = made.tensor_scale[0];
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
      "# cache: pages placed {}, rows {}, {} bytes in front, {} behind, room {}{}{}, written by {}, tensor scales {}, "
      "{}\n",
      int(shape.places), rows.by_head ? "by head" : "by token", rows.front, rows.behind, rows.room,
      rows.shares_sequences ? ", one for all sequences" : "", rows.has_values_in_keys ? ", V in K" : "",
      writes_on_device ? "quantise" : "the codec", tensor_scale[0], tensor_scale[1]);
  text += fmt::format("# queries by {} gap {}, output by {} gap {}, features variant {}{}, new tokens as {}\n",
                      call.q.by_query ? "query" : "head", call.q.gap, call.out.by_query ? "query" : "head",
                      call.out.gap, variant, leaves_sinks ? ", sinks left out" : "", to_string(new_type));
  return text;
}

FuzzCase fuzz_case(std::uint64_t seed, const Registry& registry, const std::vector<std::string>& archs) {
  Uniform random(Uniform(seed).bits());  // neighbours' numbers are each other's, moved by one
  Draw draw = draw_spec(random, registry);
  FuzzCase made;
  made.seed = seed;
  made.refusals = refusals(draw, registry), made.limits = limits(draw, registry);
  draw_call(made, draw, registry, random);
  if (!archs.empty()) draw.arch = random.one_of(archs);  // last: a seed is the same spec and call on every device
  made.toml = draw.toml();
  return made;
}

}  // namespace kvjit
