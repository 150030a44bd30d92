// Compiler: Source -> Artefact. NVRTC for GPUs, the host's C++ compiler for the CPU back-end.
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
  virtual std::string identity() const = 0;  // exact: "nvrtc 13.0 build-id:..."; kept in each cache entry
  virtual std::vector<std::string> options(const Source& source) const = 0;  // part of the cache key; no paths
  virtual std::vector<std::string> archs() const = 0;                        // "sm_75" ...; empty: any (host)
  // A Source whose arch the compiler does not know is `unsupported`, with the list of those it knows.
  // Where `stop` is asked for the compile is given up, as soon as the compiler can: `cancelled`.
  virtual Result<Artefact> compile(const Source& source, std::stop_token stop) = 0;
  Result<Artefact> compile(const Source& source) { return compile(source, {}); }
  virtual bool can_stop() const { return false; }  // on the way; else a compile runs to its end first
};

// Opens libnvrtc at run time. Fails with environment: what was searched. Opening is lazy: call it on the first miss.
Result<std::shared_ptr<Compiler>> open_nvrtc(const Options& options, ArtefactKind kind = ArtefactKind::cubin);

// What open_nvrtc's compiler passes to NVRTC: known without opening it, so that a cache hit needs no compiler.
std::vector<std::string> nvrtc_options(const Source& source, ArtefactKind kind);

// What of the host compiler's way to work is the same for all of them: the part of its key that needs none opened.
std::vector<std::string> host_options();

// The C++ compiler of this machine (posix_spawn, no shell). Fails with environment: what was searched.
Result<std::shared_ptr<Compiler>> open_host_compiler(const Options& options);

}  // namespace kvjit
