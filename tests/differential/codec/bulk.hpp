// Bulk write path (many rows at once) against the reference codec. The CPU tests and the GPU tests share it.
// SPDX-License-Identifier: MIT
#pragma once
#include "tests/differential/harness.hpp"

namespace kvjit::test {

struct TileRows {
  std::vector<float> x;
  std::vector<std::uint8_t> stored;
  std::vector<double> decoded;
};

// Returns rows of a type, encoded and decoded. A third of the rows is small and a third large, if type and format have
// the range. Row 5 is zero.
inline TileRows tile_rows(const Format& format, int head_dim, std::size_t count, Element type) {
  TileRows rows;
  Rng rng(11);
  rows.x = heavy_tailed_rows(rng, int(count), head_dim);
  const auto row = [&](std::size_t i) {
    return std::span(rows.x).subspan(i * std::size_t(head_dim), std::size_t(head_dim));
  };
  for (std::size_t i = 0; i < count && type != Element::f16 && format.has_scale(); ++i)
    for (float& v : row(i)) v *= i % 3 == 0 ? 1e-4f : i % 3 == 1 ? 100.f : 1.f;
  for (float& v : row(5)) v = 0.f;
  rows.x = rounded_to(type, rows.x);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = encode_row(format, row(i));
    const auto values = decode_row(format, bytes, head_dim, false);
    rows.stored.insert(rows.stored.end(), bytes.begin(), bytes.end());
    rows.decoded.insert(rows.decoded.end(), values.begin(), values.end());
  }
  return rows;
}

inline kv::RowType row_type(Element type) {
  return type == Element::f16 ? kv::RowType::f16 : type == Element::bf16 ? kv::RowType::bf16 : kv::RowType::f32;
}

struct TileTypes {
  std::vector<Element> quantize = {Element::bf16, Element::f32, Element::f16};
  std::vector<Element> dequantize = quantize;
};

// Runs bulk quantize and dequantize of K with the kernels of `arch`, for each type that the program has a bulk kernel
// for. There must be at least one of each.
inline void check_tiles(const Registry& registry, const std::shared_ptr<Context>& context, const std::string& arch,
                        const std::string& k, int head_dim, Layout layout, long long tokens,
                        const TileTypes& types = {}) {
  CAPTURE(arch);
  CAPTURE(k);
  CAPTURE(head_dim);
  const Planned one = planned(registry, {k, "f16", head_dim, 1, 1, layout, false}, arch);
  const auto program = must(Program::create(context, one.source));
  KernelHarness harness = must(KernelHarness::make(context, program, one.problem, {1, kKvHeads, tokens}));
  TileRows rows;
  for (const Element type : types.quantize) {
    CAPTURE(int(type));
    const Role role = bulk_role(true, true, row_type(type));
    if (!one.source.kernels.count(role)) continue;
    rows = tile_rows(one.problem.k, head_dim, std::size_t(kKvHeads * tokens), type);
    must(harness.set_rows(0, std::vector<std::uint8_t>(rows.stored.size(), 0xa5)));  // quantize overwrites every byte
    must(harness.quantize(0, rows.x, type));
    CHECK(program->record(role) != nullptr);  // the bulk kernel ran, not the kernel for few rows
    const auto stored = must(harness.rows(0));
    // Behind a rotation, the residual sign of the largest value is the sign of the last bit of a sum: not compared.
    const Field* const signs = one.problem.k.field(FieldKind::residual_signs);
    const auto is_compared = [&](std::size_t byte) {
      const int at = int(byte % std::size_t(one.problem.k.block_bytes));
      return !signs || one.problem.k.rotation.is_identity() || at < signs->at || at >= signs->at + signs->bytes;
    };
    std::size_t differs = 0;
    for (std::size_t i = 0; i < stored.size(); ++i) differs += is_compared(i) && stored[i] != rows.stored[i];
    // Behind a rotation, and for norm scales, sums are float32, so a value next to a bound may get the other code.
    const Format& f = one.problem.k;
    const bool is_exact = f.rotation.kind == RotationKind::none && f.scale.rule != ScaleRule::norm;
    CHECK(differs <= (is_exact ? 0 : stored.size() / 1000));
    const std::ptrdiff_t row_bytes = f.head_bytes(head_dim);
    CHECK(std::equal(stored.begin() + 5 * row_bytes, stored.begin() + 6 * row_bytes,
                     rows.stored.begin() + 5 * row_bytes));  // a row of zeros has no sum and no bound
  }
  REQUIRE(!rows.x.empty());
  CHECK(program->record(Role::quantize_k) == nullptr);

  must(harness.set_rows(0, rows.stored));
  for (const Element type : types.dequantize) {
    CAPTURE(int(type));
    const Role role = bulk_role(false, true, row_type(type));
    if (!one.source.kernels.count(role)) continue;
    const auto back = must(harness.dequantize(0, false, type));
    CHECK(program->record(role) != nullptr);
    // Limits: the rounding error of the type (2.1e-4 in f16, 1.7e-3 in bf16) plus a margin of a tenth.
    CHECK(relative_error(back, rows.decoded) <= (type == Element::f32 ? 2e-6 : type == Element::f16 ? 2.4e-4 : 1.9e-3));
  }
  CHECK(program->record(Role::dequantize_k) == nullptr);
}

}  // namespace kvjit::test
