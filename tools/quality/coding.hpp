// How a format codes values, in one word: charts colour formats by it. It is derived from the format's axes, so that
// formats of a user have it too.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "tools/quality/quality.hpp"

namespace kvjit {

// A format has the last of these that is true of it. K and V of two different ones are `mixed`.
enum class Coding {
  floats,        // numbers, which may have a scale
  integers,      // (code - offset) times a scale
  codebook,      // an entry of a table
  wht,           // behind a Walsh-Hadamard rotation
  dense,         // behind a dense matrix
  few_channels,  // behind rotations of two to four channels
  outliers,      // some values have codes of more bits
  residual,      // the signs of the error are stored, too
  mixed
};

Coding coding_of(const Format& format);
Coding coding_of(const KvFormats& formats);  // mixed, too, if a side cannot store such heads

// The text of each coding for a legend, in the order of the enumeration.
const std::vector<std::string>& coding_names();

}  // namespace kvjit
