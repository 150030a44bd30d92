// The workspace of one attention call: device memory of the caller's that holds the split counters, the partial results
// of splits, and rows that separate launches rotate.
//
//   counters | rotated Q | output before its rotation | partial outputs | partial states
//
// Every array starts at a multiple of kArrayAlignment bytes. The arrays of rotated rows are empty if K or V is stored
// without a rotation, padding or residual.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>

#include "generator/source.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/launch/calls.hpp"

namespace kvjit {

struct Workspace {
  std::size_t rotated_q = 0;  // byte offset: f32 rows of Q in the rotated domain
  // The layouts of decode: [slot][row][V's rotated_dim] and [slot][row][2]. Splits of prefill take the same places.
  std::size_t partial = 0;        // byte offset: f32 outputs of splits, not normalized
  std::size_t state = 0;          // byte offset: f32 row maxima and denominators of splits
  std::size_t unrotated_out = 0;  // byte offset: f32 rows of the output before its rotation
  std::size_t bytes = 0;          // size of the workspace in bytes; kTooMuch if that does not fit 64 bits
};
Workspace lay_out(const ProgramSource& source, const DeviceInfo& device, const AttentionCall& call);

}  // namespace kvjit
