// Text of the codec family; and writers that it shares with operations, whose kernels also take one side of a cache.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/catalogue/registry.hpp"
#include "generator/emit/writer.hpp"
#include "generator/kernels/codec/plan.hpp"
#include "generator/source.hpp"

namespace kvjit {

// quantize or dequantize, with one row a warp. Serves every format.
Source emit_codec(const CodecPlan& plan, const Registry& registry);
// A bulk form of quantize or dequantize, for formats that plan_bulk serves.
Source emit_bulk(const CodecPlan& codec, const BulkPlan& plan, const BulkKernel& kernel, const BulkCall& call,
                 const Registry& registry);

namespace emit {

// The struct of arguments that a kernel over a side takes, and its size.
const char* codec_args(const CodecPlan& plan);
int codec_args_bytes(const CodecPlan& plan);
// The fragments of pages, slots and lengths that the side needs.
void codec_fragments(Writer& w, const CodecPlan& plan);
// Writes a format by slots, or with lengths: struct `type` over struct `rows`, which is the same format without them.
// For plans without either nothing is written, and rows_name gives `rows` the name `type`.
void write_row_places(Writer& w, const CodecPlan& plan, const std::string& type, const std::string& rows);
inline std::string rows_name(const CodecPlan& plan, const std::string& type) {
  return plan.slots.empty() && !plan.has_lengths ? type : "Plain" + type;
}

}  // namespace emit
}  // namespace kvjit
