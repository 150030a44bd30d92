// Writes a rotation as data for the fragments of templates/rotations: sign masks of a Walsh-Hadamard transform, or the
// table of a dense or block matrix in the order in which lanes read it.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "generator/emit/writer.hpp"

namespace kvjit::emit {
namespace {

// Signs as masks: bit i of word w is set if value 32 w + i is negated. A group below 32 repeats inside its word.
std::vector<std::uint32_t> sign_words(const std::vector<std::int8_t>& signs) {
  std::vector<std::uint32_t> words(std::max<std::size_t>(signs.size() / 32, 1));
  for (std::size_t i = 0; i < 32 * words.size(); ++i)
    if (signs[i % signs.size()] < 0) words[i / 32] |= 1u << i % 32;
  return words;
}

bool has_minus(const std::vector<std::int8_t>& signs) {
  return std::find(signs.begin(), signs.end(), -1) != signs.end();
}

void write_wht(Writer& w, const Rotation& rotation, const std::string& type) {
  w.line("struct {}Signs {{", type);
  w.line("  static constexpr int kSize = {};", rotation.size);
  w.line("  static constexpr float kNorm = {};  // 1 / sqrt(kSize)", real(1 / std::sqrt(double(rotation.size))));
  // Masks are numbers in the code, because the first read of constant memory in a launch waits for it.
  const auto words = [&](const char* name, const std::vector<std::int8_t>& signs) {
    if (has_minus(signs)) {
      const std::vector<std::uint32_t> masks = sign_words(signs);
      w.line("  KV_DEVICE static u32 {}(int word) {{", name);
      w.line("    constexpr u32 kWords[{}] = {{{}}};", masks.size(),
             joined(masks, [](std::uint32_t word) { return fmt::format("{:#010x}", word); }));
      w.line("    return kWords[word];\n  }}");
    } else {
      w.line("  KV_DEVICE static u32 {}(int) {{ return 0; }}", name);
    }
  };
  if (rotation.has_head_signs()) words("head_signs", rotation.pre);
  words("pre_signs", rotation.has_head_signs() ? rotation.post : rotation.pre);
  words("post_signs", rotation.post);
  w.line("}};\nusing {} = {}<{}Signs>;\n", type, rotation.has_head_signs() ? "HeadSignedWht" : "Wht", type);
}

// The coefficients of each channel in the order of templates/rotations/blocks.cuh, for whole blocks.
std::vector<double> by_partner(const Rotation& rotation) {
  const int width = rotation.width, channels = (rotation.size + width - 1) / width * width;
  std::vector<double> table;
  for (int i = 0; i < channels; ++i)
    for (int t = 0; t < width; ++t) {
      const int place = i % width, partner = width == 3 ? (place + t) % 3 : place ^ t;
      table.push_back(i < rotation.size ? rotation.matrix[std::size_t(i * width + partner)] : 0);
    }
  return table;
}

// The entries of a dense matrix column by column, in which order lanes read it when they rotate forward.
std::vector<double> by_columns(const Rotation& rotation) {
  const int n = rotation.size;
  const std::vector<double>& matrix = rotation.matrix.numbers();
  std::vector<double> table;
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < n; ++i) table.push_back(matrix[std::size_t(i * n + k)]);
  return table;
}

void write_table(Writer& w, const Rotation& rotation, const std::string& type, bool goes_back) {
  const bool is_dense = rotation.kind == RotationKind::dense;
  const std::vector<double> table = !is_dense   ? by_partner(rotation)
                                    : goes_back ? rotation.matrix.numbers()
                                                : by_columns(rotation);
  w.line("KV_TABLE float k{}Table[{}] = {{\n    {}}};", type, table.size(), joined(table, real));
  w.line("struct {}Table {{", type);
  w.line("  static constexpr int kSize = {}, kWidth = {};", rotation.size, rotation.width);
  if (is_dense) w.line("  static constexpr bool kIsByRows = {};", flag(goes_back));
  w.line("  KV_DEVICE static float at(int i) {{ return k{}Table[i]; }}", type);
  w.line("}};\nusing {} = {}<{}Table>;\n", type, is_dense ? "Dense" : "Blocks", type);
}

}  // namespace

void write_rotation(Writer& w, const Rotation& rotation, const std::string& type, bool goes_back) {
  if (rotation.is_identity()) return w.line("using {} = NoRotation;\n", type);
  w.line("// {}, groups of {}", rotation.name, rotation.size);
  if (rotation.kind == RotationKind::wht)
    write_wht(w, rotation, type);
  else
    write_table(w, rotation, type, goes_back);
}

const char* rotation_fragment(const Rotation& rotation) {
  switch (rotation.kind) {
    case RotationKind::none:
      break;
    case RotationKind::wht:
      return rotation.has_head_signs() ? "rotations/head_signs.cuh" : "rotations/wht.cuh";
    case RotationKind::dense:
      return "rotations/dense.cuh";
    case RotationKind::blocks:
      return "rotations/blocks.cuh";
  }
  return "rotations/none.cuh";
}

}  // namespace kvjit::emit
