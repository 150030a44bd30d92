// Writers of the formats that kernels over bulk tiles read and write, for codec and operations. Internal to generator/.
// SPDX-License-Identifier: MIT
#pragma once
#include <cmath>

#include "generator/kernels/codec/emit.hpp"

namespace kvjit::emit {

// One side of a kernel over bulk tiles.
struct BulkText {
  const BulkPlan& plan;
  const Format& format;
  bool is_planar, is_quantize, by_matrix;
  int code_terms;            // dequantize: fp16 numbers that hold an entry of the codebook, 1 or 2
  std::string prefix = "k";  // of the names of its constants; a kernel with two sides has two prefixes
  // The length of the rows of the matrix that the kernel multiplies by. Rows of an orthogonal matrix have length 1.
  double length() const { return !plan.is_dense ? std::sqrt(double(kBulkGroup)) : by_matrix ? kDenseLength : 1; }
  // The entries of the codebook. quantize finds cells, in ascending order, and turns them into codes at the end.
  std::vector<double> values() const { return is_quantize ? values_by_cell(format.codes()) : format.codes().values; }
};

void write_bulk_constants(Writer& w, const BulkText& text);
// Write members of a plan: the places of codes and scales; the numbers that codes stand for; the signs before and after
// a Walsh-Hadamard transform.
void write_bulk_places(Writer& w, const BulkText& text);
void write_bulk_values(Writer& w, const BulkText& text);
void write_bulk_signs(Writer& w, const BulkText& text);

}  // namespace kvjit::emit
