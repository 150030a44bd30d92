// make_program: Problem -> ProgramSource, by planning and emitting the kernels of each family (kernels/families.hpp).
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// Every kernel of the program, planned and emitted. Fails with unsupported: each refusal says what is missing
// and what works.
Result<ProgramSource> make_program(const Problem& problem, const Registry& registry);
// The same with decode blocks of a given shape: for who measures shapes.
Result<ProgramSource> make_program(const Problem& problem, const Registry& registry, const BlockShape& shape);

// The same without the decode family: reference, quantize, dequantize, and what transforms queries and outputs. Serves
// every format.
Result<ProgramSource> make_reference_program(const Problem& problem, const Registry& registry);

// One quantize / dequantize kernel for a format alone (the commands `quantize` and `dequantize`): layout
// rows.
Result<ProgramSource> make_codec_program(const Format& format, int head_dim, const Arch& arch,
                                         const Registry& registry);

// What was decided and why, as `kvjit explain` prints it.
std::string explain(const ProgramSource& program);

}  // namespace kvjit
