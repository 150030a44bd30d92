// Names of archs as NVIDIA's compilers take them: "sm_90" is compute capability 9.0, and a letter behind the number
// unlocks the instructions of that chip alone ("sm_90a").
// SPDX-License-Identifier: MIT
#pragma once
#include <string_view>

namespace kvjit {

// The number of an arch: 75 of "sm_75", 120 of "sm_120a". Later chips have larger ones. 0: the name is none of an arch.
int number_of_arch(std::string_view arch);

// "sm_90a" -> "sm_90".
std::string_view without_suffix(std::string_view arch);

// Whether PTX of this arch runs on later GPUs: PTX of sm_90 does, PTX of sm_90a does not.
bool has_portable_ptx(std::string_view arch);

}  // namespace kvjit
