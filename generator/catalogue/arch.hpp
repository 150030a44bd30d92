// Arch: what a GPU architecture can do, as data (specs/archs/*.toml). Planning asks for capabilities, never for
// numbers.
// SPDX-License-Identifier: MIT
#pragma once
#include <set>
#include <string>
#include <string_view>

#include "generator/base/result.hpp"
#include "generator/catalogue/timing.hpp"

namespace kvjit {

struct Arch {
  std::string name;  // "sm_90a": file stem, and what the compiler is given
  std::string title;
  int shared_bytes_per_block = 0;  // opt-in maximum of dynamic shared memory
  int registers_per_thread = 255;
  int threads_per_sm = 0;
  std::set<std::string> capabilities;  // "cp_async", "mma_m16n8k16", "bf16" ...
  SchedulerTiming timing;
  bool has(const std::string& capability) const { return capabilities.count(capability) != 0; }
};

// `inherits = "sm_80"` copies everything of that arch first; parse resolves through `known`.
struct ArchLookup {
  virtual const Arch* arch(const std::string& name) const = 0;
  virtual ~ArchLookup() = default;
};
Result<Arch> parse_arch(std::string_view toml_text, const std::string& file, const ArchLookup& known);

}  // namespace kvjit
