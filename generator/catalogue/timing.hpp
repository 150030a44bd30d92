// SchedulerTiming: what an arch's memory, launches and merges cost, as data (table [timing] of specs/archs/*.toml). The
// planner of decode chooses bytes in flight by it, and the host compares schedules by it
// (runtime/launch/tile_schedule).
// SPDX-License-Identifier: MIT
#pragma once

namespace kvjit {

struct SchedulerTiming {
  double bytes_in_flight = 0;    // bytes of K and V that a multiprocessor should have under way
  double read_bytes_per_us = 0;  // bytes of K and V that a multiprocessor reads in a microsecond
  double split_boundary_us = 0;  // microseconds of a split boundary inside a block: a second prologue and epilogue
  double merge_round_us = 0;     // microseconds of one more merge round of kv::kSplitsAtOnce splits
  double merge_step_us = 0;      // microseconds of a merge step of a warp inside `decode`: 128 outputs of one row
  double merge_launch_us = 0;    // microseconds of a launch of `merge`
  double merge_block_us = 0;     // microseconds that each block of that launch adds
};

}  // namespace kvjit
