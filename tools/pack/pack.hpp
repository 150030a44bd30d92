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

// Every kernel of a spec on an arch, for each device that has tuned shapes and for one that has none. Tuned shapes give
// several texts of one name.
Result<std::vector<Source>> sources_to_pack(const Spec& spec, const Registry& registry, const std::string& arch,
                                            bool is_for_gpu);

struct SpecOnArchs {
  Spec spec;
  std::vector<std::string> archs;  // for each of which its kernels are generated
};

// The kernels that no spec asks for but calls do: the named operations on the caches of all specs. The specs of one
// arch are taken together, because a copy may pair the caches of any two of them.
Result<std::vector<Source>> operations_to_pack(const std::vector<SpecOnArchs>& specs, const Registry& registry,
                                               const OperationSet& operations);

// Whether PTX of this arch runs on later GPUs: that of sm_90 does, that of sm_90a does not.
bool is_for_later_gpus(const std::string& arch);

struct PackProgress {
  std::size_t done = 0;   // kernels
  std::size_t count = 0;  // kernels in all
  double seconds = 0;     // since the start
  std::string name;       // of the kernel that was done last
};
std::string progress_text(const PackProgress& progress);  // "12/340 4 s, 110 s to go: decode..."

// Compiles the sources and returns the entries under the keys by which bundles are searched, each key once. The first
// failure ends the call; the cache keeps what was compiled by then, and the next call goes on from there.
Result<std::vector<CacheEntry>> entries_of(Store& store, const std::vector<Source>& sources, unsigned threads,
                                           const std::function<void(const PackProgress&)>& progress);

// Writes a bundle as a folder (runtime/store/manifest.hpp). The manifest is written last.
Result<void> write_folder(const std::string& folder, const std::vector<CacheEntry>& entries);
// C text of `unsigned char NAME[]` and `NAME_size`, for kvjit_context_options.bundle_bytes.
Result<std::string> c_header_text(const std::string& name, std::span<const std::uint8_t> bytes);

}  // namespace kvjit
