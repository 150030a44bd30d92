// A file of specs/formats, read into the axes of a Format. specs/README.md is the reference of its keys.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "generator/codebook.hpp"
#include "generator/format.hpp"
#include "generator/minifloat.hpp"
#include "generator/schema.hpp"

namespace kvjit {
namespace {

constexpr const char* kHeadDim = "head_dim";  // instead of a number: as many as the head has

// What the numbers of a codebook are multiples of.
enum class Unit {
  listed,  // the scale, or coordinates of a unit vector: used as listed
  normal,  // N(0,1): divided by the square root of the values that share a norm
  amax,    // a span whose largest magnitude is the scale: divided by the largest magnitude here
};

// Kernels hold tables in float32, so that is what a table is.
void scale_down(double divisor, std::vector<double>& values) {
  for (double& v : values) v = float(v / divisor);
}

std::vector<double> mirrored(const std::vector<double>& positive, bool with_zero) {
  std::vector<double> all(positive.rbegin(), positive.rend());
  for (double& v : all) v = -v;
  if (with_zero) all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

// A number, or the word "head_dim".
int read_size(schema::Table& table, const char* key, int otherwise, int head_dim, bool* is_per_head = nullptr) {
  const schema::Node* node = table.find(key);
  int size = otherwise;
  if (node && node->kind == schema::Node::Kind::text && node->text == kHeadDim) {
    if (is_per_head) *is_per_head = true;
    return head_dim;
  }
  table.read(key, size, {1, 4096});
  return size;
}

class Reader {
 public:
  Reader(const RotationLookup& rotations, int head_dim) : rotations_(rotations), head_dim_(head_dim) {}
  Result<Format> read(std::string_view toml_text, const std::string& file);

 private:
  void codes(schema::Table& codes, Section& section);
  void codebook(schema::Table& book, Section& section);
  void listed_codebook(schema::Table& book, Section& section, Unit unit);
  void scale(schema::Table& scale);
  Result<void> rotation(schema::Table& rotation);
  Result<void> outliers(schema::Table& outliers);
  Result<void> residual(schema::Table& residual);
  void fields(schema::Table& top);
  void check_fields(schema::Table& top);

  const RotationLookup& rotations_;
  int head_dim_;
  Format f_;
};

void Reader::codes(schema::Table& codes, Section& section) {
  codes.require("kind");
  codes.read(
      "kind", section.kind,
      schema::Names<CodeKind>{{CodeKind::plain, "plain"}, {CodeKind::uniform, "uniform"}, {CodeKind::table, "table"}});
  if (section.kind == CodeKind::plain) {
    codes.require("element");
    codes.read("element", section.element,
               schema::Names<Element>{{Element::f16, "f16"},
                                      {Element::bf16, "bf16"},
                                      {Element::f32, "f32"},
                                      {Element::e4m3, "e4m3"},
                                      {Element::e5m2, "e5m2"}});
    section.bits = section.element == Element::f32 ? 32 : section.element >= Element::e4m3 ? 8 : 16;
    return;
  }
  codes.require("bits");
  codes.read("bits", section.bits, schema::kBits);
  codes.read("twos_complement", section.twos_complement);
  section.max_code = (1 << section.bits) - 1;
  if (section.kind == CodeKind::table) return;
  for (const char* key : {"rounding", "offset"}) codes.require(key);
  codes.read("rounding", section.rounding,
             schema::Names<Rounding>{{Rounding::half_up, "half_up"}, {Rounding::half_away, "half_away"}});
  codes.read("offset", section.offset, {0, section.max_code});
  codes.read("max_code", section.max_code, {1, section.max_code});
}

void Reader::codebook(schema::Table& book, Section& section) {
  enum class Rule { listed, lloyd_max, e2m1 } rule = Rule::listed;
  book.read("rule", rule,
            schema::Names<Rule>{
                {Rule::lloyd_max, "lloyd_max"}, {Rule::e2m1, "e2m1"}});
  if (rule == Rule::e2m1) {
    Ties ties = Ties::even;
    bool has_negative_zero = false;
    book.read("ties", ties, schema::Names<Ties>{{Ties::even, "even"}, {Ties::zero, "zero"}});
    book.read("negative_zero", has_negative_zero);
    if (section.bits != 4) book.complain(book.where("rule"), "E2M1 has codes of 4 bits");
    MinifloatBook made = e2m1_book(ties, has_negative_zero);
    section.values = made.values, section.bounds = made.bounds, section.cell_codes = made.cell_codes;
    return;
  }
  Unit unit = f_.scale.rule == ScaleRule::amax && f_.scale.divisor == 1 ? Unit::amax : Unit::normal;
  if (rule == Rule::lloyd_max) section.values = lloyd_max_normal(section.bits);
  if (rule == Rule::listed) {
    for (const char* key : {"values", "unit"}) book.require(key);
    book.read("unit", unit,
              schema::Names<Unit>{
                  {Unit::listed, "inv_sqrt"}, {Unit::normal, "normal"}, {Unit::amax, "amax"}, {Unit::listed, "scale"}});
  } else if (f_.scale.rule != ScaleRule::norm && unit != Unit::amax) {
    unit = Unit::listed;  // the divisor of the scale is in the same units
  }
  listed_codebook(book, section, unit);
}

void Reader::listed_codebook(schema::Table& book, Section& section, Unit unit) {
  bool is_symmetric = false;
  const std::size_t count = std::size_t(1) << section.bits;
  if (const schema::Node* values = book.find("values")) {
    book.read("symmetric", is_symmetric);
    book.read("values", section.values);
    if (is_symmetric) section.values = mirrored(section.values, false);
    if (const std::size_t listed = values->items.size() * (is_symmetric ? 2 : 1); listed != count)
      book.complain(values->where,
                    fmt::format("the codebook has {} values, but {}-bit codes need {}", listed, section.bits, count));
    if (std::adjacent_find(section.values.begin(), section.values.end(), std::greater_equal<>()) !=
        section.values.end())
      book.complain(values->where, "the values of a codebook must ascend");
  }
  double divisor = 1;
  if (unit == Unit::normal) divisor = std::sqrt(double(f_.scale.span));
  if (unit == Unit::amax && !section.values.empty()) divisor = std::max(-section.values.front(), section.values.back());
  scale_down(divisor, section.values);
  section.bounds = midpoints(section.values);
  const schema::Node* bounds = book.find("bounds");
  if (bounds && bounds->kind == schema::Node::Kind::list) {
    book.read("bounds", section.bounds);
    if (is_symmetric) section.bounds = mirrored(section.bounds, true);
    if (section.bounds.size() != count - 1 || !std::is_sorted(section.bounds.begin(), section.bounds.end()))
      book.complain(bounds->where, fmt::format("bounds must be {} ascending numbers, or \"midpoints\"; these are {}",
                                               is_symmetric ? count / 2 - 1 : count - 1, bounds->items.size()));
    if (unit == Unit::amax) book.complain(bounds->where, "bounds of a codebook in units of amax are midpoints");
    scale_down(divisor, section.bounds);
  } else if (bounds && bounds->text != "midpoints") {
    book.complain(bounds->where, "bounds must be a list of numbers or \"midpoints\"");
  }
  scale_down(1, section.bounds);
}

void Reader::scale(schema::Table& scale) {
  Scale& s = f_.scale;
  std::string rule;
  scale.require("rule");
  scale.read("rule", rule);
  const std::vector<std::pair<std::string, ScaleRule>> rules = {
      {"amax", ScaleRule::amax},     {"signed_max", ScaleRule::signed_max}, {"raw_norm", ScaleRule::norm},
      {"tensor", ScaleRule::tensor}, {"corrected_norm", ScaleRule::norm},   {"min_step", ScaleRule::min_step}};
  std::vector<std::string> known;
  bool is_known = false;
  for (const auto& [name, value] : rules) {
    known.push_back(name);
    if (rule == name) s.rule = value, is_known = true;
  }
  if (scale.find("rule") && !is_known) scale.complain_choice("rule", rule, known);
  if (rule == "corrected_norm") s.refine = Refine::matched;
  scale.read(
      "refine", s.refine,
      schema::Names<Refine>{
          {Refine::matched, "matched"}, {Refine::least_squares, "least_squares"}, {Refine::weighted, "weighted"}});
  scale.read("storage", s.type,
             schema::Names<ScaleType>{{ScaleType::f16, "f16"},
                                      {ScaleType::bf16, "bf16"},
                                      {ScaleType::e4m3, "e4m3"},
                                      {ScaleType::ue4m3, "ue4m3"},
                                      {ScaleType::e8m0, "e8m0"}});
  scale.read("division", s.division,
             schema::Names<Division>{{Division::reciprocal, "reciprocal"},
                                     {Division::quotient, "quotient"},
                                     {Division::ratio, "ratio"},
                                     {Division::product, "product"}});
  s.group = read_size(scale, "group", f_.block, head_dim_);
  s.span = read_size(scale, "span", s.group, head_dim_);
  scale.read("least", s.least);
  scale.read("by_stored", s.by_stored);
  scale.read("renormalise", s.renormalise);
  if (f_.block % s.group != 0)
    scale.complain(scale.where("group"),
                   fmt::format("scale groups of {} do not divide a block of {}", s.group, f_.block));
  if (s.span % s.group != 0)
    scale.complain(scale.where("span"), fmt::format("a span of {} is not whole groups of {}", s.span, s.group));
  if (s.span > f_.block && s.span % f_.block != 0)
    scale.complain(scale.where("span"), fmt::format("a span of {} is not whole blocks of {}", s.span, f_.block));
  if (s.rule == ScaleRule::norm || s.rule == ScaleRule::tensor) {
    if (s.rule == ScaleRule::norm && f_.codes().kind != CodeKind::table)
      scale.complain(scale.where("rule"), "a norm scales the entries of a codebook: [codes] kind must be \"table\"");
    return;
  }
  if (s.rule == ScaleRule::min_step && f_.codes().kind != CodeKind::uniform)
    scale.complain(scale.where("rule"), "steps from a minimum are integer codes: [codes] kind must be \"uniform\"");
  scale.require("divisor");
  scale.read("divisor", s.divisor);
  if (s.divisor == 0) scale.complain(scale.where("divisor"), "divisor must not be 0");
}

Result<void> Reader::rotation(schema::Table& rotation) {
  std::string name = "none", round;
  if (rotation.exists()) rotation.require("name");
  rotation.read("name", name);
  const int size = read_size(rotation, "size", f_.scale.span, head_dim_, &f_.is_per_head);
  if (rotation.find("round")) {
    rotation.read("round", round);
    if (round != "bf16") rotation.complain_choice("round", round, {"bf16"});
    f_.rounds_to_bf16 = true;
  }
  if (size % f_.block && f_.block % size)
    rotation.complain(rotation.where("size"),
                      fmt::format("rotation size {} and block {} do not divide each other", size, f_.block));
  KV_CHECK(rotation.done());
  KV_TRY(made, rotations_.rotation(name, size, rotation.where("name")));
  f_.rotation = made;
  return {};
}

Result<void> Reader::outliers(schema::Table& outliers) {
  Section wide;
  wide.kind = CodeKind::table;
  for (const char* key : {"mask", "bits", "codebook"}) outliers.require(key);
  outliers.read("bits", wide.bits, schema::kBits);
  wide.max_code = (1 << wide.bits) - 1;
  schema::Table book = outliers.table("codebook");
  std::vector<bool> is_outlier(std::size_t(f_.block), false);
  const schema::Node* mask = outliers.find("mask");
  if (mask && mask->kind == schema::Node::Kind::text) {
    if (mask->text != "stored") outliers.complain(mask->where, "mask must be a list of hex words, or \"stored\"");
    outliers.require("count");
    outliers.read("count", f_.stored_mask, {1, f_.block - 1});
    // Which channels they are is the block's own affair; how many there are is what sizes follow from.
    std::fill_n(is_outlier.begin(), f_.stored_mask, true);
  } else {
    std::vector<std::string> words;
    outliers.read("mask", words);
    for (std::size_t w = 0; w < words.size() && mask; ++w) {
      std::size_t used = 0;
      unsigned long bits = 0;
      if (words[w].size() == 8 && words[w].find_first_not_of("0123456789abcdefABCDEF") == std::string::npos)
        bits = std::stoul(words[w], &used, 16);
      if (used != 8)
        outliers.complain(mask->items[w].where, "a word of a mask is 8 hex digits: 32 channels, lowest bit first");
      for (std::size_t b = 0; b < 32 && w * 32 + b < is_outlier.size(); ++b) is_outlier[w * 32 + b] = bits >> b & 1;
    }
    if (mask && int(words.size()) * 32 != f_.block)
      outliers.complain(mask->where, fmt::format("a mask of {} words covers {} channels, but the block has {}",
                                                 words.size(), words.size() * 32, f_.block));
  }
  KV_CHECK(outliers.done());
  for (int i = 0; i < f_.block; ++i) (is_outlier[std::size_t(i)] ? wide : f_.sections[0]).members.push_back(i);
  codebook(book, wide);
  KV_CHECK(book.done());
  if (wide.members.empty() || f_.sections[0].members.empty())
    return fail(Code::bad_input, "a mask must hold some channels and leave some", outliers.where("mask"));
  f_.sections.push_back(std::move(wide));
  return {};
}

Result<void> Reader::residual(schema::Table& residual) {
  Residual& r = f_.residual;
  for (const char* key : {"kind", "norm"}) residual.require(key);
  residual.read("kind", r.kind,
                schema::Names<ResidualKind>{{ResidualKind::projected, "projected"}, {ResidualKind::direct, "direct"}});
  enum class Norm { length, mean } norm = Norm::length;
  residual.read("norm", norm, schema::Names<Norm>{{Norm::length, "length"}, {Norm::mean, "mean"}});
  r.is_mean = norm == Norm::mean;
  residual.read("relative", r.is_relative);
  enum class Domain { rotated, original } domain = Domain::rotated;
  residual.read("domain", domain, schema::Names<Domain>{{Domain::rotated, "rotated"}, {Domain::original, "original"}});
  r.is_original = domain == Domain::original;
  bool is_normal = false;
  residual.read("normal_units", is_normal);
  const double root = std::sqrt(double(f_.scale.span));
  r.unit = is_normal ? root : 1;
  r.factor = 1 / r.unit;
  schema::Table projection = residual.table("projection");
  if (r.kind == ResidualKind::projected) residual.require("projection");
  KV_CHECK(residual.done());
  if (f_.scale.rule != ScaleRule::norm)
    return fail(Code::bad_input, "a residual is that of a unit vector: [scale] rule must be a norm", residual.where());
  if (projection.exists()) {
    std::string name;
    projection.require("name");
    projection.read("name", name);
    KV_CHECK(projection.done());
    KV_TRY(made, rotations_.rotation(name, f_.scale.span, projection.where("name")));
    r.projection = made;
    // E[sign(S r)] recovers r up to sqrt(pi/2) / n for Gaussian S, / sqrt n for an orthonormal one (arXiv 2504.19874, section 3.2).
    r.factor *= std::sqrt(std::numbers::pi / 2) / (made.is_orthogonal ? root : root * root);
  }
  Section signs;
  signs.kind = CodeKind::table;
  signs.bits = 1, signs.max_code = 1;
  signs.values = {-1, 1};
  signs.bounds = {0};
  f_.residual_section = int(f_.sections.size());
  f_.sections.push_back(std::move(signs));
  return {};
}

void Reader::fields(schema::Table& top) {
  const schema::Node* fields = top.find("fields");
  if (!fields) return;
  if (fields->kind != schema::Node::Kind::list) return top.complain(fields->where, "fields must be a list of tables");
  const int outliers = f_.residual_section == 1 ? 0 : int(f_.sections.size()) - 1 - int(f_.has_residual());
  for (const schema::Node& node : fields->items) {
    schema::Table table(&node, "[[fields]]", node.where);
    Field field;
    std::string name;
    table.require("field");
    table.read("field", name);
    const auto named = [&](const char* text) { return name == text; };
    if (named("codes") || (named("outliers") && outliers > 0) || (named("residual") && f_.has_residual())) {
      field.section = named("codes") ? 0 : named("outliers") ? 1 : f_.residual_section;
      const Section& section = f_.sections[std::size_t(field.section)];
      field.bits = section.bits;
      table.read("low", field.low, {0, section.bits - 1});
      table.read("bits", field.bits, {1, section.bits - field.low});
      table.read("split", field.split, {1, 2048});
      if (field.split && (field.bits != 4 || section.count(f_.block) % (2 * field.split)))
        table.complain(table.where("split"), "'split' pairs 4-bit codes of two halves of a span");
      if (section.count(f_.block) * field.bits % 8)
        table.complain(node.where,
                       fmt::format("{} codes of {} bits do not fill whole bytes", section.count(f_.block), field.bits));
    } else if (named("pad")) {
      field.kind = FieldKind::pad;
      table.require("bytes");
      table.read("bytes", field.bytes, {1, 64});
    } else {
      const std::vector<std::pair<std::string, FieldKind>> kinds = {{"scale", FieldKind::scale},
                                                                    {"minimum", FieldKind::minimum},
                                                                    {"residual_norm", FieldKind::residual_norm},
                                                                    {"residual_signs", FieldKind::residual_signs},
                                                                    {"mask", FieldKind::mask}};
      std::vector<std::string> known = {"codes", "outliers", "residual", "pad"};
      bool is_known = false;
      for (const auto& [text, kind] : kinds) {
        known.push_back(text);
        if (name == text) field.kind = kind, is_known = true;
      }
      if (table.find("field") && !is_known) table.complain_choice("field", name, known);
    }
    if (Result<void> done = table.done(); !done)
      top.complain(done.error().where, done.error().message, done.error().notes);
    f_.fields.push_back(field);
  }
  check_fields(top);
}

// Each bit of each code once, and every stored number once.
void Reader::check_fields(schema::Table& top) {
  const Where where = top.where("fields");
  for (std::size_t s = 0; s < f_.sections.size(); ++s) {
    unsigned bits = 0;
    bool is_twice = false;
    for (const Field& field : f_.fields)
      if (field.kind == FieldKind::codes && field.section == int(s)) {
        const unsigned mine = unsigned(((1ull << field.bits) - 1) << field.low);
        is_twice |= (bits & mine) != 0;
        bits |= mine;
      }
    if (is_twice || bits != unsigned((1ull << f_.sections[s].bits) - 1))
      top.complain(where, s == 0 ? "fields must hold the codes exactly once"
                                 : fmt::format("fields must hold the {} exactly once",
                                               int(s) == f_.residual_section ? "residual" : "outliers"));
  }
  struct Need {
    FieldKind kind;
    const char* name;
    bool is_needed;
  };
  for (const Need& need :
       {Need{FieldKind::scale, "scale", f_.has_scale()}, Need{FieldKind::minimum, "minimum", f_.has_minimum()},
        Need{FieldKind::residual_norm, "residual_norm", f_.has_residual()},
        Need{FieldKind::mask, "mask", f_.stored_mask > 0}}) {
    const auto count =
        std::count_if(f_.fields.begin(), f_.fields.end(), [&](const Field& f) { return f.kind == need.kind; });
    if (need.is_needed && count != 1)
      top.complain(where, fmt::format("fields must hold the {} exactly once", need.name));
    if (!need.is_needed && count != 0)
      top.complain(where, need.kind == FieldKind::scale
                              ? "fields hold a scale, but there is no [scale] that says how it is found"
                              : fmt::format("fields hold a {}, but nothing says how it is found", need.name));
  }
}

Result<Format> Reader::read(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a format", {file});
  f_.name = std::filesystem::path(file).stem().string();
  // It becomes part of identifiers and file names.
  if (f_.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos || f_.name[0] < 'a')
    top.complain({file},
                 fmt::format("the name of a format is made of a-z, 0-9 and _, and begins with a letter; this one "
                             "is '{}'",
                             f_.name));
  for (const char* key : {"title", "block", "fields", "codes"}) top.require(key);
  top.read("title", f_.title);
  top.read("source", f_.source);
  top.read("aliases", f_.aliases);
  f_.block = read_size(top, "block", 1, head_dim_, &f_.is_per_head);
  top.read("zero_bytes", f_.zero_bytes);
  std::string padding;
  top.read("padding", padding);
  if (top.find("padding") && padding != "zero") top.complain_choice("padding", padding, {"zero"});
  f_.is_padded = !padding.empty();
  schema::Table codes_table = top.table("codes"), book = top.table("codebook"), scale_table = top.table("scale");
  schema::Table rotation_table = top.table("rotation"), accept = top.table("accept");
  schema::Table outliers_table = top.table("outliers"), residual_table = top.table("residual");
  top.find("fields");
  KV_CHECK(top.done());
  codes(codes_table, f_.sections.emplace_back());
  KV_CHECK(codes_table.done());

  const CodeKind kind = f_.codes().kind;
  if (kind != CodeKind::plain)
    for (const char* key : {"scale", "accept"}) top.require(key);
  if (kind == CodeKind::table)
    top.require("codebook");
  else if (book.exists())
    top.complain(book.where(), "a codebook belongs to [codes] kind = \"table\"");
  KV_CHECK(top.done());

  f_.scale.group = f_.scale.span = f_.block;
  if (scale_table.exists()) scale(scale_table);
  KV_CHECK(scale_table.done());
  if (book.exists()) codebook(book, f_.sections[0]);
  KV_CHECK(book.done());
  KV_CHECK(rotation(rotation_table));
  if (outliers_table.exists()) KV_CHECK(outliers(outliers_table));
  if (residual_table.exists()) KV_CHECK(residual(residual_table));
  fields(top);
  KV_CHECK(top.done());
  if (accept.exists()) accept.require("max_relative_mse");
  accept.read("max_relative_mse", f_.max_relative_mse);
  KV_CHECK(accept.done());
  derive(f_);
  return std::move(f_);
}

}  // namespace

Result<Format> parse_format(std::string_view toml_text, const std::string& file, const RotationLookup& rotations,
                            int head_dim) {
  return Reader(rotations, head_dim).read(toml_text, file);
}

}  // namespace kvjit
