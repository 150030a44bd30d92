// Rotate kernels of every rotation in specs/rotations, on the CPU back-end, against the definition in double precision.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "args/attention.cuh"
#include "generator/kernels/auxiliary/emit.hpp"
#include "tests/support/open_context.hpp"
#include "tests/support/registry.hpp"
#include "tests/support/rng.hpp"

namespace kvjit {
namespace {

using test::must;

constexpr int kRows = 3;  // a block has four warps, so one has no row

std::vector<float> rotated_by_kernel(Context& context, const Source& source, const std::vector<float>& x,
                                     int head_dim) {
  const KernelRecord record = must(context.get(source));
  const std::shared_ptr<Backend>& backend = context.backend();
  const std::size_t bytes = x.size() * sizeof(float);
  const Buffer in = must(Buffer::make(backend, bytes)), out = must(Buffer::make(backend, bytes));
  REQUIRE(backend->copy_to_device(in.pointer(), x.data(), bytes));
  const auto rows = [&](const Buffer& buffer) {
    return kv::Rows{reinterpret_cast<void*>(buffer.pointer()), kRows * head_dim, head_dim, head_dim};
  };
  const kv::RotateArgs args{rows(in), rows(out), 1, kRows, 1};
  REQUIRE(backend->launch(*record.kernel, {}, &args, nullptr));
  REQUIRE(backend->synchronize(nullptr));
  std::vector<float> y(x.size());
  REQUIRE(backend->copy_to_host(y.data(), out.pointer(), bytes));
  return y;
}

TEST_CASE("emitted rotate kernels, forward and inverse, for every rotation and size") {
  const Registry registry = must(Registry::load(embedded_files()));
  const std::shared_ptr<Context> context = test::open_context(DeviceKind::cpu);
  const std::vector<Spec> specs = must(parse_specs("[k]\nformat = 'f16'\n[v]\nformat = 'f16'", "rotate"));
  Problem problem = must(resolve(specs[0], registry, "sm_90a"));
  problem.q_type = problem.out_type = Element::f32;
  for (const auto& [name, spec] : registry.rotations())
    for (const int size : spec.sizes) {
      CAPTURE(name);
      CAPTURE(size);
      const Rotation rotation = must(make_rotation(spec, size));
      problem.k.rotation = problem.v.rotation = rotation;
      problem.head_dim = problem.head_dim_v = size <= 128 ? 2 * size : size;  // two groups in a row, if that is quick
      test::Rng rng{std::uint64_t(size)};
      const std::vector<float> x = rng.normals(std::size_t(kRows * problem.head_dim));
      for (const bool is_inverse : {false, true}) {
        const std::vector<float> y =
            rotated_by_kernel(*context, emit_rotate(problem, is_inverse, registry), x, problem.head_dim);
        std::vector<double> want(x.begin(), x.end());
        for (int row = 0; row < kRows; ++row)
          (is_inverse ? rotate_inverse : rotate_forward)(rotation, want.data() + row * problem.head_dim,
                                                         problem.head_dim);
        double square = 0;
        for (double v : want) square += v * v / double(want.size());
        for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(std::abs(y[i] - want[i]) < 1e-6 * std::sqrt(square));
      }
    }
}

}  // namespace
}  // namespace kvjit
