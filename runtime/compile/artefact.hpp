// Artefact: the machine code (or PTX) that a compiler produced from a Source, with the resources that it reported.
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
  // Resources of a thread, parsed from the assembler's log.
  int registers = 0, stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0;
  double compile_ms = 0;  // duration of the compile; cache entries store it
  std::string log;        // messages of the compiler
};

}  // namespace kvjit
