// Layer: a store of cache entries beside the folder on disk: bundles, an engine's own callbacks, a server. What it
// gives is bytes; who asks checks them as it does a file's.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/store/key.hpp"

namespace kvjit {

enum class Origin { memory, disk, compiled, bundle, callback, remote };  // where a kernel came from
const char* to_string(Origin origin);

class Layer {
 public:
  virtual ~Layer() = default;
  virtual Origin origin() const = 0;
  virtual std::string name() const = 0;  // for messages: "bundle kernels.kvb"
  // The bytes of an entry (runtime/store/entry.hpp), or none. Never fails: what goes wrong is said to the log, and is a
  // miss.
  virtual std::optional<std::vector<std::uint8_t>> read(const Key& key) = 0;
  virtual void publish(const Key&, std::span<const std::uint8_t>) {}
};

}  // namespace kvjit
