// The layout of caches that this library allocates. An engine may pass strides of its own instead.
//
//   rows    [sequence][token][head][row_bytes]
//   planar  codes [sequence][head][capacity][code_row_bytes], then scales [sequence][head][capacity][scale_row_bytes].
//           The capacity is rounded up to a multiple of 64 tokens, so that every head starts on a 16-byte boundary.
//   paged   Pages for the whole tokens of each sequence, rounded up. Sequence strides are those from page to page
//           (args/page_table.cuh). In a page, rows are [token][head][row_bytes]; planes are
//           [head][token][code_row_bytes], then [head][token][scale_row_bytes].
//
// A scale for each KV head is the caller's. Its strides are those of a dense array, and its pointer stays null.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>

#include "generator/source.hpp"
#include "runtime/device/backend.hpp"

namespace kvjit {

// One side of a cache.
struct SideGeometry {
  kv::CacheSide strides{};      // bytes; pointers are null
  std::size_t codes_bytes = 0;  // bytes of the codes, and offset of the scales: a multiple of 256, in pages of 16
  std::size_t total_bytes = 0;  // kTooMuch if they do not fit 64 bits
};
// Lays out one side for `sequences` x `heads` x `capacity` tokens; heads are KV heads.
SideGeometry side_geometry(const ProgramSource& source, const SideInfo& side, long long sequences, long long heads,
                           long long capacity);
// The side with its pointers, for memory that starts at `base`.
kv::CacheSide at(const SideGeometry& geometry, DevicePointer base);

}  // namespace kvjit
