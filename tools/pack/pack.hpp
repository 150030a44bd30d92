// The work of `kvjit pack`: it collects the kernels of specs for several archs, and writes them as a bundle, a folder
// or a C header. ahead.hpp compiles them in between.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "generator/kernels/operations/operations.hpp"
#include "generator/spec/spec.hpp"
#include "runtime/store/entry.hpp"
#include "tools/pack/ahead.hpp"

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

// The entries of kernels under the keys by which bundles are searched, sorted by key; else the first failure. The cache
// has the kernels that were compiled before it, so the next call compiles only the rest.
Result<std::vector<CacheEntry>> entries_of(std::vector<KernelAhead> kernels);

// Writes a bundle as a folder (runtime/store/manifest.hpp). The manifest is written last.
Result<void> write_folder(const std::string& folder, const std::vector<CacheEntry>& entries);
// C text of `unsigned char NAME[]` and `NAME_size`, for kvjit_context_options.bundle_bytes.
Result<std::string> c_header_text(const std::string& name, std::span<const std::uint8_t> bytes);

}  // namespace kvjit
