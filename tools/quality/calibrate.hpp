// Making calibrations (generator/formats/calibration.hpp) from sample keys and values.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/formats/calibration.hpp"
#include "generator/formats/rotation.hpp"
#include "tools/quality/kvq_files.hpp"

namespace kvjit {

// How channel scales are found. rms_i, max_i: of channel i over all rows, before norm and rotation.
enum class ScaleMethod {
  inner_q,  // s_i = clamp((mean of rms / rms_i)^strength, 1/2, 2), over keys and values
  max,      // s_i proportional to 1 / sqrt(max |K_i|), geometric mean 1, over keys
};

struct ChannelScales {
  std::vector<double> scales;
  double low = 1, high = 1;  // smallest and largest that the method gives
  bool is_needless = false;  // all of them within (1/1.2, 1.2): scales of one are used instead
};
ChannelScales channel_scales(ScaleMethod method, double strength, const Heads& k, const Heads& v);

// Mean square of each channel of a rotated group of `group` channels, over all groups of all rows, each scaled to unit
// variance before: 1 on average. scales: of the channels of a head, before the rotation; empty: ones. group 0: of the
// rotation.
std::vector<double> rotated_profile(const Rotation& rotation, int group, const std::vector<double>& scales,
                                    const std::vector<const Heads*>& rows);

// The `count` largest of a profile; of equals the first.
std::vector<bool> largest_channels(const std::vector<double>& profile, int count);
std::vector<std::uint32_t> mask_words(const std::vector<bool>& channels);

// The TOML of a calibration. made: the lines of its [made], key and value as TOML spells them.
std::string calibration_toml(const Calibration& calibration,
                             const std::vector<std::pair<std::string, std::string>>& made);

}  // namespace kvjit
