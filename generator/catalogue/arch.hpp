// Arch: the capabilities and limits of a GPU architecture, as data (specs/archs/*.toml). Planners ask for capabilities
// (has("wgmma")), never for the number of an architecture.
// SPDX-License-Identifier: MIT
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "generator/base/result.hpp"
#include "generator/catalogue/timing.hpp"

namespace kvjit {

struct Arch {
  std::string name;  // "sm_90a": the stem of the file's name, and the compiler's name of the architecture
  std::string title;
  int shared_bytes_per_block = 0;  // the opt-in maximum of dynamic shared memory
  int registers_per_thread = 255;
  int threads_per_sm = 0;
  // A multiprocessor's tensor cores do so many operations a cycle on dense fp16 products with sums in fp32. A
  // multiply-add counts as two. 0: the file does not state it.
  int tensor_flop_per_cycle = 0;
  std::set<std::string> capabilities;  // "cp_async", "mma_m16n8k16", "bf16" ...
  SchedulerTiming timing;
  bool has(const std::string& capability) const { return capabilities.count(capability) != 0; }
};

// Finds an arch by its name. The registry implements it.
struct ArchLookup {
  virtual const Arch* arch(const std::string& name) const = 0;
  virtual ~ArchLookup() = default;
};
// Reads a file of specs/archs. `inherits = "sm_80"` copies all of that arch first, which `archs` finds. Fails with
// bad_input.
Result<Arch> parse_arch(std::string_view toml_text, const std::string& file, const ArchLookup& archs);

}  // namespace kvjit
