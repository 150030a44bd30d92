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

// What the kernels of a program are made for.
struct FamilyInput {
  const Problem& problem;
  const Registry& registry;
  const BlockShape* shape = nullptr;  // for decode blocks, asked by whoever measures shapes; null: tuned or planned
};

struct Family {
  const char* name;  // of its folders
  // A fused kernel over the packed cache. A reference program leaves such families out, and so serves every format.
  bool is_fused;
  // Whether a program of this problem has kernels of the family.
  bool (*serves)(const Problem&);
  // Plans and emits its kernels into `program`, whose sizes are set, and adds its decisions. Fails with unsupported.
  Result<void> (*make)(const FamilyInput&, ProgramSource& program);
};

// In the order in which `kvjit explain` prints their decisions.
std::span<const Family> families();

// The rows of the list, each in its folder's make.cpp.
Result<void> make_decode(const FamilyInput& input, ProgramSource& program);
Result<void> make_codec(const FamilyInput& input, ProgramSource& program);
Result<void> make_reference(const FamilyInput& input, ProgramSource& program);
Result<void> make_auxiliary(const FamilyInput& input, ProgramSource& program);

}  // namespace kvjit
