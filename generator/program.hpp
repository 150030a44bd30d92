// make_program: Problem -> ProgramSource, by planning and emitting the kernels of each family (kernels/families.hpp).
// SPDX-License-Identifier: MIT
#pragma once
#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/source.hpp"

namespace kvjit {

// Plans and emits all kernels of a program. Fails with unsupported; the error says what is missing and what works.
Result<ProgramSource> make_program(const Problem& problem, const Registry& registry);
// The same with decode blocks of the shape `shape`, for `kvjit bench --tune`.
Result<ProgramSource> make_program(const Problem& problem, const Registry& registry, const BlockShape& shape);

// Whether make_program would serve the problem: its refusal, word for word, or success. Nothing is emitted, which takes
// a tenth of the time.
Result<void> check_program(const Problem& problem, const Registry& registry);

// make_program without fused families (decode). It has reference, the codec and the auxiliary kernels, and serves every
// format.
Result<ProgramSource> make_reference_program(const Problem& problem, const Registry& registry);

// A program of quantize and dequantize alone, for layout rows (the commands `quantize` and `dequantize`).
Result<ProgramSource> make_codec_program(const Format& format, int head_dim, const Arch& arch,
                                         const Registry& registry);

// The decisions of a program and its kernels, as `kvjit explain` prints them.
std::string explain(const ProgramSource& program);

}  // namespace kvjit
