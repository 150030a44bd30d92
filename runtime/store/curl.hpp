// libcurl's easy interface, opened at run time as NVRTC is: what does not fetch kernels from a server needs none.
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
    long status = 0;  // of HTTP; 0: there was no reply, and `error` says why
    std::vector<std::uint8_t> body;
    std::string error;
  };
  // Redirects are not followed, and no more than `most` bytes are taken. A body shorter than was announced is no reply.
  Reply get(const std::string& url, std::chrono::milliseconds patience, std::size_t most) const;
  Reply put(const std::string& url, std::chrono::milliseconds patience, std::span<const std::uint8_t> body) const;

 private:
  struct Api;
  std::shared_ptr<const Api> api_;
  Reply run(const std::string& url, std::chrono::milliseconds patience, std::size_t most,
            const std::optional<std::span<const std::uint8_t>>& sent) const;
};

}  // namespace kvjit
