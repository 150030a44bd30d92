// The write path for many rows at once (quantise_tiles, dequantise_tiles) on the CPU back-end, against the reference codec: enough
// rows that the runtime takes it, rows that end inside a tile, tiles that span heads, both layouts.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

const Registry& registry() {
  static const Registry loaded = must(Registry::load(embedded_files()));
  return loaded;
}

struct Rows {
  std::vector<float> x;
  std::vector<std::uint8_t> stored;
  std::vector<double> decoded;
};

Rows rows_of(const Format& format, int head_dim, std::size_t count) {
  Rows rows;
  Rng rng(11);
  rows.x = rounded_to(Element::f16, heavy_tailed_rows(rng, int(count), head_dim));
  std::fill_n(rows.x.begin() + 5 * head_dim, head_dim, 0.f);  // a row without a direction
  for (std::size_t i = 0; i < count; ++i) {
    const auto row = std::span(rows.x).subspan(i * std::size_t(head_dim), std::size_t(head_dim));
    const auto bytes = encode_row(format, row);
    const auto values = decode_row(format, bytes, head_dim, false);
    rows.stored.insert(rows.stored.end(), bytes.begin(), bytes.end());
    rows.decoded.insert(rows.decoded.end(), values.begin(), values.end());
  }
  return rows;
}

void check_tiles(const std::string& k, int head_dim, Layout layout, long long tokens, bool goes_back = true) {
  CAPTURE(k);
  CAPTURE(head_dim);
  const auto context = open_context(DeviceKind::cpu);
  const Planned one = planned(registry(), {k, "f16", head_dim, 1, 1, layout, false}, context->backend()->facts().arch);
  REQUIRE(one.source.kernels.count(Role::quantise_tiles_k) == 1);
  const CacheShape shape{1, kKvHeads, tokens};
  const auto program = must(Program::create(context, one.source));
  Trial trial = must(Trial::make(context, program, one.problem, shape));
  const Rows rows = rows_of(one.problem.k, head_dim, std::size_t(kKvHeads * tokens));

  must(trial.quantise(0, rows.x, Element::f16));
  CHECK(program->record(Role::quantise_tiles_k) != nullptr);  // it ran, not the kernel for a few rows
  CHECK(program->record(Role::quantise_k) == nullptr);
  const auto stored = must(trial.rows(0));
  std::size_t differs = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) differs += stored[i] != rows.stored[i];
  CHECK(differs <= stored.size() / 1000);  // sums in float32; values next to a bound

  must(trial.set_rows(0, rows.stored));
  for (const Element type : {Element::f32, Element::f16}) {
    const auto back = must(trial.dequantise(0, false, type));
    CHECK(relative_error(back, rows.decoded) <= (type == Element::f32 ? 2e-6 : 4e-4));
  }
  CHECK((program->record(Role::dequantise_tiles_k) != nullptr) == goes_back);
  CHECK((program->record(Role::dequantise_k) == nullptr) == goes_back);
}

}  // namespace

TEST_CASE("many rows at once: bytes as the codec's, values as its decoder's") {
  for (const char* format : {"tbq4_0", "kv4", "kv3", "kv2", "kv1"})
    for (const Layout layout : {Layout::planar, Layout::rows}) check_tiles(format, 128, layout, 1031);
  check_tiles("tbq4_0", 256, Layout::planar, 1024);
  for (const Layout layout : {Layout::planar, Layout::rows})
    check_tiles("tbq4_dense_qsfirst_raw", 128, layout, 1031, false);
  check_tiles("tbq3_dense_qsfirst_raw", 256, Layout::planar, 1024, false);
}

TEST_CASE("a few rows, other types and other domains keep to the kernels for any row") {
  const auto context = open_context(DeviceKind::cpu);
  const Planned one =
      planned(registry(), {"kv4", "f16", 128, 1, 1, Layout::planar, false}, context->backend()->facts().arch);
  const auto program = must(Program::create(context, one.source));
  Trial few = must(Trial::make(context, program, one.problem, {1, kKvHeads, 100}));
  const Rows rows = rows_of(one.problem.k, 128, 200);
  must(few.quantise(0, rows.x, Element::f16));
  CHECK(program->record(Role::quantise_tiles_k) == nullptr);
  Trial many = must(Trial::make(context, program, one.problem, {1, kKvHeads, 1100}));
  const Rows more = rows_of(one.problem.k, 128, 2200);
  must(many.quantise(0, more.x, Element::f32));
  CHECK(program->record(Role::quantise_tiles_k) == nullptr);
  must(many.dequantise(0, true));
  CHECK(program->record(Role::dequantise_tiles_k) == nullptr);
}

TEST_CASE("formats that tiles cannot serve have no such kernel") {
  for (const char* format : {"q4_0", "kv5", "tbq4_dense256_qsfirst_raw", "turbo3_qk32", "turbo4_qjl68"}) {
    const Planned one = planned(registry(), {format, "f16", 256, 1, 1, Layout::planar, false}, "sm_90a");
    CHECK_MESSAGE(one.source.kernels.count(Role::quantise_tiles_k) == 0, format);
  }
}

}  // namespace kvjit::test
