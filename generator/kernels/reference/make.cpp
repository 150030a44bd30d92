// make_reference: emits the readable kernel, which every program has.
// SPDX-License-Identifier: MIT
#include "generator/kernels/families.hpp"
#include "generator/kernels/reference/emit.hpp"

namespace kvjit {

Result<void> make_reference(const FamilyInput& input, ProgramSource& program) {
  program.kernels[Role::reference] = emit_reference(input.problem, input.registry);
  return {};
}

}  // namespace kvjit
