// Reads a file of specs/formats into the axes of a Format: names, [codes], [scale] and rotation. The other tables of
// the file are read in format_codebook.cpp, format_sections.cpp and format_fields.cpp. specs/docs/formats.md ("Keys of
// a format") is the reference of the keys.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "generator/formats/e8.hpp"
#include "generator/formats/format_reader.hpp"

namespace kvjit {

namespace {

// Words in place of a number: the channels of the head, and the largest power of two that divides them, which may be
// limited.
constexpr const char *kHeadDim = "head_dim", *kPowerOfTwo = "power_of_two", *kPowerTo128 = "power_of_two_to_128";
constexpr schema::Range kSizes{1, 4096};
// These keys are about all channels of a format, so a file with [[segments]] has none of them.
constexpr const char* kWholeFormatKeys[] = {"block",    "zero_bytes", "padding",  "codes",
                                            "codebook", "scale",      "outliers", "residual"};

}  // namespace

void FormatReader::codes(schema::Table& codes, Section& section) {
  enum class Kind { plain, uniform, table, trellis, vector } kind = Kind::plain;
  codes.require("kind");
  codes.read("kind", kind,
             schema::Names<Kind>{{Kind::plain, "plain"},
                                 {Kind::uniform, "uniform"},
                                 {Kind::table, "table"},
                                 {Kind::trellis, "trellis"},
                                 {Kind::vector, "vector"}});
  section.kind = kind == Kind::plain     ? CodeKind::plain
                 : kind == Kind::uniform ? CodeKind::uniform
                 : kind == Kind::vector  ? CodeKind::vector
                                         : CodeKind::table;
  if (section.kind == CodeKind::plain) {
    codes.require("element");
    codes.read("element", section.element,
               schema::Names<Element>{{Element::f16, "f16"},
                                      {Element::bf16, "bf16"},
                                      {Element::f32, "f32"},
                                      {Element::e4m3, "e4m3"},
                                      {Element::e5m2, "e5m2"},
                                      {Element::e4m3b15, "e4m3b15"}});
    section.bits = section.element == Element::f32 ? 32 : section.element >= Element::e4m3 ? 8 : 16;
    return;
  }
  if (kind == Kind::trellis) return trellis(codes, section);
  if (kind == Kind::vector) {
    section.bits = 16 / kE8Dim;
    return;
  }
  codes.require("bits");
  codes.read("bits", section.bits, schema::kBits);
  codes.read("twos_complement", section.twos_complement);
  section.max_code = (1 << section.bits) - 1;
  if (section.kind == CodeKind::table) return;
  for (const char* key : {"rounding", "offset"}) codes.require(key);
  codes.read(
      "rounding", section.rounding,
      schema::Names<Rounding>{
          {Rounding::half_up, "half_up"}, {Rounding::half_away, "half_away"}, {Rounding::half_even, "half_even"}});
  codes.read("offset", section.offset, {0, section.max_code});
  codes.read("max_code", section.max_code, {1, section.max_code});
}

// Reads the sizes of a trellis. Writers keep 2^(state_bits - 5) states a lane, and the choices between the states that
// lead to them in a byte.
void FormatReader::trellis(schema::Table& codes, Section& section) {
  for (const char* key : {"state_bits", "step_bits"}) codes.require(key);
  section.step_bits = 1;
  codes.read("state_bits", section.bits, {6, 9});
  codes.read("step_bits", section.step_bits, {1, 4});
  codes.read("tail_biting", section.is_tail_biting);
  section.max_code = (1 << section.bits) - 1;
  if (section.bits - section.step_bits < 5)
    codes.complain(codes.where("step_bits"), "'state_bits' is at least 5 more than 'step_bits'");
}

// Reads a size: a number, or a word that stands for one.
int FormatReader::size(schema::Table& table, const char* key, int otherwise) {
  const schema::Node* node = table.find(key);
  int size = otherwise;
  table.takes(key, schema::Node::Kind::text, {kHeadDim, kPowerOfTwo, kPowerTo128});
  table.takes_range(key, kSizes.low, kSizes.high);
  table.takes(key, schema::Node::Kind::integer);
  if (node && node->kind == schema::Node::Kind::text) {
    const int power = head_dim_ & -head_dim_;
    f_.is_per_head = true;
    if (node->text == kHeadDim) return head_dim_;
    if (node->text == kPowerOfTwo) return power;
    if (node->text == kPowerTo128) return std::min(power, 128);
    f_.is_per_head = false;
  }
  table.read(key, size, kSizes);
  return size;
}

void FormatReader::scale(schema::Table& scale) {
  enum class Rule {
    amax,
    signed_max,
    min_step,
    zero_point,
    tensor,
    raw_norm,
    corrected_norm,
    least_squares,
    unbiased
  } rule = Rule::amax;
  Scale& s = f_.scale;
  scale.require("rule");
  scale.read("rule", rule,
             schema::Names<Rule>{{Rule::amax, "amax"},
                                 {Rule::signed_max, "signed_max"},
                                 {Rule::min_step, "min_step"},
                                 {Rule::zero_point, "zero_point"},
                                 {Rule::tensor, "tensor"},
                                 {Rule::raw_norm, "raw_norm"},
                                 {Rule::corrected_norm, "corrected_norm"},
                                 {Rule::least_squares, "least_squares"},
                                 {Rule::unbiased, "unbiased"}});
  s.rule = rule == Rule::amax         ? ScaleRule::amax
           : rule == Rule::signed_max ? ScaleRule::signed_max
           : rule == Rule::min_step   ? ScaleRule::min_step
           : rule == Rule::zero_point ? ScaleRule::zero_point
           : rule == Rule::tensor     ? ScaleRule::tensor
                                      : ScaleRule::norm;
  s.refine = rule == Rule::corrected_norm  ? Refine::matched
             : rule == Rule::least_squares ? Refine::least_squares
             : rule == Rule::unbiased      ? Refine::unbiased
                                           : Refine::none;
  if (s.rule != ScaleRule::norm)  // the names of norm rules include the refinement
    scale.read("refine", s.refine,
               schema::Names<Refine>{{Refine::matched, "matched"},
                                     {Refine::least_squares, "least_squares"},
                                     {Refine::weighted, "weighted"},
                                     {Refine::weighted_or_found, "weighted_or_found"}});
  scale.read("storage", s.type,
             schema::Names<ScaleType>{{ScaleType::f16, "f16"},
                                      {ScaleType::bf16, "bf16"},
                                      {ScaleType::e4m3, "e4m3"},
                                      {ScaleType::ue4m3, "ue4m3"},
                                      {ScaleType::e8m0, "e8m0"},
                                      {ScaleType::f32, "f32"}});
  scale.read("rounding", s.rounding,
             schema::Names<ScaleRounding>{{ScaleRounding::up, "up"}, {ScaleRounding::nearest, "nearest"}});
  scale.read("division", s.division,
             schema::Names<Division>{{Division::reciprocal, "reciprocal"},
                                     {Division::quotient, "quotient"},
                                     {Division::ratio, "ratio"},
                                     {Division::product, "product"}});
  s.group = size(scale, "group", f_.block);
  s.span = size(scale, "span", s.group);
  scale.read("least", s.least);
  scale.read("zero_norm", s.zero_norm);
  scale.read("by_stored", s.by_stored);
  scale.read("renormalise", s.renormalise);
  if (s.rule != ScaleRule::norm && s.rule != ScaleRule::tensor) {
    if (s.rule != ScaleRule::amax)
      scale.require("divisor");
    else if (!scale.find("search"))
      scale.require("divisor", "factor");
    scale.read("divisor", s.divisor);
  }
  scale.read("factor", s.factor);
  std::vector<double> search;
  scale.read("search", search);
  if (!search.empty()) s.divisor = search.front(), s.search.assign(search.begin() + 1, search.end());
  enum class Over { none, tensor, head } over = Over::none;
  scale.read("over", over, schema::Names<Over>{{Over::tensor, "tensor"}, {Over::head, "head"}});
  s.over_tensor = over != Over::none, s.per_head = over == Over::head;
  scale.read("per", s.per_head, schema::Names<bool>{{true, "head"}});
  scale.read("epsilon", s.epsilon);
  check_scale(scale);
}

void FormatReader::check_scale(schema::Table& scale) {
  const Scale& s = f_.scale;
  if (s.divisor == 0) scale.complain(scale.where("divisor"), "divisor must not be 0");
  if (f_.block % s.group != 0)
    scale.complain(scale.where("group"),
                   fmt::format("scale groups of {} do not divide a block of {}", s.group, f_.block));
  if (s.span % s.group != 0)
    scale.complain(scale.where("span"), fmt::format("a span of {} is not whole groups of {}", s.span, s.group));
  if (s.span > f_.block && s.span % f_.block != 0)
    scale.complain(scale.where("span"), fmt::format("a span of {} is not whole blocks of {}", s.span, f_.block));
  if (s.rule == ScaleRule::norm && f_.codes().kind != CodeKind::table)
    scale.complain(scale.where("rule"), "a norm scales the entries of a codebook: [codes] kind must be \"table\"");
  const bool has_steps = s.rule == ScaleRule::min_step || s.rule == ScaleRule::zero_point;
  if (has_steps && f_.codes().kind != CodeKind::uniform)
    scale.complain(scale.where("rule"), "steps from a minimum are integer codes: [codes] kind must be \"uniform\"");
  if (has_steps && s.refine != Refine::none)
    scale.complain(scale.where("refine"), "steps from a minimum are not refined");
  if (s.rule == ScaleRule::zero_point) check_zero_point(scale);
  if (s.division == Division::product && f_.codes().kind != CodeKind::table)
    scale.complain(scale.where("division"), "a product is taken with bounds: [codes] kind must be \"table\"");
  if (s.division != Division::reciprocal && s.rule == ScaleRule::norm)
    scale.complain(scale.where("division"), "a norm is divided by in double: it has no 'division'");
  check_amax_keys(scale);
  if (s.renormalise && (s.rule != ScaleRule::norm || s.group != f_.block || s.span != f_.block))
    scale.complain(scale.where("renormalise"), "what is renormalised is a block of one norm");
  if (f_.zero_bytes && (s.rule != ScaleRule::norm || s.span != f_.block))
    scale.complain(scale.where(), "zero_bytes is about blocks of one norm");
}

void FormatReader::check_zero_point(schema::Table& scale) {
  const Scale& s = f_.scale;
  const Section& codes = f_.codes();
  if (s.type != ScaleType::f32)
    scale.complain(scale.where("storage"), "a zero point is in the low bits of a float32: storage must be \"f32\"");
  if (codes.kind == CodeKind::uniform && (codes.rounding != Rounding::half_away || codes.offset != 0 || codes.bits > 8))
    scale.complain(scale.where("rule"),
                   "codes that count from a zero point have up to 8 bits, offset = 0 and rounding = \"half_away\"");
  if (s.division != Division::reciprocal || s.by_stored)
    scale.complain(scale.where("rule"),
                   "with a zero point values are multiplied by the reciprocal of the scale as found");
}

// Checks the keys that belong to one rule, or to one type of the stored scale.
void FormatReader::check_amax_keys(schema::Table& scale) {
  const Scale& s = f_.scale;
  const bool is_refined = s.refine != Refine::none;
  for (const char* key : {"search", "over"})
    if (scale.find(key) && s.rule != ScaleRule::amax)
      scale.complain(scale.where(key), fmt::format("'{}' belongs to rule = \"amax\"", key));
  if (scale.find("per") && s.rule != ScaleRule::tensor)
    scale.complain(scale.where("per"), "'per' belongs to rule = \"tensor\"");
  if (scale.find("factor") && s.rule != ScaleRule::amax && s.rule != ScaleRule::norm)
    scale.complain(scale.where("factor"), "'factor' belongs to rule = \"amax\", or to a rule of norms");
  if (scale.find("search") && (scale.find("divisor") || scale.find("factor")))
    scale.complain(scale.where("search"), "'search' lists the divisors: there is no other divisor, and no factor");
  if (scale.find("search") && (s.search.empty() || s.search.size() > 3 || is_refined))
    scale.complain(scale.where("search"), "'search' lists two to four divisors, and the scale is not refined");
  if (scale.find("factor") && (scale.find("divisor") || s.over_tensor || s.factor <= 0))
    scale.complain(scale.where("factor"), "'factor' is above 0, and there is no divisor beside it");
  if ((!s.search.empty() || s.over_tensor) && s.division != Division::reciprocal)
    scale.complain(scale.where("division"), "with 'search' and 'over' values are multiplied by a reciprocal");
  if (s.factor > 0 && s.division == Division::ratio)
    scale.complain(scale.where("division"), "a ratio is that of a divisor to the largest magnitude");
  if (s.over_tensor && is_refined) scale.complain(scale.where("over"), "a scale over scales is not refined");
  if (scale.find("epsilon") && (s.rule != ScaleRule::norm || s.epsilon <= 0))
    scale.complain(scale.where("epsilon"), "'epsilon' is above 0 and is added to a norm");
  if (scale.find("zero_norm") && (s.rule != ScaleRule::amax || s.is_searched() || s.factor > 0 || s.zero_norm <= 0))
    scale.complain(scale.where("zero_norm"), "'zero_norm' is above 0 and belongs to rule = \"amax\" with a divisor");
  const bool is_rounded_up = s.rounding == ScaleRounding::up && (s.type == ScaleType::e4m3 || s.type == ScaleType::f32);
  if (s.rounding != ScaleRounding::usual && s.type != ScaleType::e8m0 && !is_rounded_up)
    scale.complain(scale.where("rounding"),
                   "scales in e8m0 are rounded \"up\" or to \"nearest\", those in e4m3 and f32 \"up\"");
}

Result<void> FormatReader::rotation(schema::Table& rotation) {
  std::string name = "none";
  if (rotation.exists()) rotation.require("name");
  rotation.read("name", name);
  const int group = size(rotation, "size", f_.scale.span);
  rotation.read("round", f_.rounds_to_bf16, schema::Names<bool>{{true, "bf16"}});
  bool is_normalised = true;
  rotation.read("normalise", is_normalised);
  f_.is_unnormalised = !is_normalised;
  if (!is_normalised && !f_.has_zero_point())
    rotation.complain(rotation.where("normalise"), "'normalise = false' belongs to [scale] rule = \"zero_point\"");
  if (group % f_.block && f_.block % group)
    rotation.complain(rotation.where("size"),
                      fmt::format("rotation size {} and block {} do not divide each other", group, f_.block));
  KV_CHECK(rotation.done());
  KV_TRY(transform, rotations_.rotation(name, group, rotation.where("name")));
  f_.rotation = transform;
  if (transform.has_head_signs() && f_.segments.empty())
    return fail(Code::unsupported,
                fmt::format("the groups of a head have different signs in rotation '{}', which formats without "
                            "[[segments]] do not take",
                            name),
                rotation.where("name"), {"signs without 'channels' are those of each group"});
  if (f_.is_unnormalised && transform.kind != RotationKind::wht)
    return fail(Code::bad_input, fmt::format("rotation '{}' has no norm that could be left out", name),
                rotation.where("normalise"), {"Walsh-Hadamard transforms have one (kind = \"wht\")"});
  if (!transform.is_orthogonal)
    return fail(Code::bad_input, fmt::format("rotation '{}' is not orthogonal, so it cannot be undone", name),
                rotation.where("name"), {"it projects residuals: [residual] projection"});
  return {};
}

// A trellis runs over one block. One warp encodes its values together.
void FormatReader::check_trellis(schema::Table& top) {
  const Scale& s = f_.scale;
  const Where where = top.where("codes");
  if (s.rule != ScaleRule::norm || s.group != f_.block || s.span != f_.block || s.renormalise)
    top.complain(where, "a trellis has one norm for each block: [scale] rule = \"corrected_norm\", for one");
  if (f_.block % 32 != 0 || f_.block > 256) top.complain(where, "a trellis runs over blocks of 32 to 256 values");
  if (f_.sections.size() > 1 || f_.zero_bytes || f_.rounds_to_bf16)
    top.complain(where, "a trellis has all values of a block: no outliers, no residual, and no rounding before it");
}

// Eight neighbouring values make a code, whose radius is in units of their scale.
void FormatReader::check_vectors(schema::Table& top) {
  const Scale& s = f_.scale;
  const Where where = top.where("codes");
  if (s.rule != ScaleRule::amax || s.refine != Refine::none || s.is_searched() || s.division != Division::reciprocal)
    top.complain(where,
                 "vectors have a scale as found: [scale] rule = \"amax\", without refinement, search or division");
  if (f_.block % 64 != 0 || s.group % kE8Dim != 0)  // eight lanes share a block of V
    top.complain(where, "vectors of eight values fill blocks of multiples of 64 values, and scale groups");
  if (f_.sections.size() > 1 || f_.rounds_to_bf16)
    top.complain(where, "vectors have all values of a block: no outliers, no residual, and no rounding before them");
}

void FormatReader::names(schema::Table& top, const std::string& file) {
  f_.name = std::filesystem::path(file).stem().string();
  // The name becomes part of identifiers and file names.
  if (f_.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos || f_.name[0] < 'a')
    top.complain({file},
                 fmt::format("the name of a format is made of a-z, 0-9 and _, and begins with a letter; this one "
                             "is '{}'",
                             f_.name));
  top.read("title", f_.title);
  top.read("source", f_.source);
  top.read("aliases", f_.aliases);
  top.read("also", f_.also);
}

// Reads [codes], [codebook] and [scale], at the top of a file or in a segment.
Result<void> FormatReader::coding(schema::Table& top) {
  schema::Table codes_table = top.table("codes"), book = top.table("codebook"), scale_table = top.table("scale");
  KV_CHECK(top.done());
  codes(codes_table, f_.sections.emplace_back());
  KV_CHECK(codes_table.done());

  const CodeKind kind = f_.codes().kind;
  if (kind != CodeKind::plain) top.require("scale");
  if (kind == CodeKind::table || kind == CodeKind::vector)
    top.require("codebook");
  else if (book.exists())
    top.complain(book.where(), "a codebook belongs to [codes] kind = \"table\", \"trellis\" or \"vector\"");
  KV_CHECK(top.done());

  f_.scale.group = f_.scale.span = f_.block;
  if (scale_table.exists()) scale(scale_table);
  KV_CHECK(scale_table.done());
  if (book.exists()) codebook(book, f_.sections[0]);
  return book.done();
}

Result<Format> FormatReader::read(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a format", {file});
  names(top, file);
  for (const char* key : {"title", "fields"}) top.require(key);
  for (const char* key : {"block", "codes"}) top.require(key, "segments");
  for (const char* key : kWholeFormatKeys) top.find(key);
  top.takes_items("segments", schema::Node::Kind::table);
  top.takes_items("fields", schema::Node::Kind::table);
  if (const schema::Node* const list = top.find("segments")) {
    for (const char* key : kWholeFormatKeys)
      if (const schema::Node* const node = top.find(key))
        top.complain(node->where,
                     fmt::format("'{}' does not go with [[segments]], which have formats of their own", key));
    KV_CHECK(segments(top, *list));
    return std::move(f_);
  }
  f_.block = size(top, "block", 1);
  top.read("zero_bytes", f_.zero_bytes);
  top.read("padding", f_.is_padded, schema::Names<bool>{{true, "zero"}});
  schema::Table rotation_table = top.table("rotation"), accept = top.table("accept");
  schema::Table outliers_table = top.table("outliers"), residual_table = top.table("residual");
  top.find("fields");
  KV_CHECK(coding(top));
  if (f_.codes().kind != CodeKind::plain) top.require("accept");
  KV_CHECK(top.done());
  KV_CHECK(rotation(rotation_table));
  if (outliers_table.exists()) KV_CHECK(outliers(outliers_table));
  if (residual_table.exists()) KV_CHECK(residual(residual_table));
  if (f_.codes().is_trellis()) check_trellis(top);
  if (f_.codes().is_vector()) check_vectors(top);
  fields(top);
  KV_CHECK(top.done());  // Report a wrong field first: it explains what check_fields would find missing.
  check_fields(top);
  KV_CHECK(top.done());
  if (accept.exists()) accept.require("max_relative_mse");
  accept.read("max_relative_mse", f_.max_relative_mse);
  KV_CHECK(accept.done());
  derive(f_);
  return std::move(f_);
}

Result<Format> parse_format(std::string_view toml_text, const std::string& file, const RotationLookup& rotations,
                            int head_dim) {
  return FormatReader(rotations, head_dim).read(toml_text, file);
}

}  // namespace kvjit
