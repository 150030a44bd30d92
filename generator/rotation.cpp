// Rotations: their TOML, their signs (numpy's default_rng from the published algorithms: M. E. O'Neill's
// SeedSequence and PCG64 XSL-RR 128/64), and the transform itself in double.
// SPDX-License-Identifier: MIT
#include "generator/rotation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>

#include "generator/schema.hpp"

namespace kvjit {
namespace {

__extension__ using Wide = unsigned __int128;

// The hash of SeedSequence: each use also advances the constant.
struct SeedHash {
  std::uint32_t constant, multiplier;
  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> 16;
  }
};

class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    SeedHash hash{0x43b0d7e5u, 0x931e8875u};
    std::array<std::uint32_t, 4> pool{};
    for (std::size_t i = 0; i < 4; ++i) pool[i] = hash(i < 2 ? std::uint32_t(seed >> 32 * i) : 0);
    for (std::size_t from = 0; from < 4; ++from)
      for (std::size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const std::uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from]);
        pool[to] = mixed ^ mixed >> 16;
      }
    SeedHash draw{0x8b51f9ddu, 0x58f38dedu};
    std::array<Wide, 4> word{};
    for (std::size_t i = 0; i < 8; ++i) word[i / 2] |= Wide(draw(pool[i % 4])) << 32 * (i % 2);
    increment_ = (word[2] << 64 | word[3]) << 1 | 1;
    state_ = increment_ + (word[0] << 64 | word[1]);
    advance();
  }

  std::uint64_t next() {
    advance();
    return std::rotr(std::uint64_t(state_ >> 64) ^ std::uint64_t(state_), int(state_ >> 122));
  }

 private:
  void advance() { state_ = state_ * (Wide(0x2360ED051FC65DA4u) << 64 | 0x4385DF649FCCF645u) + increment_; }
  Wide state_ = 0, increment_ = 0;
};

void multiply(double* x, const std::vector<std::int8_t>& signs) {
  for (std::size_t i = 0; i < signs.size(); ++i) x[i] *= signs[i];
}

// (1/sqrt n) H, in natural order. Scaling last keeps the sums of f16 inputs exact.
void hadamard(double* x, int n) {
  for (int half = 1; half < n; half *= 2)
    for (int i = 0; i < n; ++i)
      if (!(i & half)) {
        const double a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const double norm = 1 / std::sqrt(double(n));
  for (int i = 0; i < n; ++i) x[i] *= norm;
}

void rotate(const Rotation& rotation, double* x, int n, bool is_forward) {
  if (rotation.is_identity()) return;
  for (double* group = x; group < x + n; group += rotation.size) {
    multiply(group, is_forward ? rotation.pre : rotation.post);
    hadamard(group, rotation.size);
    multiply(group, is_forward ? rotation.post : rotation.pre);
  }
}

void read_signs(schema::Table& table, std::string_view key, std::vector<std::int8_t>& out, int length) {
  std::vector<int> signs;
  table.read(key, signs, {-1, 1});
  if (!table.find(key)) return;
  if (int(signs.size()) < length || std::count(signs.begin(), signs.end(), 0))
    table.complain(table.where(key),
                   fmt::format("{} needs +1 or -1 for each of {} channels, the largest size", key, length));
  out.assign(signs.begin(), signs.end());
}

}  // namespace

Result<RotationSpec> parse_rotation(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a rotation", {file});
  RotationSpec spec;
  spec.name = std::filesystem::path(file).stem().string();
  for (const char* key : {"title", "kind", "sizes", "signs"}) top.require(key);
  top.read("title", spec.title);
  top.read("source", spec.source);
  top.read("kind", spec.kind, schema::Names<RotationKind>{{RotationKind::wht, "wht"}});
  top.read("sizes", spec.sizes, {2, 4096});
  for (int size : spec.sizes)
    if (!schema::is_power_of_two(size))
      top.complain(top.where("sizes"), fmt::format("a wht spans a power of two channels, not {}", size));
  const int largest = spec.sizes.empty() ? 0 : *std::max_element(spec.sizes.begin(), spec.sizes.end());

  schema::Table signs = top.table("signs");
  KV_CHECK(top.done());
  enum class Generator { pcg64, golden, list } generator = Generator::list;
  signs.require("generator");
  signs.read(
      "generator", generator,
      schema::Names<Generator>{{Generator::pcg64, "pcg64"}, {Generator::golden, "golden"}, {Generator::list, "list"}});
  signs.read("generator", spec.signs.generator);
  if (generator == Generator::pcg64) {
    int seed = 0;
    for (const char* key : {"seed", "draws"}) signs.require(key);
    signs.read("seed", seed, {0, std::numeric_limits<int>::max()});
    signs.read("draws", spec.signs.draws, {2, 4096});
    spec.signs.seed = std::uint64_t(seed);
  } else if (generator == Generator::list) {
    signs.require("pre");
    read_signs(signs, "pre", spec.signs.pre, largest);
    read_signs(signs, "post", spec.signs.post, largest);
  }
  KV_CHECK(signs.done());
  return spec;
}

Result<Rotation> make_rotation(const RotationSpec& spec, int size) {
  if (std::find(spec.sizes.begin(), spec.sizes.end(), size) == spec.sizes.end()) {
    return fail(Code::unsupported, fmt::format("rotation '{}' does not span {} channels", spec.name, size), {},
                {fmt::format("possible sizes: {}", fmt::join(spec.sizes, ", "))});
  }
  Rotation rotation{spec.name, spec.kind, size, {}, {}};
  if (spec.signs.generator == "pcg64") {
    const int draws = std::max(spec.signs.draws, size);
    rotation.pre = pcg64_signs(spec.signs.seed, 0, draws);
    rotation.post = pcg64_signs(spec.signs.seed, draws, draws);
  } else if (spec.signs.generator == "golden") {
    rotation.pre = golden_signs(size);
  } else {
    rotation.pre = spec.signs.pre;
    rotation.post = spec.signs.post;
  }
  rotation.pre.resize(size, 1);
  rotation.post.resize(size, 1);  // a one-sided transform states no post signs
  return rotation;
}

void rotate_forward(const Rotation& rotation, double* x, int n) { rotate(rotation, x, n, true); }
void rotate_inverse(const Rotation& rotation, double* x, int n) { rotate(rotation, x, n, false); }

std::vector<std::int8_t> pcg64_signs(std::uint64_t seed, int skip, int count) {
  Pcg64 generator(seed);
  std::vector<std::int8_t> signs;
  std::uint64_t word = 0;
  for (int draw = 0; draw < skip + count; ++draw) {
    if (draw % 2 == 0) word = generator.next();
    const bool is_plus = (draw % 2 == 0 ? word >> 31 : word >> 63) & 1;
    if (draw >= skip) signs.push_back(is_plus ? 1 : -1);
  }
  return signs;
}

std::vector<std::int8_t> golden_signs(int count) {
  std::vector<std::int8_t> signs;
  for (int i = 0; i < count; ++i) signs.push_back(std::uint32_t(i) * 0x9E3779B9u >> 31 ? -1 : 1);
  return signs;
}

}  // namespace kvjit
