// Trial's memory: what fill lays where, over layouts, sequences, heads and copies. No kernel runs.
// SPDX-License-Identifier: MIT
#include "tools/trial.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "generator/codec.hpp"
#include "generator/program.hpp"
#include "generator/registry.hpp"

namespace kvjit {
namespace {

constexpr int kSequences = 2, kHeads = 3, kTokens = 100, kCapacity = 128, kCopies = 3;
constexpr std::size_t kSample = 37;  // rows; no divisor of anything here

struct Made {
  Problem problem;
  ProgramSource source;
};

Made made(const std::string& k, const std::string& v, const char* layout) {
  static const Registry registry = Registry::load(embedded_files()).value();
  const std::string toml =
      "[k]\nformat = \"" + k + "\"\n[v]\nformat = \"" + v + "\"\n[cache]\nlayout = \"" + layout + "\"\n";
  Made made{resolve(parse_specs(toml, "s").value().at(0), registry, "sm_90a").value(), {}};
  made.source = make_reference_program(made.problem, registry).value();
  made.source.kernels.clear();  // so that nothing is compiled
  return made;
}

std::shared_ptr<Context> cpu() {
  Options options;
  options.device = DeviceKind::cpu;
  options.cache_dir = "off";
  return Context::open(options).value();
}

TEST_CASE("a filled cache holds the rows in the order of its memory, in every copy") {
  const auto context = cpu();
  for (const char* layout : {"planar", "rows"})
    for (const auto& [k, v] : {std::pair{"tbq4_0", "f16"}, std::pair{"q8_0", "turbo_split_54"}}) {
      const Made one = made(k, v, layout);
      const auto program = Program::create(context, one.source).value();
      Trial trial = Trial::make(context, program, one.problem, {kSequences, kHeads, kTokens, kCopies}).value();
      for (const int side : {0, 1}) {
        CAPTURE(layout);
        CAPTURE(side);
        const auto row = static_cast<std::size_t>(side == 0 ? one.source.k.row_bytes : one.source.v.row_bytes);
        const Format& format = side == 0 ? one.problem.k : one.problem.v;
        std::vector<std::uint8_t> sample(kSample * row);
        for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = std::uint8_t(i * 7 + i / 251);
        REQUIRE(trial.fill(side, sample));
        const auto rows = trial.rows(side).value();
        std::size_t at = 0, wrong = 0;
        for (int s = 0; s < kSequences; ++s)
          for (int h = 0; h < kHeads; ++h)
            for (int t = 0; t < kTokens; ++t, at += row) {
              const int place =
                  one.source.is_planar ? (s * kHeads + h) * kCapacity + t : (s * kTokens + t) * kHeads + h;
              const std::uint8_t* want = &sample[std::size_t(place) % kSample * row];
              for (std::size_t block = 0; block < row; block += std::size_t(format.block_bytes))
                for (const Field& field : format.fields)
                  if (field.kind != FieldKind::pad)
                    wrong += !std::equal(want + block + field.at, want + block + field.at + field.bytes,
                                         &rows[at + block + std::size_t(field.at)]);
            }
        CHECK(wrong == 0);
      }
      std::vector<std::uint8_t> first(trial.memory(1) - trial.memory(0)), copy(first.size());
      REQUIRE(context->backend()->copy_to_host(first.data(), trial.memory(0), first.size()));
      for (int i = 1; i < kCopies; ++i) {
        REQUIRE(context->backend()->copy_to_host(copy.data(), trial.memory(i), copy.size()));
        CHECK(copy == first);
      }
      CHECK(first.size() * kCopies == memory_bytes(one.source, trial.shape()));
      CHECK(trial.fill(0, {}).error().code == Code::internal);
    }
}

TEST_CASE(
    "what memory a cache needs: both sides, their rounding and the bytes between; overflow stays the largest number") {
  const Made one = made("f16", "f16", "planar");
  const std::size_t side = std::size_t(kSequences) * kHeads * kCapacity * 256;
  CHECK(memory_bytes(one.source, {kSequences, kHeads, kTokens, 1}) == 2 * (side + 256));
  CHECK(memory_bytes(one.source, {kSequences, kHeads, kTokens, 5}) == 10 * (side + 256));
  const auto most = std::numeric_limits<std::size_t>::max();
  CHECK(memory_bytes(one.source, {65535, 65535, 1LL << 40, 1}) == most);
  CHECK(memory_bytes(one.source, {1, 65535, 1LL << 36, 1 << 30}) == most);
}

}  // namespace
}  // namespace kvjit
