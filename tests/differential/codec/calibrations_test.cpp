// Calibrated specs on the CPU back-end, from the name in the spec to the output. Quantize, dequantize, decode and
// reference must agree with the reference codec and the oracle; products of queries and keys must equal those without
// the factors.
// SPDX-License-Identifier: MIT
#include "tests/differential/harness.hpp"

namespace kvjit::test {
namespace {

// `powers` has powers of two, exact in every arithmetic. `padded` is for a head that turbo3_0 pads to 128 channels.
FileSet files_with_calibrations() {
  FileSet files = embedded_files();
  const auto add = [&](const std::string& name, int head_dim) {
    std::string text = "title = 'of a test'\nchannels = [";
    for (int i = 0; i < head_dim; ++i) text += fmt::format("{}, ", std::exp2(i % 5 - 2));
    files["specs/calibrations/" + name + ".toml"] = text + "]";
  };
  add("powers", 128);
  add("padded", 96);
  return files;
}

struct Calibrated {
  const char* k;
  const char* v;
  int head_dim;
  Layout layout;
};
// Specs with factors alone, behind a rotation, together with an outlier mask (of `sample`), on one side only, and for
// padded heads.
constexpr Calibrated kSpecs[] = {
    {"format = 'q8_0', calibration = 'sample'", "format = 'f16'", 128, Layout::planar},
    {"format = 'f16'", "format = 'tbq4_0', calibration = 'sample'", 128, Layout::rows},
    {"format = 'turbo_split2_b', calibration = 'sample'", "bits = 4, rotation = 'wht_signed', calibration = 'sample'",
     128, Layout::planar},
    {"format = 'turbo3_0', calibration = 'padded'", "format = 'turbo3_0', calibration = 'padded'", 96, Layout::rows},
};

Planned planned_spec(const Registry& registry, const Calibrated& test, const std::string& arch) {
  const std::string toml = fmt::format(
      "k = {{ {} }}\nv = {{ {} }}\nattention = {{ head_dim = {}, q_heads_per_kv = 4 }}\ncache = {{ layout = '{}' }}\n",
      test.k, test.v, test.head_dim, to_string(test.layout));
  const std::vector<Spec> specs = must(parse_specs(toml, "calibrated.toml"));
  Problem problem = must(resolve(specs[0], registry, arch));
  ProgramSource source = must(make_program(problem, registry));
  return {{test.k, test.v, test.head_dim, 4, 1, test.layout, false}, std::move(problem), std::move(source)};
}

}  // namespace

TEST_CASE("a calibrated spec through quantize, decode and reference agrees with the oracle") {
  const auto context = open_context(DeviceKind::cpu);
  const Registry registry = must(Registry::load(files_with_calibrations()));
  for (const Calibrated& test : kSpecs) {
    const Planned one = planned_spec(registry, test, context->backend()->info().arch);
    warm_up(context, {one}, 2, true);
    Judge judge(context, one);
    for (const int side : {0, 1}) {
      const Format& format = side == 0 ? one.problem.k : one.problem.v;
      CHECK(format.channels.empty() == (std::string(side == 0 ? test.k : test.v) == "format = 'f16'"));
    }
    for (const int tokens : {1, 257})
      for (const bool is_reference : {false, true}) judge.check({tokens, {}, 0, is_reference});
    check_codec_kernels(judge, one.test.name());
  }
}

TEST_CASE(
    "factors keep <q, k>: with keys and values that no format rounds, the output is that of the numbers themselves") {
  const auto context = open_context(DeviceKind::cpu);
  const Registry registry = must(Registry::load(files_with_calibrations()));
  const Calibrated test{"format = 'f16', calibration = 'powers'", "format = 'f16', calibration = 'powers'", 128,
                        Layout::planar};
  const Planned one = planned_spec(registry, test, context->backend()->info().arch);
  Judge judge(context, one);
  for (const int side : {0, 1}) {
    const Encoded& cache = judge.cache(side);
    CHECK(relative_error(cache.decoded, cache.x) < 1e-3);  // the oracle's rows are the original rows ...
    Format bare = one.problem.k;
    bare.channels.clear();
    const auto unscaled = decode_row(bare, std::span(cache.rows).first(std::size_t(bare.row_bytes(128))), 128, false);
    CHECK(relative_error(unscaled, std::vector<double>(cache.decoded.begin(), cache.decoded.begin() + 128)) >
          0.3);  // ... but the stored bytes are scaled
  }
  for (const bool is_reference : {false, true}) judge.check({257, {}, 0, is_reference});
}

}  // namespace kvjit::test
