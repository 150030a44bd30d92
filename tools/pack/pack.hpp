// The work of `kvjit pack`: it collects the kernels of specs for several archs, compiles them through the cache, and
// writes them as a bundle, a folder or a C header.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "generator/kernels/operations/operations.hpp"
#include "generator/spec/spec.hpp"
#include "runtime/store/store.hpp"

namespace kvjit {

// Every kernel of a spec on an arch, for each device with tuned shapes and for a device without. Tuned shapes give
// several texts of one name.
Result<std::vector<Source>> sources_to_pack(const Spec& spec, const Registry& registry, const std::string& arch,
                                            bool is_for_gpu);

struct SpecOnArchs {
  Spec spec;
  std::vector<std::string> archs;  // archs for which its kernels are generated
};

// The kernels of operations on the caches of all specs; programs do not carry them. The specs of one arch are taken
// together, because a copy may go from the cache of any of them to that of any other.
Result<std::vector<Source>> operations_to_pack(const std::vector<SpecOnArchs>& specs, const Registry& registry,
                                               const OperationSet& operations);

// Whether PTX of this arch runs on later GPUs: PTX of sm_90 does, PTX of sm_90a does not.
bool is_for_later_gpus(const std::string& arch);

struct PackProgress {
  std::size_t done = 0;   // kernels that are compiled
  std::size_t count = 0;  // kernels in all
  double seconds = 0;     // seconds since the start
  std::string name;       // name of the kernel that was compiled last
};
std::string progress_text(const PackProgress& progress);  // "12/340 4 s, 110 s to go: decode..."

// Compiles the sources and returns the entries under the keys by which bundles are searched, each key once. The first
// failure ends the call. The cache then has the kernels compiled so far, and the next call compiles only the rest.
Result<std::vector<CacheEntry>> entries_of(Store& store, const std::vector<Source>& sources, unsigned threads,
                                           const std::function<void(const PackProgress&)>& progress);

// Writes a bundle as a folder (runtime/store/manifest.hpp). The manifest is written last.
Result<void> write_folder(const std::string& folder, const std::vector<CacheEntry>& entries);
// C text of `unsigned char NAME[]` and `NAME_size`, for kvjit_context_options.bundle_bytes.
Result<std::string> c_header_text(const std::string& name, std::span<const std::uint8_t> bytes);

}  // namespace kvjit
