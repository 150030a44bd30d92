// Compiler: the interface that compiles a Source to an Artefact. NVRTC serves GPUs, the host's C++ compiler serves the
// CPU back-end. nvrtc_options and host_options need no open compiler, so a cache hit on a GPU opens none.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/base/options.hpp"
#include "runtime/compile/artefact.hpp"

namespace kvjit {

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string identity() const = 0;  // the exact build: "nvrtc 13.0 build-id:..."; each cache entry stores it
  virtual std::vector<std::string> options(const Source& source) const = 0;  // free of paths: the cache key holds them
  virtual std::vector<std::string> archs() const = 0;            // "sm_75" ...; empty: any, for host compilers
  virtual std::vector<std::string> files() const { return {}; }  // its program, or its libraries, for `kvjit doctor`
  // Fails with unsupported if the compiler does not know the source's arch; the error lists archs(). Fails with
  // cancelled if `stop` is requested; can_stop() says whether that ends a compile under way.
  virtual Result<Artefact> compile(const Source& source, std::stop_token stop) = 0;
  Result<Artefact> compile(const Source& source) { return compile(source, {}); }
  virtual bool can_stop() const { return false; }  // false: a compile runs to its end first
};

// Opens libnvrtc. Fails with environment and names the places that were searched. Opening takes milliseconds, so the
// store calls it on the first miss only.
Result<std::shared_ptr<Compiler>> open_nvrtc(const Options& options, ArtefactKind kind = ArtefactKind::cubin);

// The options that open_nvrtc's compiler passes to NVRTC.
std::vector<std::string> nvrtc_options(const Source& source, ArtefactKind kind);

// The options that every host compiler gets. They need no open compiler.
std::vector<std::string> host_options();

// Finds the C++ compiler of this machine and runs it by posix_spawn. Fails with environment and names the compilers
// that were searched, or says that the process ignores SIGCHLD, so that the exit status of the compiler is lost.
Result<std::shared_ptr<Compiler>> open_host_compiler(const Options& options);

}  // namespace kvjit
