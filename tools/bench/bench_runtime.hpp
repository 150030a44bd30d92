// What the runtime costs (`kvjit bench --runtime`): a kernel cold, from disk, from a bundle, from memory and from
// another context; a hundred at once; a launch beside the driver's own. Printed, never asserted: a timed test fails on
// the day the machine is busy.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "generator/resolve/problem.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/launch/program.hpp"

namespace kvjit {

double median(std::vector<double> numbers);  // of at least one

// Milliseconds of a compile, `runs` times, of texts that no cache below the compiler can have seen.
Result<std::vector<double>> cold_compiles(const Options& options, bool is_gpu, const Source& source, int runs);

// Nanoseconds in which a context finds a kernel that it has: the median of some runs of many.
Result<double> memory_hit(Context& context, const Source& source);
// The same of a program in the C interface, of a spec that another one is made of: found, made, its kernel found,
// destroyed.
Result<double> program_again(const Options& options, const std::string& toml);

// Milliseconds in which `count` kernels that are like the source are compiled on all threads, into memory.
Result<double> warm_many(const Options& options, const Source& source, int count);

// Microseconds that this thread spends on a launch: attention of a small call, and a kernel that does nothing and takes
// as many bytes of arguments, through nothing but the driver.
struct LaunchCost {
  double attention_us = 0, driver_us = 0;
  std::size_t kernels = 0;  // that a call of attention launches
};
Result<LaunchCost> launch_cost(const std::shared_ptr<Context>& context, const std::shared_ptr<Program>& program);

}  // namespace kvjit
