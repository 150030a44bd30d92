// Formats from files and from inline numbers. Both fill the axes, then derive() fixes sizes and offsets.
// SPDX-License-Identifier: MIT
#include "generator/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "generator/codebook.hpp"
#include "generator/schema.hpp"

namespace kvjit {
namespace {

// What the numbers of a codebook are multiples of.
enum class Unit {
  inv_sqrt,  // coordinates of a unit vector of `block` values: used as listed
  normal,    // N(0,1): divided by sqrt(block) here
  amax,      // a block whose largest magnitude is the scale: divided by the largest magnitude here
};

bool is_norm(ScaleRule rule) { return rule == ScaleRule::raw_norm || rule == ScaleRule::corrected_norm; }

void scale_to(Unit unit, int block, std::vector<double>& values) {
  double divisor = 1;
  if (unit == Unit::normal) divisor = std::sqrt(double(block));
  if (unit == Unit::amax && !values.empty()) divisor = std::max(-values.front(), values.back());
  for (double& v : values) v /= divisor;
}

// Kernels hold tables in float32, so that is what a table is.
void round_to_float(std::vector<double>& values) {
  for (double& v : values) v = float(v);
}

std::vector<double> mirrored(const std::vector<double>& positive, bool with_zero) {
  std::vector<double> all(positive.rbegin(), positive.rend());
  for (double& v : all) v = -v;
  if (with_zero) all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

void derive(Format& f) {
  f.code_bytes = f.block * f.bits / 8;
  f.block_bytes = 0;
  for (Field& field : f.fields) {
    if (field.kind == FieldKind::codes) field.bytes = f.code_bytes, f.codes_at = f.block_bytes;
    if (field.kind == FieldKind::scale) field.bytes = 2, f.scale_at = f.block_bytes;
    field.at = f.block_bytes;
    f.block_bytes += field.bytes;
  }
}

void read_fields(schema::Table& top, Format& f) {
  const schema::Node* fields = top.find("fields");
  if (!fields) return;
  if (fields->kind != schema::Node::Kind::list) return top.complain(fields->where, "fields must be a list of tables");
  int codes = 0, scales = 0;
  for (const schema::Node& node : fields->items) {
    schema::Table table(&node, "[[fields]]", node.where);
    Field field;
    table.require("field");
    table.read(
        "field", field.kind,
        schema::Names<FieldKind>{{FieldKind::codes, "codes"}, {FieldKind::scale, "scale"}, {FieldKind::pad, "pad"}});
    if (field.kind == FieldKind::pad) {
      table.require("bytes");
      table.read("bytes", field.bytes, {1, 64});
    }
    codes += field.kind == FieldKind::codes;
    scales += field.kind == FieldKind::scale;
    if (Result<void> done = table.done(); !done)
      top.complain(done.error().where, done.error().message, done.error().notes);
    f.fields.push_back(field);
  }
  if (codes != 1) top.complain(fields->where, "fields must hold the codes exactly once");
  if (scales != int(f.has_scale()))
    top.complain(fields->where, f.has_scale()
                                    ? "fields must hold the scale exactly once"
                                    : "fields hold a scale, but there is no [scale] that says how it is found");
}

void read_codes(schema::Table& codes, Format& f) {
  codes.require("kind");
  codes.read(
      "kind", f.kind,
      schema::Names<CodeKind>{{CodeKind::plain, "plain"}, {CodeKind::uniform, "uniform"}, {CodeKind::table, "table"}});
  if (f.kind == CodeKind::plain) {
    codes.require("element");
    codes.read("element", f.element, schema::Names<Element>{{Element::f16, "f16"}, {Element::bf16, "bf16"}});
    return;
  }
  codes.require("bits");
  codes.read("bits", f.bits, schema::kBits);
  codes.read("packing", f.packing,
             schema::Names<Packing>{{Packing::sequential, "sequential"}, {Packing::split, "split"}});
  codes.read("twos_complement", f.twos_complement);
  f.max_code = (1 << f.bits) - 1;
  if (f.packing == Packing::split && (f.bits != 4 || f.block % 2))
    codes.complain(codes.where("packing"), "packing 'split' pairs two 4-bit codes of the halves of a block");
  if (f.block * f.bits % 8)
    codes.complain(codes.where("bits"), fmt::format("{} codes of {} bits do not fill whole bytes", f.block, f.bits));
  if (f.kind == CodeKind::table) return;
  for (const char* key : {"rounding", "offset"}) codes.require(key);
  codes.read("rounding", f.rounding,
             schema::Names<Rounding>{{Rounding::half_up, "half_up"}, {Rounding::half_away, "half_away"}});
  codes.read("offset", f.offset, {0, f.max_code});
  codes.read("max_code", f.max_code, {1, f.max_code});
}

void read_codebook(schema::Table& book, Format& f) {
  Unit unit = Unit::normal;
  bool is_symmetric = false;
  std::string rule;
  book.read("rule", rule);
  if (book.find("rule")) {
    if (rule != "lloyd_max") book.complain_choice("rule", rule, {"lloyd_max"});
    f.values = lloyd_max_normal(f.bits);
    if (f.scale == ScaleRule::amax) unit = Unit::amax;
  } else {
    for (const char* key : {"values", "unit"}) book.require(key);
    book.read("symmetric", is_symmetric);
    book.read("unit", unit,
              schema::Names<Unit>{{Unit::inv_sqrt, "inv_sqrt"}, {Unit::normal, "normal"}, {Unit::amax, "amax"}});
    book.read("values", f.values);
    if (is_symmetric) f.values = mirrored(f.values, false);
  }
  const std::size_t count = std::size_t(1) << f.bits;
  if (const schema::Node* values = book.find("values")) {
    if (const std::size_t listed = values->items.size() * (is_symmetric ? 2 : 1); listed != count)
      book.complain(values->where,
                    fmt::format("the codebook has {} values, but {}-bit codes need {}", listed, f.bits, count));
    if (std::adjacent_find(f.values.begin(), f.values.end(), std::greater_equal<>()) != f.values.end())
      book.complain(values->where, "the values of a codebook must ascend");
  }
  const schema::Node* bounds = book.find("bounds");
  const bool is_listed = bounds && bounds->kind == schema::Node::Kind::list;
  if (is_listed) {
    book.read("bounds", f.bounds);
    if (is_symmetric) f.bounds = mirrored(f.bounds, true);
    if (f.bounds.size() != count - 1 || !std::is_sorted(f.bounds.begin(), f.bounds.end()))
      book.complain(bounds->where, fmt::format("bounds must be {} ascending numbers, or \"midpoints\"; these are {}",
                                               is_symmetric ? count / 2 - 1 : count - 1, bounds->items.size()));
    scale_to(unit, f.block, f.bounds);
  } else if (bounds && bounds->text != "midpoints") {
    book.complain(bounds->where, "bounds must be a list of numbers or \"midpoints\"");
  }
  if (is_listed && unit == Unit::amax)
    book.complain(bounds->where, "bounds of a codebook in units of amax are midpoints");
  scale_to(unit, f.block, f.values);
  round_to_float(f.values);
  if (!is_listed) f.bounds = midpoints(f.values);
  round_to_float(f.bounds);
}

void read_scale(schema::Table& scale, Format& f) {
  scale.require("rule");
  scale.read("rule", f.scale,
             schema::Names<ScaleRule>{{ScaleRule::amax, "amax"},
                                      {ScaleRule::signed_max, "signed_max"},
                                      {ScaleRule::raw_norm, "raw_norm"},
                                      {ScaleRule::corrected_norm, "corrected_norm"}});
  std::string storage = "f16";
  scale.read("storage", storage);
  if (storage != "f16") scale.complain_choice("storage", storage, {"f16"});
  if (is_norm(f.scale)) {
    if (f.kind != CodeKind::table)
      scale.complain(scale.where("rule"), "a norm scales the entries of a codebook: [codes] kind must be \"table\"");
    return;
  }
  scale.require("divisor");
  scale.read("divisor", f.divisor);
  if (f.divisor == 0) scale.complain(scale.where("divisor"), "divisor must not be 0");
}

double normal_tail(double a) { return std::erfc(a / std::numbers::sqrt2) / 2; }

// The relative error of N(0,1) numbers x with |x| < limit that are coded as x / unit.
double relative_mse(const std::vector<double>& levels, double unit, double limit, bool is_corrected) {
  constexpr int kSteps = 4096;
  const std::vector<double> bounds = midpoints(levels);
  double xx = 0, xq = 0, qq = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = limit * ((2 * i + 1.0) / kSteps - 1), density = std::exp(-x * x / 2);
    const double q = unit * levels[code_of(x / unit, bounds)];
    xx += density * x * x, xq += density * x * q, qq += density * q * q;
  }
  return is_corrected ? 2 - 2 * xq / std::sqrt(xx * qq) : (xx - 2 * xq + qq) / xx;
}

// What an inline format is held to: its exact error on N(0,1), and 5 % for finite blocks and finite samples.
double expected_relative_mse(const Format& f) {
  constexpr double kMargin = 1.05, kEverything = 9;
  if (is_norm(f.scale))
    return kMargin *
           relative_mse(f.values, std::sqrt(double(f.block)), kEverything, f.scale == ScaleRule::corrected_norm);
  std::vector<double> levels = f.values;
  if (f.kind == CodeKind::uniform)
    for (int code = 2 * f.offset - f.max_code; code <= f.max_code; ++code) levels.push_back(code - f.offset);
  constexpr int kQuantiles = 16;  // of the largest magnitude of a block
  double sum = 0;
  for (int i = 0; i < kQuantiles; ++i) {
    const double tail = -std::expm1(std::log((i + 0.5) / kQuantiles) / f.block) / 2;
    double low = 0, high = kEverything;
    for (int step = 0; step < 40; ++step) (normal_tail((low + high) / 2) > tail ? low : high) = (low + high) / 2;
    sum += relative_mse(levels, low / f.divisor, low, false);
  }
  return kMargin * sum / kQuantiles;
}

}  // namespace

Result<Format> parse_format(std::string_view toml_text, const std::string& file, const RotationLookup& rotations) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a format", {file});
  Format f;
  f.name = std::filesystem::path(file).stem().string();
  // It becomes part of identifiers and file names.
  if (f.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos || f.name[0] < 'a')
    top.complain({file},
                 fmt::format("the name of a format is made of a-z, 0-9 and _, and begins with a letter; this one "
                             "is '{}'",
                             f.name));
  for (const char* key : {"title", "block", "fields", "codes"}) top.require(key);
  top.read("title", f.title);
  top.read("source", f.source);
  top.read("aliases", f.aliases);
  top.read("block", f.block, {1, 4096});
  schema::Table codes = top.table("codes"), book = top.table("codebook"), scale = top.table("scale");
  schema::Table rotation = top.table("rotation"), accept = top.table("accept");
  KV_CHECK(top.done());
  read_codes(codes, f);
  KV_CHECK(codes.done());

  if (f.kind != CodeKind::plain)
    for (const char* key : {"scale", "accept"}) top.require(key);
  else if (scale.exists())
    top.complain(scale.where(), "plain numbers have no scale");
  if (f.kind == CodeKind::table)
    top.require("codebook");
  else if (book.exists())
    top.complain(book.where(), "a codebook belongs to [codes] kind = \"table\"");
  KV_CHECK(top.done());

  if (scale.exists()) read_scale(scale, f);
  KV_CHECK(scale.done());
  if (book.exists()) read_codebook(book, f);
  KV_CHECK(book.done());
  read_fields(top, f);
  KV_CHECK(top.done());
  if (accept.exists()) accept.require("max_relative_mse");
  accept.read("max_relative_mse", f.max_relative_mse);
  KV_CHECK(accept.done());

  std::string rotation_name = "none";
  int rotation_size = f.block;
  if (rotation.exists()) rotation.require("name");
  rotation.read("name", rotation_name);
  rotation.read("size", rotation_size, {2, 4096});
  if (rotation_size % f.block && f.block % rotation_size)
    rotation.complain(rotation.where("size"),
                      fmt::format("rotation size {} and block {} do not divide each other", rotation_size, f.block));
  KV_CHECK(rotation.done());
  KV_TRY(made, rotations.rotation(rotation_name, rotation_size, rotation.where("name")));
  f.rotation = made;
  derive(f);
  return f;
}

Result<Format> inline_format(const SideSpec& side, const RotationLookup& rotations) {
  const auto where = [&](const char* key) {
    const auto found = side.key_where.find(key);
    return found == side.key_where.end() ? side.where : found->second;
  };
  const std::string codebook = side.codebook.value_or("lloyd_max");
  const bool is_uniform = codebook == "uniform";
  const std::string scale = side.scale.value_or(is_uniform ? "amax" : "corrected_norm");
  const std::string rotation = side.rotation.value_or("none");
  Format f;
  f.bits = side.bits.value_or(0);
  f.block = side.block.value_or(128);
  if (f.bits < schema::kBits.low || f.bits > schema::kBits.high)
    return fail(Code::bad_input, fmt::format("bits must be {}..{}", schema::kBits.low, schema::kBits.high),
                where("bits"));
  if (!schema::is_power_of_two(f.block) || f.block < schema::kBlock.low || f.block > schema::kBlock.high)
    return fail(Code::bad_input,
                fmt::format("block must be a power of two, {}..{}", schema::kBlock.low, schema::kBlock.high),
                where("block"));
  if (!is_uniform && codebook != "lloyd_max")
    return fail(Code::bad_input, fmt::format("codebook '{}' is not known", codebook), where("codebook"),
                schema::suggestions(codebook, "codebooks", {"lloyd_max", "uniform"}));

  f.max_code = (1 << f.bits) - 1;
  if (scale == "corrected_norm")
    f.scale = ScaleRule::corrected_norm;
  else if (scale == "raw_norm")
    f.scale = ScaleRule::raw_norm;
  else if (scale == "amax")
    f.scale = ScaleRule::amax;
  else
    return fail(Code::bad_input, fmt::format("scale '{}' is not known", scale), where("scale"),
                schema::suggestions(scale, "scales", {"corrected_norm", "raw_norm", "amax"}));
  if (is_uniform) {
    if (f.scale != ScaleRule::amax)
      return fail(Code::unsupported, fmt::format("a uniform codebook has no {} scale", scale), where("scale"),
                  {"its steps are fractions of the largest magnitude: scale = \"amax\", or leave the key out"});
    if (f.bits == 1)
      return fail(Code::unsupported, "a uniform codebook needs 2 bits or more", where("bits"),
                  {"its codes are symmetric about 0, so one bit would leave only 0; codebook = \"lloyd_max\" "
                   "has 1 bit"});
    f.kind = CodeKind::uniform;
    f.rounding = Rounding::half_away;
    f.offset = 1 << (f.bits - 1);
    f.divisor = f.offset - 1;
  } else {
    f.kind = CodeKind::table;
    f.values = lloyd_max_normal(f.bits);
    scale_to(is_norm(f.scale) ? Unit::normal : Unit::amax, f.block, f.values);
    round_to_float(f.values);
    f.bounds = midpoints(f.values);
    round_to_float(f.bounds);
  }
  KV_TRY(made, rotations.rotation(rotation, f.block, where("rotation")));
  f.rotation = made;
  f.name = fmt::format("b{}_block{}_{}_{}", f.bits, f.block, codebook, scale);
  if (!f.rotation.is_identity()) f.name += "_" + rotation;
  f.title =
      fmt::format("{}-bit {} codes in blocks of {}, scale {}, rotation {}", f.bits, codebook, f.block, scale, rotation);
  f.fields = {{FieldKind::scale}, {FieldKind::codes}};
  f.max_relative_mse = expected_relative_mse(f);
  derive(f);
  return f;
}

}  // namespace kvjit
