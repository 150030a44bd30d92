// emit_rotation: a rotation as data for the fragments of templates/rotations.
// SPDX-License-Identifier: MIT
#include <bit>
#include <cmath>

#include "generator/emit_text.hpp"

namespace kvjit::emit {
namespace {

std::string sign_words(const std::vector<std::int8_t>& signs) {
  std::vector<std::uint32_t> words(signs.size() / 32);
  for (std::size_t i = 0; i < signs.size(); ++i)
    if (signs[i] < 0) words[i / 32] |= 1u << i % 32;
  return joined(words, [](std::uint32_t word) { return fmt::format("{:#010x}", word); });
}

}  // namespace

// Signs as masks (bit i of word w: value 32 w + i is negated), computed from the rotation's generator.
void write_rotation(Writer& w, const Rotation& rotation) {
  if (rotation.is_identity()) return w.line("using PlanRotation = NoRotation;\n");
  w.line("// {}, groups of {}", rotation.name, rotation.size);
  w.line("KV_CONSTANT u32 kPreSigns[{}] = {{{}}};", rotation.size / 32, sign_words(rotation.pre));
  w.line("KV_CONSTANT u32 kPostSigns[{}] = {{{}}};", rotation.size / 32, sign_words(rotation.post));
  w.line("struct Signs {{");
  w.line("  static constexpr int kSize = {};", rotation.size);
  w.line("  static constexpr float kNorm = {};  // 1 / sqrt(kSize)", real(1 / std::sqrt(double(rotation.size))));
  w.line("  KV_DEVICE static u32 pre_signs(int word) {{ return kPreSigns[word]; }}");
  w.line("  KV_DEVICE static u32 post_signs(int word) {{ return kPostSigns[word]; }}");
  w.line("}};\nusing PlanRotation = Wht<Signs>;\n");
}

const char* rotation_fragment(const Rotation& rotation) {
  return rotation.is_identity() ? "rotations/none.cuh" : "rotations/wht.cuh";
}

}  // namespace kvjit::emit
