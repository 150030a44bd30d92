// Reads [outliers] and [residual] of a format file. Each of them makes a further section of codes: wider codes for the
// channels of a mask, and signs of what the codes of a unit vector missed.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "generator/formats/format_reader.hpp"

namespace kvjit {

void FormatReader::mask_words(schema::Table& outliers, const schema::Node& mask, std::vector<bool>& is_outlier) {
  std::vector<std::string> words;
  outliers.read("mask", words);
  for (std::size_t w = 0; w < words.size(); ++w) {
    if (words[w].size() != 8 || words[w].find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      outliers.complain(mask.items[w].where, "a word of a mask is 8 hex digits: 32 channels, lowest bit first");
      continue;
    }
    const unsigned long bits = std::stoul(words[w], nullptr, 16);
    for (std::size_t b = 0; b < 32 && w * 32 + b < is_outlier.size(); ++b) is_outlier[w * 32 + b] = bits >> b & 1;
  }
  if (words.size() * 32 != is_outlier.size())
    outliers.complain(mask.where, fmt::format("a mask of {} words covers {} channels, but the block has {}",
                                              words.size(), words.size() * 32, is_outlier.size()));
}

Result<void> FormatReader::outliers(schema::Table& outliers) {
  Section wide;
  wide.kind = CodeKind::table;
  for (const char* key : {"mask", "bits", "codebook"}) outliers.require(key);
  outliers.read("bits", wide.bits, schema::kBits);
  wide.max_code = (1 << wide.bits) - 1;
  schema::Table book = outliers.table("codebook");
  std::vector<bool> is_outlier(std::size_t(f_.block), false);
  const schema::Node* mask = outliers.find("mask");
  outliers.takes("mask", schema::Node::Kind::text);
  outliers.takes_items("mask", schema::Node::Kind::text);
  if (mask && mask->kind == schema::Node::Kind::text) {
    if (mask->text != "stored") outliers.complain(mask->where, "mask must be a list of hex words, or \"stored\"");
    outliers.require("count");
    outliers.read("count", f_.stored_mask, {1, f_.block - 1});
    // Each block says which channels these are. Sizes follow from their number alone, so the first channels stand for
    // them.
    std::fill_n(is_outlier.begin(), f_.stored_mask, true);
  } else if (mask) {
    mask_words(outliers, *mask, is_outlier);
  }
  if (f_.codes().kind != CodeKind::table || f_.scale.group != f_.block)
    outliers.complain(outliers.where(), "outliers need [codes] kind = \"table\" and one scale a block");
  if (f_.scale.is_searched()) outliers.complain(outliers.where(), "outliers need a scale without 'search' and 'over'");
  KV_CHECK(outliers.done());
  for (int i = 0; i < f_.block; ++i) (is_outlier[std::size_t(i)] ? wide : f_.sections[0]).members.push_back(i);
  codebook(book, wide);
  KV_CHECK(book.done());
  if (wide.members.empty() || f_.sections[0].members.empty())
    return fail(Code::bad_input, "a mask must hold some channels and leave some", outliers.where("mask"));
  f_.sections.push_back(std::move(wide));
  return {};
}

Result<void> FormatReader::residual(schema::Table& residual) {
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
  if (f_.scale.rule != ScaleRule::norm || f_.scale.refine != Refine::none)
    return fail(Code::bad_input, "a residual is that of a unit vector: [scale] rule must be \"raw_norm\"",
                residual.where());
  if (f_.scale.group != f_.block || f_.scale.span != f_.block || f_.scale.renormalise)
    return fail(Code::bad_input, "a residual needs one norm a block", residual.where());
  if (r.is_original && f_.block % f_.rotation.size != 0)
    return fail(Code::bad_input,
                fmt::format("a residual in the original domain needs whole rotations, but {} does not divide a block "
                            "of {}",
                            f_.rotation.size, f_.block),
                residual.where("domain"));
  if (projection.exists()) {
    std::string name;
    projection.require("name");
    projection.read("name", name);
    KV_CHECK(projection.done());
    KV_TRY(rotation, rotations_.rotation(name, f_.scale.span, projection.where("name")));
    if (rotation.has_head_signs())
      return fail(
          Code::unsupported,
          fmt::format("the groups of a head have different signs in rotation '{}', which projects no residuals", name),
          projection.where("name"));
    r.projection = rotation;
    // S^T sign(S r) times a factor estimates r / |r|. The factor is sqrt(pi/2) / n for a Gaussian S, and sqrt(pi/2) /
    // sqrt(n) for an orthonormal one (arXiv 2504.19874, section 3.2).
    r.factor *= std::sqrt(std::numbers::pi / 2) / (rotation.is_orthogonal ? root : root * root);
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

}  // namespace kvjit
