// Remote: a server of compiled kernels as a layer of the store. The layout is that of bazel-remote, which nginx with
// WebDAV serves as well:
//
//   <url>/ac/<key>         a Bazel ActionResult that names one output, the entry, by its SHA-256 and size
//   <url>/cas/<sha256>     the entry
//
// The layer only reads, unless Options::remote_writes is set. Requests have a short timeout, and after two failures in
// a row they pause for 30 seconds.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/base/options.hpp"
#include "runtime/store/entry_source.hpp"

namespace kvjit {

// The content of /ac/<key>: a google.devtools.remoteexecution ActionResult with one output file.
struct ActionResult {
  std::string sha256;       // 64 hex digits
  std::uint64_t bytes = 0;  // size of the entry
};
std::vector<std::uint8_t> encode_action(const ActionResult& action);
std::optional<ActionResult> decode_action(std::span<const std::uint8_t> bytes);

// Fails with usage if the URL is not http or https, and with environment if there is no libcurl; that error names the
// places that were searched.
Result<std::unique_ptr<Layer>> open_remote(const Options& options);

}  // namespace kvjit
