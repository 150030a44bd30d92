// What kernels over tiles share as text: the formats that they read and write. Internal to generator/.
// SPDX-License-Identifier: MIT
#pragma once
#include <cmath>

#include "generator/kernels/codec/emit.hpp"

namespace kvjit::emit {

// One side of a kernel over tiles, as text. prefix: of its constants' names, where a kernel has two.
struct TileText {
  const TilePlan& plan;
  const Format& format;
  bool is_planar, is_quantize, by_matrix;
  int code_parts;  // decoding: halves of an entry
  std::string prefix = "k";
  // Rows of the matrix as the kernel holds it are this much longer than those of an orthogonal one.
  double length() const { return !plan.is_dense ? std::sqrt(double(kTileGroup)) : by_matrix ? kDenseLength : 1; }
  // Quantizing finds cells, in ascending order, and makes codes of them at the end.
  std::vector<double> values() const { return is_quantize ? values_by_cell(format.codes()) : format.codes().values; }
};

void write_tile_constants(Writer& w, const TileText& text);
// Members of a plan: where codes and scales stand, what they mean, and the signs around a Walsh-Hadamard transform.
void write_tile_places(Writer& w, const TileText& text);
void write_tile_numbers(Writer& w, const TileText& text);
void write_tile_signs(Writer& w, const TileText& text);

}  // namespace kvjit::emit
