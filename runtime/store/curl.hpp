// Curl: HTTP requests through libcurl's easy interface. libcurl is opened at run time, as NVRTC is, so a process
// without a server of kernels does not need it.
// SPDX-License-Identifier: MIT
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

class Curl {
 public:
  static Result<std::shared_ptr<const Curl>> open();

  struct Reply {
    long status = 0;  // HTTP status; 0: no reply came, and `error` says why
    std::vector<std::uint8_t> body;
    std::string error;
  };
  // patience: timeout of the request. Redirects are not followed. A body above `most` bytes is an error, and so is one
  // that is shorter than announced.
  Reply get(const std::string& url, std::chrono::milliseconds patience, std::size_t most) const;
  Reply put(const std::string& url, std::chrono::milliseconds patience, std::span<const std::uint8_t> body) const;

 private:
  struct Api;
  std::shared_ptr<const Api> api_;
  Reply run(const std::string& url, std::chrono::milliseconds patience, std::size_t most,
            const std::optional<std::span<const std::uint8_t>>& sent) const;
};

}  // namespace kvjit
