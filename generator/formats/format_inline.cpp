// Makes the Format of a side whose spec states numbers (bits, block, codebook, scale, rotation) instead of a name, and
// computes the error that the tests hold it to. specs/docs/spec.md ("Inline formats") is the reference of the keys.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "generator/base/schema.hpp"
#include "generator/formats/codebook.hpp"
#include "generator/formats/format.hpp"

namespace kvjit {
namespace {

// P(X > a) of N(0,1).
double normal_tail(double a) { return std::erfc(a / std::numbers::sqrt2) / 2; }

// The relative squared error of numbers x of N(0,1) with |x| < limit, whose x / unit are coded by `levels`. It is a sum
// over kSteps points.
double relative_mse(const std::vector<double>& levels, double unit, double limit, Refine refine) {
  constexpr int kSteps = 4096;
  const std::vector<double> bounds = midpoints(levels);
  double xx = 0, xq = 0, qq = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = limit * ((2 * i + 1.0) / kSteps - 1), density = std::exp(-x * x / 2);
    const double q = unit * levels[code_of(x / unit, bounds)];
    xx += density * x * x, xq += density * x * q, qq += density * q * q;
  }
  if (refine == Refine::matched) return 2 - 2 * xq / std::sqrt(xx * qq);
  if (refine == Refine::least_squares) return 1 - xq * xq / (xx * qq);
  return (xx - 2 * xq + qq) / xx;
}

// The bound that tests hold an inline format to: its error on N(0,1), and 5 % for finite blocks and finite samples.
double expected_relative_mse(const Format& f) {
  constexpr double kMargin = 1.05, kEverything = 9;
  const Section& codes = f.codes();
  if (f.scale.rule == ScaleRule::norm)
    return kMargin * relative_mse(codes.values, std::sqrt(double(f.block)), kEverything, f.scale.refine);
  std::vector<double> levels = codes.values;
  if (codes.kind == CodeKind::uniform)
    for (int code = 2 * codes.offset - codes.max_code; code <= codes.max_code; ++code)
      levels.push_back(code - codes.offset);
  constexpr int kQuantiles = 16;  // The error is averaged over this many quantiles of a block's largest magnitude.
  double sum = 0;
  for (int i = 0; i < kQuantiles; ++i) {
    const double tail = -std::expm1(std::log((i + 0.5) / kQuantiles) / f.block) / 2;
    double low = 0, high = kEverything;
    for (int step = 0; step < 40; ++step) (normal_tail((low + high) / 2) > tail ? low : high) = (low + high) / 2;
    sum += relative_mse(levels, low / f.scale.divisor, low, Refine::none);
  }
  return kMargin * sum / kQuantiles;
}

}  // namespace

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
  Section& codes = f.sections.emplace_back();
  codes.bits = side.bits.value_or(0);
  f.block = side.block.value_or(128);
  if (codes.bits < schema::kBits.low || codes.bits > schema::kBits.high)
    return fail(Code::bad_input, fmt::format("bits must be {}..{}", schema::kBits.low, schema::kBits.high),
                where("bits"));
  if (!schema::is_power_of_two(f.block) || f.block < schema::kBlock.low || f.block > schema::kBlock.high)
    return fail(Code::bad_input,
                fmt::format("block must be a power of two, {}..{}", schema::kBlock.low, schema::kBlock.high),
                where("block"));
  if (!is_uniform && codebook != "lloyd_max")
    return fail(Code::bad_input, fmt::format("codebook '{}' is not known", codebook), where("codebook"),
                schema::suggestions(codebook, "codebooks", kInlineCodebooks));

  codes.max_code = (1 << codes.bits) - 1;
  if (scale == "corrected_norm")
    f.scale.rule = ScaleRule::norm, f.scale.refine = Refine::matched;
  else if (scale == "least_squares")
    f.scale.rule = ScaleRule::norm, f.scale.refine = Refine::least_squares;
  else if (scale == "raw_norm")
    f.scale.rule = ScaleRule::norm;
  else if (scale == "amax")
    f.scale.rule = ScaleRule::amax;
  else
    return fail(Code::bad_input, fmt::format("scale '{}' is not known", scale), where("scale"),
                schema::suggestions(scale, "scales", kInlineScales));
  if (is_uniform) {
    if (f.scale.rule != ScaleRule::amax)
      return fail(Code::unsupported, fmt::format("a uniform codebook has no {} scale", scale), where("scale"),
                  {"its steps are fractions of the largest magnitude: scale = \"amax\", or leave the key out"});
    if (codes.bits == 1)
      return fail(Code::unsupported, "a uniform codebook needs 2 bits or more", where("bits"),
                  {"its codes are symmetric about 0, so one bit would leave only 0; codebook = \"lloyd_max\" "
                   "has 1 bit"});
    codes.kind = CodeKind::uniform;
    codes.rounding = Rounding::half_away;
    codes.offset = 1 << (codes.bits - 1);
    f.scale.divisor = codes.offset - 1;
  } else {
    codes.kind = CodeKind::table;
    codes.values = lloyd_max_normal(codes.bits);
    const double unit = f.scale.rule == ScaleRule::norm ? std::sqrt(double(f.block)) : codes.values.back();
    for (double& v : codes.values) v = float(v / unit);
    codes.bounds = midpoints(codes.values);
    for (double& v : codes.bounds) v = float(v);
  }
  KV_TRY(transform, rotations.rotation(rotation, f.block, where("rotation")));
  f.rotation = transform;
  if (transform.has_head_signs())
    return fail(Code::unsupported,
                fmt::format("the groups of a head have different signs in rotation '{}', which formats of numbers do "
                            "not take",
                            rotation),
                where("rotation"));
  f.name = fmt::format("b{}_block{}_{}_{}", codes.bits, f.block, codebook, scale);
  if (!f.rotation.is_identity()) f.name += "_" + rotation;
  f.title = fmt::format("{}-bit {} codes in blocks of {}, scale {}, rotation {}", codes.bits, codebook, f.block, scale,
                        rotation);
  f.fields.resize(2);
  f.fields[0].kind = FieldKind::scale;
  f.fields[1].bits = codes.bits;
  f.max_relative_mse = expected_relative_mse(f);
  derive(f);
  return f;
}

}  // namespace kvjit
