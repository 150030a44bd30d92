// libnvrtc-builtins, the library that NVRTC opens by its name when it compiles. NVRTC fails without it, and its errors
// do not name the file that was found instead: one of another version, or one that was renamed.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/compile/nvrtc_version.hpp"

namespace kvjit {

// "libnvrtc-builtins.so.12.3", the name by which an NVRTC of this version asks for its builtins.
std::string builtins_name(NvrtcVersion version);

// Opens the builtins that NVRTC will take, and gives their file: those beside it, which the loader does not find in the
// folders of pip and conda unless the file is open already, else those of the loader. "" if there are none. Fails with
// environment if they are of another version.
Result<std::string> open_builtins(const std::string& nvrtc_file, NvrtcVersion version);

// The builtins that lie beside NVRTC, and those that this process has loaded: notes of an error.
std::vector<std::string> builtins_found(const std::string& nvrtc_file);

// What to do if NVRTC and its builtins do not match.
extern const char* const kBuiltinsRemedy;

}  // namespace kvjit
