// Calibration: what sample keys and values say about the channels of a head. `kvjit quality --calibrate` writes the
// files of specs/calibrations, and a side of a spec names one. specs/docs/formats.md ("Keys of a calibration") has
// their keys.
//
//   channels  s, one factor for each channel of the head. Keys and values are multiplied by s before norm and rotation,
//             queries by 1/s before their rotation, and the output by 1/s after the inverse rotation. Then
//             <q/s, s k> = <q, k>. diag(s) does not commute with a rotation, so no other order keeps the products.
//   mask      the channels of one rotated group that deserve more bits (outliers): bit i % 32 of word i / 32
//   profile   the mean square of each channel of one rotated group, relative to the mean of the group: 1 on average
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/formats/format.hpp"

namespace kvjit {

struct Calibration {
  std::string name,                 // the stem of the file's name
      title,                        // one line for readers
      source;                       // where the samples come from; free text
  std::vector<double> channels;     // factors above 0, as float32 numbers; one for each channel of the head
  std::vector<std::uint32_t> mask;  // a word for each 32 channels of a rotated group; empty: no mask
  std::vector<double> profile;      // a number for each channel of a rotated group; empty: not measured
};

// Reads a file of specs/calibrations. Its table [made] says how it was made, for readers; it is not stored.
Result<Calibration> parse_calibration(std::string_view toml_text, const std::string& file);

// Fails if the calibration was made for heads of another size. where: the place of its name in the spec.
Result<void> check_calibration(const Calibration& calibration, int head_dim, const Where& where);

// The format with the factors of the calibration. Its mask replaces a constant mask of the format; the number of
// outliers must be the same, because sizes follow from it. The result is another format, and its name says so.
Result<Format> calibrated(Format format, const Calibration& calibration, const Where& where);

// A word of a mask as files spell it: "E46A0359".
std::string mask_word(std::uint32_t word);

}  // namespace kvjit
