// What kernels over tiles share as text: the formats that they read and write. Internal to generator/.
// SPDX-License-Identifier: MIT
#pragma once
#include <cmath>

#include "generator/kernels/codec/emit.hpp"

namespace kvjit::emit {

// One side of a kernel over tiles, as text. prefix: of its constants' names, where a kernel has two.
struct BulkText {
  const BulkPlan& plan;
  const Format& format;
  bool is_planar, is_quantize, by_matrix;
  int code_parts;  // decoding: halves of an entry
  std::string prefix = "k";
  // Rows of the matrix as the kernel holds it are this much longer than those of an orthogonal one.
  double length() const { return !plan.is_dense ? std::sqrt(double(kBulkGroup)) : by_matrix ? kDenseLength : 1; }
  // Quantizing finds cells, in ascending order, and makes codes of them at the end.
  std::vector<double> values() const { return is_quantize ? values_by_cell(format.codes()) : format.codes().values; }
};

void write_bulk_constants(Writer& w, const BulkText& text);
// Members of a plan: where codes and scales stand, what they mean, and the signs around a Walsh-Hadamard transform.
void write_bulk_places(Writer& w, const BulkText& text);
void write_bulk_numbers(Writer& w, const BulkText& text);
void write_bulk_signs(Writer& w, const BulkText& text);

}  // namespace kvjit::emit
