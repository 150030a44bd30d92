// Reads the names of archs: see arch_name.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/base/arch_name.hpp"

#include <charconv>

namespace kvjit {

int number_of_arch(std::string_view arch) {
  constexpr std::string_view kPrefix = "sm_";
  if (!arch.starts_with(kPrefix)) return 0;
  const std::string_view digits = without_suffix(arch).substr(kPrefix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc{} && end == digits.data() + digits.size() && number > 0 ? number : 0;
}

std::string_view without_suffix(std::string_view arch) {
  while (!arch.empty() && (arch.back() == 'a' || arch.back() == 'f')) arch.remove_suffix(1);
  return arch;
}

bool has_portable_ptx(std::string_view arch) { return number_of_arch(arch) > 0 && without_suffix(arch) == arch; }

}  // namespace kvjit
