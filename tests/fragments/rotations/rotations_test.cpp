// templates/rotations/blocks.cuh and dense.cuh: forward and inverse against the definition in double precision, with
// one and with several groups a row.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "rotations/blocks.cuh"
#include "rotations/dense.cuh"
#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

Rotation active;  // the rotation under test; the tables read it

// The tables of the rotation, in the order that the fragments expect.
template <int kGroup, bool kByRows>
struct DenseTable {
  static constexpr int kSize = kGroup;
  static constexpr bool kIsByRows = kByRows;
  static float at(int i) { return float(active.matrix[std::size_t(kByRows ? i : i % kGroup * kGroup + i / kGroup)]); }
};
template <int kGroup, int kBlock>
struct BlockTable {
  static constexpr int kSize = kGroup, kWidth = kBlock;
  static float at(int i) {
    const int channel = i / kBlock, place = channel % kBlock, t = i % kBlock;
    const int partner = kBlock == 3 ? (place + t) % 3 : place ^ t;
    return channel < kGroup ? float(active.matrix[std::size_t(channel * kBlock + partner)]) : 0.0f;
  }
};

template <class Fragment, int kPerLane>
void check(const Rotation& rotation) {
  constexpr int kRow = 32 * kPerLane;
  active = rotation;
  CAPTURE(active.name);
  CAPTURE(active.size);
  std::mt19937 random(kRow);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRow), forward(kRow), inverse(kRow);
  for (float& v : x) v = normal(random);
  const auto ran = run_grid(
      [&] {
        float mine[kPerLane], other[kPerLane];
        for (int e = 0; e < kPerLane; ++e) mine[e] = other[e] = x[e * 32 + kv::lane()];
        Fragment::forward(mine);
        Fragment::inverse(other);
        for (int e = 0; e < kPerLane; ++e) forward[e * 32 + kv::lane()] = mine[e];
        for (int e = 0; e < kPerLane; ++e) inverse[e * 32 + kv::lane()] = other[e];
      },
      {}, 32, 0);
  REQUIRE(ran);
  std::vector<double> want_forward(x.begin(), x.end()), want_inverse = want_forward;
  rotate_forward(active, want_forward.data(), kRow);
  rotate_inverse(active, want_inverse.data(), kRow);
  double norm = 0;  // mean square of a value; a Gaussian projection changes it
  for (double v : want_forward) norm += v * v / kRow;
  for (int i = 0; i < kRow; ++i) {
    REQUIRE(std::abs(forward[i] - want_forward[i]) < 1e-6 * std::sqrt(norm));
    REQUIRE(std::abs(inverse[i] - want_inverse[i]) < 1e-6 * std::sqrt(norm));
  }
}

template <int kGroup, int kPerLane>
void check_dense() {
  Rotation r{"householder", RotationKind::dense, kGroup, {}, {}, kGroup, householder_matrix(7, kGroup)};
  check<kv::Dense<DenseTable<kGroup, false>>, kPerLane>(r);
  check<kv::Dense<DenseTable<kGroup, true>>, kPerLane>(r);
  r.name = "gaussian", r.matrix = gaussian_matrix(7, kGroup), r.is_orthogonal = false;
  check<kv::Dense<DenseTable<kGroup, false>>, kPerLane>(r);
  check<kv::Dense<DenseTable<kGroup, true>>, kPerLane>(r);
}

template <int kGroup, int kPerLane>
void check_blocks() {
  std::mt19937 random(kGroup);
  std::normal_distribution<double> normal;
  std::vector<double> parameters(std::size_t(2 * kGroup));
  for (double& v : parameters) v = normal(random);
  const auto made = [&](BlockMap map, const char* name) {
    return Rotation{
        name, RotationKind::blocks, kGroup, {}, {}, block_width(map), block_matrix(map, parameters, kGroup)};
  };
  check<kv::Blocks<BlockTable<kGroup, 2>>, kPerLane>(made(BlockMap::givens, "givens"));
  check<kv::Blocks<BlockTable<kGroup, 3>>, kPerLane>(made(BlockMap::rotor, "rotor"));
  check<kv::Blocks<BlockTable<kGroup, 4>>, kPerLane>(made(BlockMap::quaternion, "quaternion"));
}

}  // namespace

TEST_CASE("dense rotations of 32 to 512, several groups a row") {
  check_dense<32, 1>();
  check_dense<32, 3>();
  check_dense<64, 4>();
  check_dense<128, 4>();
  check_dense<128, 8>();
  check_dense<256, 8>();
  check_dense<512, 16>();
}

TEST_CASE("blocks of two, three and four in groups of 16 to 512, several groups a row") {
  check_blocks<16, 2>();
  check_blocks<32, 1>();
  check_blocks<32, 4>();
  check_blocks<64, 2>();
  check_blocks<96, 3>();
  check_blocks<128, 4>();
  check_blocks<128, 8>();
  check_blocks<256, 8>();
  check_blocks<512, 16>();
}

}  // namespace kvjit
