// tools/verify/harness.cpp: where fill() writes rows, by layout, sequence, head and copy, and which copy a timed call
// reads. No kernel runs.
// SPDX-License-Identifier: MIT
#include "tools/verify/harness.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "args/attention.cuh"
#include "generator/catalogue/registry.hpp"
#include "generator/formats/reference_codec.hpp"
#include "generator/program.hpp"
#include "tests/support/recording_device.hpp"
#include "tools/bench/bench.hpp"

namespace kvjit {
namespace {

constexpr int kSequences = 2, kHeads = 3, kTokens = 100, kCapacity = 128, kCopies = 3;
constexpr std::size_t kSample = 37;  // rows; a prime, so no other size is a multiple of it

struct Made {
  Problem problem;
  ProgramSource source;
};

Made made(const std::string& k, const std::string& v, const char* layout) {
  static const Registry registry = Registry::load(embedded_files()).value();
  const std::string toml =
      "[k]\nformat = \"" + k + "\"\n[v]\nformat = \"" + v + "\"\n[cache]\nlayout = \"" + layout + "\"\n";
  Made made{resolve(parse_specs(toml, "s").value().at(0), registry, "sm_90a").value(), {}};
  made.source = make_program(made.problem, registry).value();
  return made;
}

TEST_CASE("a filled cache holds the rows in the order of its memory, in every copy") {
  const auto context = std::make_shared<test::RecordingContext>();
  for (const char* layout : {"planar", "rows"})
    for (const auto& [k, v] : {std::pair{"tbq4_0", "f16"}, std::pair{"q8_0", "turbo_split_54"}}) {
      const Made one = made(k, v, layout);
      const auto program = Program::create(context, one.source).value();
      KernelHarness harness =
          KernelHarness::make(context, program, one.problem, {kSequences, kHeads, kTokens, kCopies}).value();
      for (const int side : {0, 1}) {
        CAPTURE(layout);
        CAPTURE(side);
        const auto row = static_cast<std::size_t>(side == 0 ? one.source.k.row_bytes : one.source.v.row_bytes);
        const Format& format = side == 0 ? one.problem.k : one.problem.v;
        std::vector<std::uint8_t> sample(kSample * row);
        for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = std::uint8_t(i * 7 + i / 251);
        REQUIRE(harness.fill(side, sample));
        const auto rows = harness.rows(side).value();
        std::size_t at = 0, wrong = 0;
        for (int s = 0; s < kSequences; ++s)
          for (int h = 0; h < kHeads; ++h)
            for (int t = 0; t < kTokens; ++t, at += row) {
              const int place =
                  one.source.is_planar() ? (s * kHeads + h) * kCapacity + t : (s * kTokens + t) * kHeads + h;
              const std::uint8_t* want = &sample[std::size_t(place) % kSample * row];
              for (std::size_t block = 0; block < row; block += std::size_t(format.block_bytes))
                for (const Field& field : format.fields)
                  if (field.kind != FieldKind::pad)
                    wrong += !std::equal(want + block + field.at, want + block + field.at + field.bytes,
                                         &rows[at + block + std::size_t(field.at)]);
            }
        CHECK(wrong == 0);
      }
      std::vector<std::uint8_t> first(harness.memory(1) - harness.memory(0)), copy(first.size());
      REQUIRE(context->backend()->copy_to_host(first.data(), harness.memory(0), first.size()));
      for (int i = 1; i < kCopies; ++i) {
        REQUIRE(context->backend()->copy_to_host(copy.data(), harness.memory(i), copy.size()));
        CHECK(copy == first);
      }
      CHECK(first.size() * kCopies == memory_bytes(one.source, harness.shape()));
      CHECK(harness.fill(0, {}).error().code == Code::internal);
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

TEST_CASE("timed calls read a copy each, in turn, and say what they launched") {
  const auto context = std::make_shared<test::RecordingContext>();
  const Made one = made("tbq4_0", "q8_0", "planar");
  const auto program = Program::create(context, one.source).value();
  const KernelHarness harness =
      KernelHarness::make(context, program, one.problem, {kSequences, kHeads, kTokens, kCopies}).value();
  const std::vector<float> q(static_cast<std::size_t>(kSequences * kHeads * 128), 1.0f);
  const KernelHarness::Timed timed = harness.time(q, {}, 5).value();
  CHECK(timed.timing.repeats == 5);
  const auto kernels = launched_kernels(*program, timed.report).value();
  REQUIRE(kernels.size() == timed.report.kernels.size());
  CHECK(context->device->launches.size() == kCopies * kernels.size());
  const auto attend = std::find_if(kernels.begin(), kernels.end(), [](const auto& k) { return k.role == "decode"; });
  REQUIRE(attend != kernels.end());
  CHECK(attend->registers == attend->threads / 4);  // from the record, not from the plan
  CHECK(attend->shared_bytes == one.source.kernels.at(Role::decode).shared_bytes);

  std::vector<kv::AttentionArgs> calls;
  for (const auto& launch : context->device->launches)
    if (launch.entry == one.source.kernels.at(Role::decode).entry) calls.push_back(launch.as<kv::AttentionArgs>());
  REQUIRE(calls.size() == kCopies);
  for (int copy = 0; copy < kCopies; ++copy) {
    const auto& call = calls[std::size_t(copy)];
    CHECK(reinterpret_cast<DevicePointer>(call.k.codes) == harness.memory(copy));
    CHECK(call.v.codes > call.k.codes);
    CHECK(call.v.scales - call.k.codes == calls[0].v.scales - calls[0].k.codes);
    CHECK(reinterpret_cast<DevicePointer>(call.v.scales) < harness.memory(copy + 1));
  }
}

}  // namespace
}  // namespace kvjit
