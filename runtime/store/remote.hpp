// Remote: a server of compiled kernels, in the layout of bazel-remote, which nginx with WebDAV serves as well:
//   <url>/ac/<key>         a Bazel ActionResult that names one output, the entry, by its SHA-256 and size
//   <url>/cas/<sha256>     the entry
// Read only unless asked otherwise. Requests are short; after failures in a row the server is left alone for a while.
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

// What /ac/<key> holds. google.devtools.remoteexecution ActionResult, of which one output file is used.
struct ActionResult {
  std::string sha256;  // 64 hex digits
  std::uint64_t bytes = 0;
};
std::vector<std::uint8_t> encode_action(const ActionResult& action);
std::optional<ActionResult> decode_action(std::span<const std::uint8_t> bytes);

// Fails with usage (no URL of http or https) or environment (no libcurl: what was searched).
Result<std::unique_ptr<Layer>> open_remote(const Options& options);

}  // namespace kvjit
