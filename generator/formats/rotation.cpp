// Makes rotations of one group size from their generators, and applies them in double.
// SPDX-License-Identifier: MIT
#include "generator/formats/rotation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "generator/base/random.hpp"

namespace kvjit {
namespace {

// Multiplies the group of `size` channels, the first of which is channel `first`, with its signs.
void multiply(double* x, const std::vector<std::int8_t>& signs, int first, int size) {
  for (int i = 0; i < size; ++i) x[i] *= signs[std::size_t(first + i) % signs.size()];
}

// Multiplies with (1/sqrt n) H, in natural order. Scaling comes last, so that sums of f16 inputs are exact.
void hadamard(double* x, int n) {
  for (int half = 1; half < n; half *= 2)
    for (int i = 0; i < n; ++i)
      if (!(i & half)) {
        const double a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const double norm = 1 / std::sqrt(double(n));
  for (int i = 0; i < n; ++i) x[i] *= norm;
}

// Multiplies with the block-diagonal matrix, or with its transpose. A dense matrix is one block. The channels of a
// last, partial block meet only themselves.
void multiply(double* x, const Rotation& r, bool is_forward) {
  const std::vector<double> from(x, x + r.size);
  const std::vector<double>& matrix = r.matrix.numbers();
  for (int base = 0; base < r.size; base += r.width) {
    const int count = std::min(r.width, r.size - base);
    std::fill(x + base, x + base + count, 0.0);
    for (int row = 0; row < count; ++row)
      for (int column = 0; column < count; ++column) {
        const double entry = matrix[std::size_t((base + row) * r.width + column)];
        if (is_forward)
          x[base + row] += entry * from[std::size_t(base + column)];
        else
          x[base + column] += entry * from[std::size_t(base + row)];
      }
  }
}

void rotate(const Rotation& rotation, double* x, int n, bool is_forward) {
  if (rotation.is_identity()) return;
  for (double* group = x; group < x + n; group += rotation.size) {
    if (rotation.kind != RotationKind::wht) {
      multiply(group, rotation, is_forward);
      continue;
    }
    const int first = int(group - x);
    multiply(group, is_forward ? rotation.pre : rotation.post, first, rotation.size);
    hadamard(group, rotation.size);
    multiply(group, is_forward ? rotation.post : rotation.pre, first, rotation.size);
  }
}

void make_signs(const SignSource& source, Rotation& rotation) {
  const int size = rotation.size, draws = std::max(source.draws, size);
  switch (source.generator) {
    case SignGenerator::none:
      break;
    case SignGenerator::pcg64:
      rotation.pre = pcg64_signs(source.seed, 0, draws);
      rotation.post = pcg64_signs(source.seed, draws, draws);
      break;
    case SignGenerator::mt19937:
      rotation.pre = mt19937_signs(std::uint32_t(source.seed), 0, size);
      rotation.post = mt19937_signs(std::uint32_t(source.seed), size, size);
      break;
    case SignGenerator::golden:
      rotation.pre = golden_signs(size);
      break;
    case SignGenerator::listed:
      rotation.pre = source.pre;
      rotation.post = source.post;
      break;
  }
  rotation.pre.resize(std::size_t(std::max(size, source.channels)), 1);
  rotation.post.resize(std::size_t(size), 1);  // A one-sided transform states no post signs: they are +1.
}

// Draws the parameters of blocks as the projects do that use torch. All angles, or all quaternions, come from one call.
// Rotor i has a generator of its own, with the seed `seed` + i, which draws the bivector (e12, e13, e23) and then the
// angle.
std::vector<double> draw_blocks(const BlockSource& source, int size) {
  const int width = block_width(source.map), blocks = size / width;
  Torch torch{std::uint32_t(source.seed)};
  std::vector<double> parameters;
  if (source.map == BlockMap::givens) {
    parameters = torch.rand(blocks);
    for (double& angle : parameters) angle *= 2 * std::numbers::pi;
  } else if (source.map == BlockMap::quaternion) {
    parameters = torch.randn(size);
  } else {
    for (int i = 0; i < blocks; ++i) {
      Torch fresh{std::uint32_t(source.seed) + std::uint32_t(i)};
      const std::vector<double> bivector = fresh.randn(3);
      const double half = std::numbers::pi * fresh.rand(1)[0];
      const double scaled_sine = std::sin(half) / std::hypot(bivector[0], bivector[1], bivector[2]);
      // i = -e23, j = e13 and k = -e12 multiply like the units of quaternions, so R x R~ is q v q*.
      parameters.insert(parameters.end(), {std::cos(half), -scaled_sine * bivector[2], scaled_sine * bivector[1],
                                           -scaled_sine * bivector[0]});
    }
  }
  return parameters;
}

}  // namespace

Result<Rotation> make_rotation(const RotationSpec& spec, int size) {
  if (std::find(spec.sizes.begin(), spec.sizes.end(), size) == spec.sizes.end()) {
    return fail(Code::unsupported, fmt::format("rotation '{}' does not span {} channels", spec.name, size), {},
                {fmt::format("possible sizes: {}", fmt::join(spec.sizes, ", "))});
  }
  Rotation rotation;
  rotation.name = spec.name;
  rotation.kind = spec.kind;
  rotation.size = size;
  if (spec.kind == RotationKind::wht) {
    for (const SignSource& source : spec.signs)
      if (std::find(source.sizes.begin(), source.sizes.end(), size) != source.sizes.end()) make_signs(source, rotation);
  } else if (spec.kind == RotationKind::dense) {
    rotation.width = size;
    rotation.is_orthogonal = spec.matrix.generator != MatrixGenerator::gaussian;
    rotation.matrix = spec.matrix.by_size.at(size);
  } else {
    const BlockSource& source = spec.blocks;
    rotation.width = block_width(source.map);
    const std::vector<double> parameters = !source.is_listed                ? draw_blocks(source, size)
                                           : source.map == BlockMap::givens ? source.angles
                                                                            : source.quaternions;
    rotation.matrix = block_matrix(source.map, parameters, size);
  }
  return rotation;
}

void rotate_forward(const Rotation& rotation, double* x, int n) { rotate(rotation, x, n, true); }
void rotate_inverse(const Rotation& rotation, double* x, int n) { rotate(rotation, x, n, false); }

}  // namespace kvjit
