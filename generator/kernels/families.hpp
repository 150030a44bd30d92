// Family: a folder of kernels with the same name in generator/kernels, templates/kernels, runtime/launch and
// tests/differential. make_program walks the list of families; a new family is one more row of families.cpp.
// SPDX-License-Identifier: MIT
#pragma once
#include <span>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// The input of a family.
struct FamilyInput {
  const Problem& problem;
  const Registry& registry;
  const BlockShape* shape = nullptr;  // of decode blocks, if the caller measures shapes; null: tuned or planned
};

struct Family {
  const char* name;  // of its folders
  // Whether it is attention fused with decoding. A reference program leaves such families out, so it serves every
  // format.
  bool is_fused;
  // Whether a program of this problem has kernels of the family.
  bool (*serves)(const Problem&);
  // Plans and emits the family's kernels into `program`, and adds its decisions. The sizes of `program` are set before.
  // Fails with unsupported.
  Result<void> (*make)(const FamilyInput&, ProgramSource& program);
};

// All families, in the order in which `kvjit explain` prints their decisions.
std::span<const Family> families();

// Family::make of each row of the list. Each is in make.cpp of its folder.
Result<void> make_decode(const FamilyInput& input, ProgramSource& program);
// Returns the refusal of make_decode, or success. It emits no kernel.
Result<void> check_decode(const FamilyInput& input);
// Whether decode has a block shape that was measured for this very problem. If that does not fit, it is refused.
bool has_measured_shape(const FamilyInput& input);
Result<void> make_prefill(const FamilyInput& input, ProgramSource& program);
Result<void> make_codec(const FamilyInput& input, ProgramSource& program);
Result<void> make_reference(const FamilyInput& input, ProgramSource& program);
Result<void> make_auxiliary(const FamilyInput& input, ProgramSource& program);
// Emits the kernels that rotate Q and the output, and no other kernel around attention.
Result<void> make_rotations(const FamilyInput& input, ProgramSource& program);

}  // namespace kvjit
