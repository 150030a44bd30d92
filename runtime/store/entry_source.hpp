// Layer: a store of cache entries besides the folder on disk: bundles, the engine's callbacks, a server. A layer
// returns bytes; the Store checks them as it checks a file.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/store/key.hpp"

namespace kvjit {

// The place that a kernel came from.
enum class Origin { memory, disk, compiled, bundle, callback, remote };
const char* to_string(Origin origin);

class Layer {
 public:
  virtual ~Layer() = default;
  virtual Origin origin() const = 0;
  virtual std::string name() const = 0;  // for messages: "bundle kernels.kvb"
  // The bytes of an entry (runtime/store/entry.hpp), or none. It never fails: an error goes to the log and is a miss.
  virtual std::optional<std::vector<std::uint8_t>> read(const Key& key) = 0;
  // Whether there is an entry; its bytes are not read.
  virtual bool has(const Key& key) { return read(key).has_value(); }
  // Stores an entry that this process compiled. A read-only layer does nothing.
  virtual void publish(const Key&, std::span<const std::uint8_t>) {}
};

}  // namespace kvjit
