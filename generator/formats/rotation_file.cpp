// Reads files of specs/rotations into a RotationSpec. specs/docs/formats.md ("Keys of a rotation") is the reference of
// their keys.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "generator/base/schema.hpp"
#include "generator/formats/rotation.hpp"

namespace kvjit {
namespace {

// Reads a seed. A non-negative integer of TOML has 63 bits; some generators take 32.
void read_seed(schema::Table& table, std::uint64_t& seed, std::uint64_t largest) {
  table.require("seed");
  table.takes("seed", schema::Node::Kind::integer);
  table.takes_range("seed", 0, static_cast<long long>(largest));
  const schema::Node* node = table.find("seed");
  if (!node) return;
  if (node->kind != schema::Node::Kind::integer || node->integer < 0 || std::uint64_t(node->integer) > largest)
    return table.complain(node->where, fmt::format("seed must be an integer, 0..{:#x}", largest));
  seed = std::uint64_t(node->integer);
}
constexpr std::uint64_t kSeed32 = 0xFFFFFFFFu, kSeed64 = 0x7FFFFFFFFFFFFFFFu;

void read_sizes(schema::Table& table, RotationKind kind, std::vector<int>& sizes) {
  table.require("sizes");
  table.read("sizes", sizes, {2, 4096});
  for (int size : sizes) {
    if (kind == RotationKind::wht && !schema::is_power_of_two(size))
      table.complain(table.where("sizes"), fmt::format("a wht spans a power of two channels, not {}", size));
    // A warp holds value i of a row in lane i % 32, so a size must fit whole registers, or divide 32.
    if (kind == RotationKind::dense && size % 32)
      table.complain(table.where("sizes"),
                     fmt::format("a dense rotation spans a multiple of 32 channels, not {}", size));
    if (kind == RotationKind::blocks && size % 32 && 32 % size)
      table.complain(table.where("sizes"),
                     fmt::format("blocks span a divisor or a multiple of 32 channels, not {}", size));
  }
}

void check_length(schema::Table& table, std::string_view key, std::size_t length, int wanted, const char* what) {
  if (int(length) < wanted)
    table.complain(table.where(key),
                   fmt::format("{} needs {} for each of {} channels, the largest size", key, what, wanted));
}

void read_signs(schema::Table& table, std::string_view key, std::vector<std::int8_t>& out, int largest) {
  std::vector<int> signs;
  table.read(key, signs, {-1, 1});
  if (!table.find(key)) return;
  if (std::count(signs.begin(), signs.end(), 0)) signs.clear();
  check_length(table, key, signs.size(), largest, "+1 or -1");
  out.assign(signs.begin(), signs.end());
}

// Reads signs as hexadecimal words of 2, 4 or 8 digits. The first channel is the lowest bit of the first word, and a
// set bit is -1. A string of the list may hold several words.
void read_mask(schema::Table& table, std::string_view key, std::vector<std::int8_t>& out, int largest) {
  std::vector<std::string> lines;
  table.read(key, lines);
  if (!table.find(key)) return;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      std::uint32_t bits = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bits, 16);
      if (error != std::errc() || end != word.data() + word.size() ||
          (word.size() != 2 && word.size() != 4 && word.size() != 8))
        return table.complain(
            table.where(key),
            fmt::format("{} is a list of hexadecimal words of 2, 4 or 8 digits, not '{}'", key, word));
      for (std::size_t i = 0; i < 4 * word.size(); ++i) out.push_back(bits >> i & 1 ? -1 : 1);
    }
  }
  check_length(table, key, out.size(), largest, "a bit");
}

// Reads of how many channels of a head the signs are, where its groups have different ones.
void read_channels(schema::Table& table, const std::vector<int>& sizes, int& channels) {
  table.read("channels", channels, {64, 4096});
  if (!table.find("channels")) return;
  for (const int size : sizes)
    if (size < 32 || channels % size != 0)
      table.complain(table.where("channels"), fmt::format("{} channels are no whole groups of {}, or a group has "
                                                          "fewer than 32",
                                                          channels, size));
  if (table.find("post"))
    table.complain(table.where("post"), "signs of all channels of a head are those before the transform");
}

// The values of `generator` in [signs]; list and mask are both SignGenerator::listed.
enum class Notation { unknown, none, pcg64, mt19937, golden, list, mask };

SignSource read_sign_source(schema::Table& table, const std::vector<int>& sizes) {
  SignSource source;
  source.sizes = sizes;
  const int largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  Notation notation = Notation::unknown;
  table.require("generator");
  table.read("generator", notation,
             schema::Names<Notation>{{Notation::none, "none"},
                                     {Notation::pcg64, "pcg64"},
                                     {Notation::mt19937, "mt19937"},
                                     {Notation::golden, "golden"},
                                     {Notation::list, "list"},
                                     {Notation::mask, "mask"}});
  switch (notation) {
    case Notation::unknown:  // The generator is missing or wrong; its other keys are not complained about, too.
      for (const char* key : {"seed", "draws", "pre", "post", "channels"}) table.find(key);
      break;
    case Notation::none:
      break;
    case Notation::pcg64:
      source.generator = SignGenerator::pcg64;
      read_seed(table, source.seed, kSeed64);
      table.require("draws");
      table.read("draws", source.draws, {2, 4096});
      break;
    case Notation::mt19937:
      source.generator = SignGenerator::mt19937;
      read_seed(table, source.seed, kSeed32);
      break;
    case Notation::golden:
      source.generator = SignGenerator::golden;
      break;
    case Notation::list:
    case Notation::mask:
      source.generator = SignGenerator::listed;
      table.require("pre");
      const auto read = notation == Notation::list ? read_signs : read_mask;
      read_channels(table, sizes, source.channels);
      read(table, "pre", source.pre, std::max(largest, source.channels));
      read(table, "post", source.post, largest);
      break;
  }
  return source;
}

// Reads the signs of a wht. One [signs] serves all sizes of the file; of several [[signs]] each states its own sizes.
Result<void> read_wht(schema::Table& top, RotationSpec& spec) {
  top.require("signs");
  top.takes_items("signs", schema::Node::Kind::table);
  const schema::Node* signs = top.find("signs");
  if (!signs || signs->kind != schema::Node::Kind::list) {
    read_sizes(top, spec.kind, spec.sizes);
    schema::Table table = top.table("signs");
    KV_CHECK(top.done());
    spec.signs.push_back(read_sign_source(table, spec.sizes));
    return table.done();
  }
  if (top.find("sizes")) top.complain(top.where("sizes"), "sizes stand in each [[signs]]");
  KV_CHECK(top.done());
  for (const schema::Node& item : signs->items) {
    schema::Table table(&item, "[[signs]]", item.where);
    std::vector<int> sizes;
    read_sizes(table, spec.kind, sizes);
    for (int size : sizes) {
      if (std::count(spec.sizes.begin(), spec.sizes.end(), size))
        table.complain(table.where("sizes"), fmt::format("another [[signs]] spans {} channels", size));
      spec.sizes.push_back(size);
    }
    spec.signs.push_back(read_sign_source(table, sizes));
    KV_CHECK(table.done());
  }
  return {};
}

// The largest entry of |R R^T - I|.
double distance_from_orthogonal(const std::vector<double>& r, int n) {
  double largest = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j) {
      double sum = i == j ? -1 : 0;
      for (int k = 0; k < n; ++k) sum += r[std::size_t(i * n + k)] * r[std::size_t(j * n + k)];
      largest = std::max(largest, std::abs(sum));
    }
  return largest;
}

Result<void> read_dense(schema::Table& top, RotationSpec& spec) {
  read_sizes(top, spec.kind, spec.sizes);
  top.require("matrix");
  schema::Table table = top.table("matrix");
  KV_CHECK(top.done());
  MatrixSource& source = spec.matrix;
  std::vector<double> values;
  table.require("generator");
  table.read("generator", source.generator,
             schema::Names<MatrixGenerator>{{MatrixGenerator::householder, "householder"},
                                            {MatrixGenerator::gaussian, "gaussian"},
                                            {MatrixGenerator::listed, "list"}});
  if (source.generator != MatrixGenerator::listed) {
    read_seed(table, source.seed, kSeed64);
  } else {
    constexpr double kTolerance = 1e-4;  // published tables have about seven digits
    table.require("values");
    table.read("values", values);
    const int n = spec.sizes.empty() ? 0 : spec.sizes.front();
    if (spec.sizes.size() != 1)
      table.complain(top.where("sizes"), "a listed matrix has one size");
    else if (table.find("values") && int(values.size()) != n * n)
      table.complain(table.where("values"),
                     fmt::format("values needs {0} x {0} numbers, row by row, not {1}", n, values.size()));
    else if (table.find("values") && distance_from_orthogonal(values, n) > kTolerance)
      table.complain(table.where("values"), "the rows of a listed matrix must be orthogonal and of length 1");
  }
  KV_CHECK(table.done());
  const auto draw = source.generator == MatrixGenerator::householder ? householder_matrix : gaussian_matrix;
  for (const int size : spec.sizes)
    source.by_size[size] = source.generator == MatrixGenerator::listed
                               ? Matrix(values)
                               : Matrix([draw, seed = source.seed, size] { return draw(seed, size); });
  return {};
}

Result<void> read_blocks(schema::Table& top, RotationSpec& spec) {
  read_sizes(top, spec.kind, spec.sizes);
  top.require("blocks");
  schema::Table table = top.table("blocks");
  KV_CHECK(top.done());
  BlockSource& source = spec.blocks;
  for (const char* key : {"map", "generator"}) table.require(key);
  table.read("map", source.map,
             schema::Names<BlockMap>{
                 {BlockMap::givens, "givens"}, {BlockMap::quaternion, "quaternion"}, {BlockMap::rotor, "rotor"}});
  table.read("generator", source.is_listed, schema::Names<bool>{{false, "torch"}, {true, "list"}});
  const int largest = spec.sizes.empty() ? 0 : *std::max_element(spec.sizes.begin(), spec.sizes.end());
  const int blocks = largest / block_width(source.map);
  if (!source.is_listed) {
    read_seed(table, source.seed, kSeed32);
  } else if (source.map == BlockMap::givens) {
    table.require("angles");
    table.read("angles", source.angles);
    if (table.find("angles") && int(source.angles.size()) < blocks)
      table.complain(table.where("angles"), fmt::format("angles needs a number for each of {} pairs", blocks));
  } else {
    table.require("quaternions");
    table.read("quaternions", source.quaternions);
    if (table.find("quaternions") && int(source.quaternions.size()) < 4 * blocks)
      table.complain(table.where("quaternions"),
                     fmt::format("quaternions needs w, x, y, z for each of {} blocks", blocks));
    for (std::size_t i = 0; i + 4 <= source.quaternions.size(); i += 4)
      if (const double* q = &source.quaternions[i]; q[0] == 0 && q[1] == 0 && q[2] == 0 && q[3] == 0)
        table.complain(table.where("quaternions"), "a quaternion of length 0 rotates nothing");
  }
  return table.done();
}

}  // namespace

Result<RotationSpec> parse_rotation(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a rotation", {file});
  RotationSpec spec;
  spec.name = std::filesystem::path(file).stem().string();
  for (const char* key : {"title", "kind"}) top.require(key);
  top.read("title", spec.title);
  top.read("source", spec.source);
  top.read("kind", spec.kind,
           schema::Names<RotationKind>{
               {RotationKind::wht, "wht"}, {RotationKind::dense, "dense"}, {RotationKind::blocks, "blocks"}});
  switch (spec.kind) {
    case RotationKind::wht:
      KV_CHECK(read_wht(top, spec));
      break;
    case RotationKind::dense:
      KV_CHECK(read_dense(top, spec));
      break;
    case RotationKind::blocks:
      KV_CHECK(read_blocks(top, spec));
      break;
    case RotationKind::none:  // The kind is missing or not known: mark the other keys as known, and complain.
      top.find("sizes");
      for (const char* key : {"signs", "matrix", "blocks"}) top.find(key);
      KV_CHECK(top.done());
      break;
  }
  return spec;
}

}  // namespace kvjit
