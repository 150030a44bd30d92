// The places in which NVRTC is searched: the loader's paths, CUDA toolkits, and the packages of pip and conda, whose
// folders no loader knows. No process is started for it.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "runtime/base/library.hpp"
#include "runtime/base/options.hpp"

namespace kvjit {

// Options::nvrtc_library is the only place if it is set: a file, a soname, or a folder. Else these, in this order: the
// loader's paths, toolkits (CUDA_HOME, CUDA_PATH), Python environments (VIRTUAL_ENV, CONDA_PREFIX), /usr/local/cuda,
// and the Python interpreters on PATH.
LibrarySearch nvrtc_places(const Options& options);

}  // namespace kvjit
