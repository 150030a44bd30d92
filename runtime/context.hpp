// Context: one device, its compiler and its cache. get() is the whole JIT: memory, then disk, then compile; one compile per
// key however many threads and processes ask.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "generator/result.hpp"
#include "generator/source.hpp"
#include "runtime/backend.hpp"
#include "runtime/compiler.hpp"
#include "runtime/options.hpp"

namespace kvjit {

enum class Origin { memory, disk, compiled };  // where a kernel came from

struct KernelRecord {     // a kernel in use: what ran, exactly
  std::string name, key;  // key: 64 hex digits
  Origin origin = Origin::compiled;
  double ready_ms = 0;  // what this get() cost
  int registers = 0, stack_bytes = 0, spill_bytes = 0;
  std::shared_ptr<Kernel> kernel;
};

struct CacheCounters {
  std::uint64_t memory_hits = 0, disk_hits = 0, misses = 0, compiles = 0, rebuilt = 0 /* damaged entries */,
                lock_waits = 0, write_failures = 0;
};

class Context {
 public:
  // Opens the device that options.device asks for (automatic: GPU, else CPU). NVRTC is not opened here.
  static Result<std::shared_ptr<Context>> open(const Options& options);
  virtual ~Context() = default;

  virtual const std::shared_ptr<Backend>& backend() const = 0;
  virtual const Options& options() const = 0;
  virtual Result<KernelRecord> get(const Source& source) = 0;
  virtual CacheCounters counters() const = 0;
};

// How a Context compiles: which compiler, opened when, and what of it belongs in the key.
struct Toolchain {
  ArtefactKind kind = ArtefactKind::cubin;
  std::function<Result<std::shared_ptr<Compiler>>()> open;  // called at most once with success
  // The compiler's options without opening it: a disk hit then needs no compiler. Empty: the artefact depends on the compiler
  // itself (host objects), so it is opened first and the key holds its identity and options.
  std::function<std::vector<std::string>(const Source&)> options;
};

// The Context over given parts; Context::open chooses them. Tests give fakes.
std::shared_ptr<Context> make_context(const Options& options, std::shared_ptr<Backend> backend, Toolchain toolchain);

}  // namespace kvjit
