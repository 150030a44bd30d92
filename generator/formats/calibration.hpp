// Calibration: what sample keys and values taught about the channels of a head, given by data in
// specs/calibrations/*.toml
// (`kvjit quality --calibrate` writes them). A side of a spec names one.
//
//   channels  s, one factor a channel of the head. Keys and values are multiplied by s before norm and rotation, queries by 1/s
//             before their rotation, the output by 1/s after the inverse rotation: <q/s, s k> = <q, k>, and diag(s) does not
//             commute with a rotation, so no other order keeps the products.
//   mask      the channels of one rotated group that deserve more bits (outliers), bit i of word i / 32
//   profile   mean square of each channel of one rotated group of unit variance: 1 on average
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
  std::string name, title, source;
  std::vector<double> channels;     // > 0, float32 numbers; as many as the head has channels
  std::vector<std::uint32_t> mask;  // empty: none; else a word for each 32 channels of a rotated group
  std::vector<double> profile;      // empty: not measured; else one number for each channel of a rotated group
};

// A file of specs/calibrations: name is the file's stem. [made] says how it was made; it is for readers and not kept.
Result<Calibration> parse_calibration(std::string_view toml_text, const std::string& file);

// Is `head_dim` the head that the calibration was made for? where: of the name in the spec.
Result<void> check_calibration(const Calibration& calibration, int head_dim, const Where& where);

// The format with the calibration's factors, and with its mask where the format has outlier channels of a constant mask
// (their number must stay: sizes hang on it). It is another format, and its name says so.
Result<Format> calibrated(Format format, const Calibration& calibration, const Where& where);

// "E46A0359": the spelling of a word of a mask.
std::string mask_word(std::uint32_t word);

}  // namespace kvjit
