// How this library lays out the cache that it allocates.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>

#include "generator/source.hpp"
#include "runtime/device/backend.hpp"

namespace kvjit {

// Cache geometry of one side for `sequences` x `heads` x `capacity` tokens, as this library allocates it (an engine may
// pass its own strides instead).
//   rows    [sequence][token][head][row_bytes]
//   planar  codes [sequence][head][capacity][code_row_bytes], then scales [sequence][head][capacity][scale_row_bytes];
//           capacity is rounded up to a multiple of 64 tokens so that every head starts on a 16-byte boundary
//   paged   pages for the whole tokens of each sequence, rounded up; strides of sequences are those of pages (args/page_table.cuh). In a
//           page rows are [token][head][row_bytes]; planes are [head][token][code_row_bytes], then [head][token][scale_row_bytes]
struct SideGeometry {
  kv::CacheSide strides{};      // pointers null
  std::size_t codes_bytes = 0;  // also the offset of the scales plane (a multiple of 256; in pages, of 16)
  std::size_t total_bytes = 0;
};
SideGeometry side_geometry(const ProgramSource& source, const SideFacts& side, long long sequences, long long heads,
                           long long capacity);
kv::CacheSide at(const SideGeometry& geometry, DevicePointer base);

}  // namespace kvjit
