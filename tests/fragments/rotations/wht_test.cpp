// templates/rotations/wht.cuh: forward against the definition in double precision; inverse after forward must be the
// identity.
// SPDX-License-Identifier: MIT
#include "rotations/wht.cuh"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/device/cpu/block_scheduler.hpp"

namespace kvjit {
namespace {

Rotation active;  // the rotation and size under test

template <int kGroup>
struct Signs {
  static constexpr int kSize = kGroup;
  static constexpr float kNorm = kGroup == 16    ? 0.25f
                                 : kGroup == 32  ? 0.17677669f
                                 : kGroup == 64  ? 0.125f
                                 : kGroup == 128 ? 0.088388346f
                                 : kGroup == 256 ? 0.0625f
                                                 : 0.044194173f;
  static kv::u32 word(const std::vector<std::int8_t>& signs, int w) {
    kv::u32 bits = 0;
    for (int i = 0; i < 32; ++i) bits |= kv::u32(signs[(32 * w + i) % kGroup] < 0) << i;
    return bits;
  }
  static kv::u32 pre_signs(int w) { return word(active.pre, w); }
  static kv::u32 post_signs(int w) { return word(active.post, w); }
};

template <int kGroup>
void check_wht() {
  constexpr int kPerLane = 16, kRow = 512;
  static const Registry registry = *Registry::load(embedded_files());
  active = *registry.rotation(kGroup == 16 ? "wht_unsigned" : "wht_signed", kGroup, {});
  if (kGroup == 16) active.pre[3] = active.pre[8] = active.post[15] = -1;  // no published file has signs for 16
  std::mt19937 random(kGroup);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRow), y(kRow), back(kRow);
  for (float& v : x) v = normal(random);
  const auto ran = run_grid(
      [&] {
        float mine[kPerLane];
        for (int e = 0; e < kPerLane; ++e) mine[e] = x[e * 32 + kv::lane()];
        kv::Wht<Signs<kGroup>>::forward(mine);
        for (int e = 0; e < kPerLane; ++e) y[e * 32 + kv::lane()] = mine[e];
        kv::Wht<Signs<kGroup>>::inverse(mine);
        for (int e = 0; e < kPerLane; ++e) back[e * 32 + kv::lane()] = mine[e];
      },
      {}, 32, 0);
  REQUIRE(ran);
  std::vector<double> want(x.begin(), x.end());
  rotate_forward(active, want.data(), kRow);
  for (int i = 0; i < kRow; ++i) {
    CHECK(y[i] == doctest::Approx(want[i]).epsilon(1e-6).scale(1));
    CHECK(back[i] == doctest::Approx(x[i]).epsilon(1e-6).scale(1));
  }
}

}  // namespace

TEST_CASE("signed Walsh-Hadamard of 16 to 512, one and several groups a row") {
  check_wht<16>();
  check_wht<32>();
  check_wht<64>();
  check_wht<128>();
  check_wht<256>();
  check_wht<512>();
}

}  // namespace kvjit
