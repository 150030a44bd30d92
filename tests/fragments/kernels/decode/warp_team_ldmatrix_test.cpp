// templates/kernels/decode/warp_team_ldmatrix.cuh: places of the 16-byte chunks in rows that ldmatrix transposes, and
// the planner's choice of such rows.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "generator/kernels/decode/plan.hpp"
#include "kernels/decode/stage_tile.cuh"
#include "tests/support/every_format.hpp"

namespace kvjit {
namespace {

constexpr kv::u32 kChunk = 16, kRow = 64, kPeriod = 8;  // bytes; bytes; rows
constexpr int kOfMatrices = -2;

kv::u32 place(kv::u32 byte) { return kv::swizzled<kOfMatrices>(byte); }

}  // namespace

TEST_CASE(
    "chunks dealt anew for matrices: each has its place, any eight rows are alike, and rows of a matrix meet in no "
    "bank") {
  constexpr kv::u32 kTile = 32 * kRow;
  std::vector<bool> is_taken(kTile);
  for (kv::u32 byte = 0; byte < kTile; ++byte) {
    const kv::u32 to = place(byte);
    REQUIRE(to < kTile);
    REQUIRE_FALSE(is_taken[to]);
    is_taken[to] = true;
    REQUIRE(to % kChunk == byte % kChunk);  // chunks stay whole
    REQUIRE(place(byte + kPeriod * kRow) == to + kPeriod * kRow);
  }
  for (kv::u32 byte = 0; byte < kRow; byte += kChunk)
    for (kv::u32 upper = 0; upper < 256; ++upper) {  // bits: which of the eight rows belong to the second eight tokens
      std::vector<int> addresses;
      for (kv::u32 row = 0; row < 8; ++row)
        addresses.push_back(int(place((row + (upper >> row & 1) * 8) * kRow + byte)));
      REQUIRE(bank_wavefronts(addresses, kChunk) == 1);
    }
}

TEST_CASE("V is read by ldmatrix where eight lanes' codes of a token fill a chunk") {
  const Registry registry = *Registry::load(embedded_files());
  int seen = 0;
  for (const std::string& name : test::format_names(registry)) {
    if (test::fitting(registry, name, {128}).empty()) continue;
    const auto side = plan_side(*registry.format_for(name, 128, {}), 128, true, false, false, 4, 16, true);
    if (!side || !side->by_matrices) continue;
    INFO(name);
    ++seen;
    CHECK(side->row_bytes == int(kRow));
    CHECK(side->pitch == int(kRow));
    CHECK(side->swizzle == kOfMatrices);
    CHECK(side->sections[0].reads.bank_cost == 1);
  }
  CHECK(seen >= 2);  // kv4 and tbq4_0 among them
  for (const char* name : {"kv4", "tbq4_0"}) {
    const Format format = *registry.format_for(name, 128, {});
    CHECK(plan_side(format, 128, true, false, false, 4, 16, true)->by_matrices);
    CHECK_FALSE(plan_side(format, 128, true, false, false, 4)->by_matrices);             // not requested
    CHECK_FALSE(plan_side(format, 128, false, false, false, 4, 16, true)->by_matrices);  // unaligned rows
    CHECK_FALSE(plan_side(format, 64, true, false, false, 4, 16, true)->by_matrices);    // one byte a lane
  }
}

}  // namespace kvjit
