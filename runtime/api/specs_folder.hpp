// add_specs_folder reads a caller's folder of formats, rotations, hooks and so on, for `kvjit --specs` and the
// specs_dirs of the C interface. Its files join the built-in ones.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "generator/base/result.hpp"
#include "generator/catalogue/registry.hpp"

namespace kvjit {

// Adds *.toml of formats/, rotations/, archs/, calibrations/, policies/ and tuning/, and *.cuh of hooks/. Other files
// of the folder are not read, so specs may lie beside these subfolders; shown_as names them for Registry::load. A file
// replaces the built-in file of its name; messages call it by its path. Fails with bad_input if there is no such
// folder, if it holds nothing to read, or if a file cannot be read.
Result<void> add_specs_folder(FileSet& files, FileNames& shown_as, const std::string& folder);

}  // namespace kvjit
