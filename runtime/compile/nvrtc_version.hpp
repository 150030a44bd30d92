// The version of an NVRTC, and the oldest one that kvjit takes.
// SPDX-License-Identifier: MIT
#pragma once
#include <fmt/format.h>

#include <compare>
#include <string>

namespace kvjit {

struct NvrtcVersion {
  int major = 0, minor = 0;
  auto operator<=>(const NvrtcVersion&) const = default;
};
inline std::string to_string(NvrtcVersion version) { return fmt::format("{}.{}", version.major, version.minor); }

// tests/compile/nvrtc_versions_test.cpp compiles every family of kernels with it. An older one has no C++20.
constexpr NvrtcVersion kLeastNvrtc{12, 0};
// 12.0 lists sm_89, but its ptxas has conversions of fp8 from sm_90 on alone.
constexpr NvrtcVersion kLeastForSm89{12, 1};

}  // namespace kvjit
