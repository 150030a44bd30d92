// Calibrations (generator/formats/calibration.hpp) from sample keys and values: channel scales, the profile of channels
// behind a rotation, and the mask of outlier channels.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <vector>

#include "generator/formats/calibration.hpp"
#include "generator/formats/rotation.hpp"
#include "tools/quality/kvq_files.hpp"

namespace kvjit {

// The rule for the scale s_i of channel i. rms_i and max |K_i| are taken over all rows, before norm and rotation.
enum class ScaleMethod {
  inner_q,  // s_i = clamp((mean of rms / rms_i)^strength, 1/2, 2), over keys and values
  max,      // s_i proportional to 1 / sqrt(max |K_i|), with geometric mean 1, over keys
};

struct ChannelScales {
  std::vector<double> scales;  // a factor for each channel of a head
  double low = 1;              // smallest scale that the method gives
  double high = 1;             // largest scale that the method gives
  bool is_needless = false;    // the method's scales are all within (1/1.2, 1.2), so `scales` are ones instead
};
ChannelScales channel_scales(ScaleMethod method, double strength, const KvqFile& k, const KvqFile& v);

// Mean square of each channel behind the rotation, over all groups of `group` channels of all rows. Each group is
// divided by its root mean square first, so the profile is 1 on average. `scales` multiply the channels of a head
// before the rotation; empty: none. group 0 means the rotation's own size.
std::vector<double> rotated_profile(const Rotation& rotation, int group, const std::vector<double>& scales,
                                    const std::vector<const KvqFile*>& rows);

// Marks the `count` largest channels of a profile; among equal channels the first.
std::vector<bool> largest_channels(const std::vector<double>& profile, int count);
// Packs the marks into words of 32 bits, lowest channel in the lowest bit.
std::vector<std::uint32_t> mask_words(const std::vector<bool>& channels);

// The TOML text of a calibration. `origin` has the lines of its table [made], key and value as TOML spells them.
std::string calibration_toml(const Calibration& calibration,
                             const std::vector<std::pair<std::string, std::string>>& origin);

}  // namespace kvjit
