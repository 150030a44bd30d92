// The verbs build, warm and pack share this code: it lists the kernels of specs, and compiles them ahead of use
// (tools/pack/ahead.hpp) with progress on a terminal.
// SPDX-License-Identifier: MIT
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/cli.hpp"
#include "tools/pack/pack.hpp"

namespace kvjit {

// Whether kernels are compiled for GPUs, by NVRTC; else for the CPU back-end, by the host compiler (--device cpu).
bool is_for_gpu(const Cli& cli);

struct KernelsOf {
  std::vector<std::string> specs;  // files
  std::vector<std::string> archs;  // --arch; empty: the specs'
  std::string operations;          // --operations
};
// Every kernel that these specs may ask for on any device of their archs, and those of the operations.
Result<std::vector<Source>> sources_of(const Cli& cli, const KernelsOf& kernels);

// The store of these options. Its log has no line for each compile, because the verbs show progress.
Result<std::unique_ptr<Store>> open_store_ahead(const Cli& cli, Options options, ArtefactKind kind);

// compile_ahead with progress on a terminal. Ctrl-C leaves the kernels that are left with the code `cancelled`. `show`,
// if there is one, is called for each kernel that had its turn, by one thread at a time.
std::vector<KernelAhead> compile_ahead(const Cli& cli, Store& store, const std::vector<Source>& sources,
                                       unsigned threads, bool stops_at_failure,
                                       const std::function<void(const KernelAhead&)>& show = {});

std::size_t done_of(const std::vector<KernelAhead>& kernels);  // kernels that had their turn

// Kernels by the place that they came from: "4 from disk, 6 compiled, 1 failed".
std::string counted_text(const std::vector<KernelAhead>& kernels);

}  // namespace kvjit
