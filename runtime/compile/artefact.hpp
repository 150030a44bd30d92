// Artefact: what a compiler made of a Source, and what it said about it.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kvjit {

enum class ArtefactKind : std::uint32_t { cubin = 1, ptx = 2, host_object = 3 };

struct Artefact {
  ArtefactKind kind = ArtefactKind::cubin;
  std::vector<std::uint8_t> bytes;
  int registers = 0, stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;  // parsed from the assembler's log
  double compile_ms = 0;  // of the compile that made it (kept by the cache)
  std::string log;
};

}  // namespace kvjit
