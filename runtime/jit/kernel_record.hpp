// KernelRecord: a loaded kernel, where it came from, and the resources that it uses.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device/backend.hpp"
#include "runtime/store/entry_source.hpp"

namespace kvjit {

// Whether a kernel is at hand without a compile.
enum class Presence { absent, being_made, here };

struct KernelRecord {
  std::string name,  // Source::name
      key;           // key of the artefact, 64 hex digits
  Origin origin = Origin::compiled;
  double ready_ms = 0;           // milliseconds that this get() took
  double compile_ms = 0;         // milliseconds of its compile, on whichever machine that was; 0: unknown
  int registers = 0,             // registers of a thread
      stack_bytes = 0,           // stack frame of a thread, bytes
      spill_bytes = 0;           // spill stores and loads of a thread, bytes
  std::uint64_t code_bytes = 0;  // bytes of machine code, as the compiler returned it
  std::shared_ptr<Kernel> kernel;
};

}  // namespace kvjit
