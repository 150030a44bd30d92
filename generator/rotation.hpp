// Rotation: an orthogonal map applied to groups of channels before quantisation, given by data in specs/rotations/*.toml.
//
//   wht   forward  y = S2 . (1/sqrt n) . H . S1 . x      inverse  x = S1 . (1/sqrt n) . H . S2 . y
//         H: Sylvester (natural order) Walsh-Hadamard; S1 = pre signs, S2 = post signs (diagonal +-1).
//
// Query and key both use forward; the attention output uses the inverse of V's rotation.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/result.hpp"

namespace kvjit {

enum class RotationKind { none, wht };

// How a sign array is made: a readable generator, never a typed mask.
struct SignSource {
  std::string generator;  // "pcg64" (numpy default_rng), "golden" (golden ratio), "list"
  std::uint64_t seed = 0;
  int draws = 0;                       // length of each of the two arrays as drawn; a shorter size uses their prefix
  std::vector<std::int8_t> pre, post;  // generator "list": +1 / -1
};

// A rotation family as its TOML file states it.
struct RotationSpec {
  std::string name, title, source;
  RotationKind kind = RotationKind::none;
  std::vector<int> sizes;  // group sizes that the file allows
  SignSource signs;
};

// A rotation of one group size, signs computed.
struct Rotation {
  std::string name = "none";
  RotationKind kind = RotationKind::none;
  int size = 1;                        // channels a group
  std::vector<std::int8_t> pre, post;  // size entries of +1 / -1 each
  bool is_orthogonal = true;           // else rotate_inverse is the transpose, not the inverse
  bool is_identity() const { return kind == RotationKind::none; }
  bool operator==(const Rotation&) const = default;
};

Result<RotationSpec> parse_rotation(std::string_view toml_text, const std::string& file);

// Fails with unsupported when the file does not allow `size` (message lists the sizes that are possible).
Result<Rotation> make_rotation(const RotationSpec& spec, int size);

// In place, in double, over consecutive groups of rotation.size; n must be a multiple of it.
void rotate_forward(const Rotation& rotation, double* x, int n);
void rotate_inverse(const Rotation& rotation, double* x, int n);

// numpy.random.default_rng(seed).choice([-1, 1]): one bit a 32-bit half of the PCG64 (XSL-RR 128/64) output, low half first,
// its top bit: 0 -> -1, 1 -> +1. SeedSequence(seed) fills the state.
std::vector<std::int8_t> pcg64_signs(std::uint64_t seed, int skip, int count);

// sign[i] = -1 iff bit 31 of (i * 0x9E3779B9 mod 2^32) is set.
std::vector<std::int8_t> golden_signs(int count);

}  // namespace kvjit
