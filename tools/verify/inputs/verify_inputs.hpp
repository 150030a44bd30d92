// verify_inputs: the checks of `kvjit verify` with inputs that bite (inputs.hpp). Each class of inputs is tried alone,
// by every way in which the program attends to many query rows and by the reference kernel, over two sequences of
// different lengths.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "tools/verify/harness.hpp"
#include "tools/verify/inputs/inputs.hpp"

namespace kvjit {

// The first failure, which names the inputs and the kernel; empty: none.
Result<std::string> verify_inputs(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program,
                                  const Problem& problem, InputClasses classes);

}  // namespace kvjit
