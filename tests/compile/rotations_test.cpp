// Rotate kernels of every kind of rotation at every size up to 512 through NVRTC: nothing spills, nothing is on the stack.
// No GPU.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "generator/emit.hpp"
#include "runtime/compiler.hpp"
#include "tests/support/registry.hpp"

namespace kvjit {
namespace {

using test::must;

constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE

TEST_CASE("rotate kernels: no spills, no stack") {
  const auto nvrtc = open_nvrtc(Options::from_environment());
  if (!nvrtc) {
    std::printf("skipped: no NVRTC to compile with: %s\n", nvrtc.error().message.c_str());
    std::exit(kSkipped);
  }
  const Registry registry = must(Registry::load(embedded_files()));
  const std::vector<Spec> specs = must(parse_specs("[k]\nformat = 'f16'\n[v]\nformat = 'f16'", "rotate"));
  const auto check = [&](const Rotation& rotation, int head_dim) {
    for (const char* arch : {"sm_75", "sm_90a"})
      for (const bool is_inverse : {false, true}) {
        Problem problem = must(resolve(specs[0], registry, arch));
        problem.head_dim = head_dim;
        problem.k.rotation = problem.v.rotation = rotation;
        const Source source = emit_rotate(problem, is_inverse, registry);
        CAPTURE(source.name);
        const Artefact artefact = must((*nvrtc)->compile(source));
        CHECK(artefact.stack_bytes == 0);
        CHECK(artefact.spill_store_bytes == 0);
        CHECK(artefact.spill_load_bytes == 0);
      }
  };
  const auto blocks = [](BlockMap map, int size) {
    const std::vector<double> parameters(std::size_t(2 * size), 1.0);
    return Rotation{
        "blocks", RotationKind::blocks, size, {}, {}, block_width(map), block_matrix(map, parameters, size)};
  };
  for (const int size : {16, 32, 64, 128, 256, 512}) {
    const int head_dim = std::max(size, 32);
    check(must(registry.rotation("wht_unsigned", size, {})), head_dim);
    if (size >= 128) check(must(registry.rotation("wht_atlas", size, {})), head_dim);
    for (const BlockMap map : {BlockMap::givens, BlockMap::quaternion, BlockMap::rotor})
      check(blocks(map, size), head_dim);
    if (size == 512 || size == 128) check(blocks(BlockMap::rotor, size), 1024);
  }
  for (const int size : {128, 256, 512}) {
    const Rotation dense{"dense", RotationKind::dense, size, {}, {}, size, gaussian_matrix(1, size)};
    check(dense, size);
    if (size == 128) check(dense, 512);
  }
}

}  // namespace
}  // namespace kvjit
