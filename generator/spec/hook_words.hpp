// hook_words: the words of a hook. They are the names of a score's place, and functions of floats that CUDA has without
// an include and templates/device/cpu.hpp declares.
// SPDX-License-Identifier: MIT
#pragma once
#include <span>
#include <string_view>

namespace kvjit {

struct HookName {
  std::string_view name;
  bool is_float;  // else an int of 32 bits
};
struct HookFunction {
  std::string_view name;
  int arguments;
};

std::span<const HookName> hook_names();
std::span<const HookFunction> hook_functions();  // float, the conversion, included

}  // namespace kvjit
