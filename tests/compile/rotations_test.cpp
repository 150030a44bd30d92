// Rotate kernels of every kind of rotation, at every size up to 512, through NVRTC. Each must compile without spills
// and without a stack frame. Needs no GPU.
// SPDX-License-Identifier: MIT
#include "generator/kernels/auxiliary/emit.hpp"
#include "tests/compile/kernels.hpp"

namespace kvjit::test {
namespace {

TEST_CASE("rotate kernels: no spills, no stack") {
  Kernels kernels;
  const std::vector<Spec> specs = must(parse_specs("[k]\nformat = 'f16'\n[v]\nformat = 'f16'", "rotate"));
  const auto add = [&](const Rotation& rotation, int head_dim) {
    for (const char* arch : {"sm_75", "sm_90a"})
      for (const bool is_inverse : {false, true}) {
        Problem problem = must(resolve(specs[0], registry(), arch));
        problem.head_dim = problem.head_dim_v = head_dim;
        problem.k.rotation = problem.v.rotation = rotation;
        kernels.add(emit_rotate(problem, is_inverse, registry()));
      }
  };
  const auto blocks = [](BlockMap map, int size) {
    const std::vector<double> parameters(std::size_t(2 * size), 1.0);
    return Rotation{
        "blocks", RotationKind::blocks, size, {}, {}, block_width(map), block_matrix(map, parameters, size)};
  };
  for (const int size : {16, 32, 64, 128, 256, 512}) {
    const int head_dim = std::max(size, 32);
    add(must(registry().rotation("wht_unsigned", size, {})), head_dim);
    if (size >= 128) add(must(registry().rotation("wht_atlas", size, {})), head_dim);
    for (const BlockMap map : {BlockMap::givens, BlockMap::quaternion, BlockMap::rotor})
      add(blocks(map, size), head_dim);
    if (size == 512 || size == 128) add(blocks(BlockMap::rotor, size), 1024);
  }
  for (const int size : {128, 256, 512}) {
    const Rotation dense{"dense", RotationKind::dense, size, {}, {}, size, gaussian_matrix(1, size)};
    add(dense, size);
    if (size == 128) add(dense, 512);
  }
  kernels.compile(2);
}

}  // namespace
}  // namespace kvjit::test
