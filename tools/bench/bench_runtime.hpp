// Measurements of the runtime itself (`kvjit bench --runtime`): compiling a kernel, finding it again in memory,
// compiling many at once, and a launch compared with the driver's own. The results are printed and never asserted: a
// test of times fails when the machine is busy.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit {

double median(std::vector<double> numbers);  // numbers must not be empty

// Compiles the source `runs` times and returns the milliseconds of each compile. Each text has a nonce, so that no
// cache below the compiler has it.
Result<std::vector<double>> cold_compiles(const Options& options, bool is_gpu, const Source& source, int runs);

// KernelSizes counts the bytes of a kernel: its text, its PTX (0: the CPU back-end has none), the compiler's object.
struct KernelSizes {
  std::size_t text = 0, ptx = 0, object = 0;
};
Result<KernelSizes> kernel_sizes(const Options& options, bool is_gpu, const Source& source);

// Nanoseconds in which a context finds a kernel that it has loaded: the median over groups of many calls.
Result<double> memory_hit(Context& context, const Source& source);
// Nanoseconds in which the C interface creates and destroys a program of a spec that already has a program.
Result<double> program_again(const Options& options, const std::string& toml);

// QuestionCost holds the times of questions about a spec: kvjit_supported of a text that is new, of one that was asked
// about before, and kvjit_readiness of a spec whose kernels are loaded.
struct QuestionCost {
  double new_us = 0, again_ns = 0, readiness_ns = 0;
};
Result<QuestionCost> question_cost(const Options& options, const std::string& toml, const std::string& arch);

// Milliseconds in which so many threads compile `count` kernels like the source, without a cache on disk.
Result<double> warm_many(const Options& options, const Source& source, int count, unsigned threads);

// The time that the calling thread spends on a launch.
struct LaunchCost {
  double attention_us = 0;  // microseconds of a call of attention over a small cache
  double driver_us = 0;     // microseconds of the driver's launch of an empty kernel with as many bytes of arguments
  std::size_t kernels = 0;  // kernels that the call of attention launches
};
Result<LaunchCost> launch_cost(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program);

}  // namespace kvjit
