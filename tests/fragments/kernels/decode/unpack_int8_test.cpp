// templates/kernels/decode/unpack_int8.cuh: each decoder over stored rows of real formats, in which every code occurs
// once at every position. The result must equal the values of the format.
// SPDX-License-Identifier: MIT
#include "kernels/decode/unpack_int8.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/device/cpu/block_scheduler.hpp"
#include "tests/support/packed_rows.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

SectionPlan active;  // the section under test; KeySection reads it

// Replaces the text that the emitter writes for a section of K, by the section's plan.
template <int kWords, int kCodes, int kTerms, bool kHasTable>
struct KeySection {
  static constexpr int kReadWords = kWords, kReadCodes = kCodes, kTableTerms = kTerms, kTableWords = kHasTable ? 8 : 0;
  static kv::u32 table_word(int i) { return active.integers.table.at(std::size_t(i)); }
  static void unpack(const kv::u32 (&w)[kWords], kv::u32* y) {
    const std::vector<std::uint32_t> words(w, w + kWords);
    for (const std::uint32_t word : test::unpacked(active.reads, words))
      *y++ = word ^ (active.integers.flips ? 0x80808080u : 0u);
  }
};

struct Tally {
  std::set<std::pair<int, int>> seen;  // (place in the lane read, code)
  double worst = 0, largest = 0;
};

template <template <class> class Integers, int kWords, int kCodes, int kTerms = 1>
void check(const char* name, int head_dim, double error = kTerms == 1 ? 0 : 0x1p-15) {
  using Any = KeySection<1, 8, 1, false>;
  constexpr bool kHasTable = !std::is_same_v<Integers<Any>, kv::PlainIntegers<Any>>;
  using F = KeySection<kWords, kCodes, kTerms, kHasTable>;
  CAPTURE(std::string(name));
  static const Registry registry = *Registry::load(embedded_files());
  const Format format = *registry.format_for(name, head_dim, {});
  const auto side = plan_side(format, head_dim, false, true, true);
  REQUIRE(side);
  active = side->sections[0];
  const LaneReads& reads = active.reads;
  const IntegerPlan& integers = active.integers;
  REQUIRE(reads.words == kWords);
  REQUIRE(reads.codes == kCodes);
  REQUIRE(integers.code_terms == kTerms);
  REQUIRE(Integers<F>::kTerms == kTerms);
  REQUIRE(integers.table.size() == F::kTableWords);

  kv::IntegerTable<F> table{};
  const auto ran = run_grid(
      [&] {
        kv::IntegerTable<F>::fill(0);
        kv::sync_block();
        if (kv::thread() == 63) table.load(0);  // a lane of the warp that did not fill the table
      },
      {}, 64, 64);
  REQUIRE(ran);

  const int codes = 1 << active.codes.bits, block_codes = format.block;
  Tally tally;
  test::Rng rng(1);  // random, because with related neighbours a test could miss an exchange of two codes
  std::vector<int> first;
  for (int i = 0; i < head_dim; ++i) first.push_back(rng.below(codes));
  for (int shift = 0; shift < codes; ++shift) {
    std::vector<std::uint8_t> row(std::size_t(format.row_bytes(head_dim)), 0xa5);
    for (int i = 0; i < head_dim; ++i)
      test::store_code(format, row.data() + i / block_codes * format.block_bytes, 0, i % block_codes,
                       (first[std::size_t(i)] + shift) % codes);
    const std::vector<int> stored = test::codes_of(format, row, 0, head_dim);
    for (int group = 0; group < reads.groups; ++group)
      for (int r = 0; r < reads.reads_per_group; ++r)
        for (int part = 0; part < reads.lanes_per_row; ++part) {
          const auto words = test::load_run(*side, reads, row.data(), group, r, part);
          kv::u32 w[kWords], y[kCodes / 4], z[kCodes / 4] = {};
          std::copy(words.begin(), words.end(), w);
          Integers<F>::words(w, y, z, table);
          for (int slot = 0; slot < kCodes; ++slot) {
            const int place = reads.lane_order[std::size_t(slot)];
            const int code = stored[std::size_t(reads.elements[std::size_t(
                ((group * reads.reads_per_group + r) * reads.lanes_per_row + part) * kCodes + place)])];
            const double value = test::value_of(active.codes, code);
            const double mine =
                integers.unit * (std::int8_t(y[slot / 4] >> 8 * (slot % 4)) +
                                 (z[slot / 4] >> 8 * (slot % 4) & 0xff) / 256.0 + (integers.sum_factor > 0 ? 0.5 : 0));
            tally.seen.insert({slot, code});
            tally.largest = std::max(tally.largest, std::fabs(value));
            tally.worst = std::max(tally.worst, std::fabs(mine - value));
          }
        }
  }
  CHECK(int(tally.seen.size()) == kCodes * codes);
  CHECK(tally.worst <= error * tally.largest);
}

}  // namespace

TEST_CASE("codes that are integers, at every place of a run") {
  check<kv::PlainIntegers, 1, 8>("q4_0", 128);
  check<kv::PlainIntegers, 2, 8>("q5_0", 128);
  check<kv::PlainIntegers, 2, 8>("q8_0", 128);
  check<kv::PlainIntegers, 7, 32>("kv7", 128);
  check<kv::PlainIntegers, 4, 16>("kv8", 128);
}

TEST_CASE("codebooks of up to eight centroids by one permute, in one part and in two") {
  check<kv::Table8Integers, 1, 32>("kv1", 128);
  check<kv::Table8Integers, 2, 32>("kv2", 128);
  check<kv::Table8Integers, 3, 32>("kv3", 128);
  check<kv::Table8Integers, 2, 32>("turbo2_0", 128, 0.00015);
  check<kv::Table8Integers, 3, 32, 2>("tbq3_0", 128);
  check<kv::Table8Integers, 3, 32, 2>("turbo3_0", 128);  // planes of 2 and 1 bits
  check<kv::Table8Integers, 6, 64, 2>("amesianx_tbq3_0", 256);
}

TEST_CASE("sixteen centroids: mirrored ones by their signs, any by both halves of the table") {
  check<kv::MirroredIntegers, 4, 32>("kv4", 128);
  check<kv::Table16Integers, 1, 8>("iq4_nl", 128);
  check<kv::Table16Integers, 1, 8>("mxfp4", 64);
}

}  // namespace kvjit
