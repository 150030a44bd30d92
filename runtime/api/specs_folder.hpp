// A folder of a caller's own specs: what `kvjit --specs` and the C interface read beside the files that are built in.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"

namespace kvjit {

// Adds formats/, rotations/, archs/, calibrations/, policies/ and tuning/ of *.toml, hooks/ of *.cuh, and *.toml next
// to them, which are formats. A file of the same name is replaced; messages call it by its path. Fails with bad_input:
// no such folder, nothing in it, a file that cannot be read.
Result<void> add_specs_folder(FileSet& files, FileNames& shown_as, const std::string& folder);

}  // namespace kvjit
