// Computes channel scales and profiles, and writes calibrations: see calibrate.hpp.
// SPDX-License-Identifier: MIT
#include "tools/quality/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvjit {
namespace {

// Constants of InnerQ in TheTom/llama-cpp-turboquant.
constexpr double kLeast = 0.5;  // least scale
constexpr double kLargest = 2;  // largest scale
constexpr double kWorth = 1.2;  // if all scales are within this factor of 1, they are not used

ChannelScales finished(std::vector<double> scales) {
  ChannelScales result;
  const auto [low, high] = std::minmax_element(scales.begin(), scales.end());
  result.low = *low;
  result.high = *high;
  result.is_needless = result.low > 1 / kWorth && result.high < kWorth;
  if (result.is_needless) std::fill(scales.begin(), scales.end(), 1.0);
  for (double& s : scales) s = static_cast<float>(s);
  result.scales = std::move(scales);
  return result;
}

std::string number_list(const std::vector<double>& numbers) {
  constexpr std::size_t kPerLine = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text += fmt::format("{}{},", i % kPerLine == 0 ? "\n  " : " ", static_cast<float>(numbers[i]));
  return text + "\n]";
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

ChannelScales channel_scales(ScaleMethod method, double strength, const KvqFile& k, const KvqFile& v) {
  const auto dim = static_cast<std::size_t>(k.dim);
  std::vector<double> scales(dim, 1.0);
  if (method == ScaleMethod::max) {
    std::vector<double> largest(dim, 0.0);
    for (std::size_t i = 0; i < k.values.size(); ++i)
      largest[i % dim] = std::max(largest[i % dim], std::fabs(double{k.values[i]}));
    double logs = 0;
    int used = 0;  // channels that are not always 0; the others have the scale 1
    for (std::size_t c = 0; c < dim; ++c)
      if (largest[c] > 0) scales[c] = 1 / std::sqrt(largest[c]), logs += std::log(scales[c]), ++used;
    const double mean = used ? std::exp(logs / used) : 1;
    for (std::size_t c = 0; c < dim; ++c)
      if (largest[c] > 0) scales[c] /= mean;
    return finished(std::move(scales));
  }
  std::vector<double> rms(dim, 0.0);
  for (const KvqFile* x : {&k, &v})
    for (std::size_t i = 0; i < x->values.size(); ++i) rms[i % dim] += double{x->values[i]} * x->values[i];
  const double rows = static_cast<double>(k.values.size() + v.values.size()) / static_cast<double>(dim);
  for (double& r : rms) r = std::sqrt(r / rows);
  const double mean = std::accumulate(rms.begin(), rms.end(), 0.0) / static_cast<double>(dim);
  if (mean == 0) return finished(std::move(scales));
  for (std::size_t c = 0; c < dim; ++c)
    scales[c] = rms[c] > 0 ? std::clamp(std::pow(mean / rms[c], strength), kLeast, kLargest) : kLargest;
  return finished(std::move(scales));
}

std::vector<double> rotated_profile(const Rotation& rotation, int group, const std::vector<double>& scales,
                                    const std::vector<const KvqFile*>& rows) {
  const auto size = static_cast<std::size_t>(group ? group : rotation.size);
  std::vector<double> profile(size, 0.0), y(size);
  double groups = 0;
  for (const KvqFile* x : rows)
    for (std::size_t at = 0; at + size <= x->values.size(); at += size) {
      double squares = 0;
      for (std::size_t i = 0; i < size; ++i) {
        y[i] = x->values[at + i] * (scales.empty() ? 1.0 : scales[(at + i) % scales.size()]);
        squares += y[i] * y[i];
      }
      if (squares == 0) continue;
      rotate_forward(rotation, y.data(), static_cast<int>(size));
      for (std::size_t i = 0; i < size; ++i) profile[i] += y[i] * y[i] / squares * static_cast<double>(size);
      ++groups;
    }
  if (groups > 0)
    for (double& variance : profile) variance /= groups;
  return profile;
}

std::vector<bool> largest_channels(const std::vector<double>& profile, int count) {
  std::vector<std::size_t> order(profile.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return profile[a] > profile[b]; });
  std::vector<bool> is_largest(profile.size(), false);
  for (std::size_t i = 0; i < std::min(order.size(), static_cast<std::size_t>(count)); ++i) is_largest[order[i]] = true;
  return is_largest;
}

std::vector<std::uint32_t> mask_words(const std::vector<bool>& channels) {
  std::vector<std::uint32_t> words((channels.size() + 31) / 32, 0);
  for (std::size_t i = 0; i < channels.size(); ++i)
    if (channels[i]) words[i / 32] |= std::uint32_t{1} << i % 32;
  return words;
}

std::string calibration_toml(const Calibration& calibration,
                             const std::vector<std::pair<std::string, std::string>>& origin) {
  std::string text = fmt::format("title = {}\nsource = {}\nchannels = {}\n", quoted(calibration.title),
                                 quoted(calibration.source), number_list(calibration.channels));
  if (!calibration.mask.empty()) {
    text += "mask = [";
    for (std::size_t i = 0; i < calibration.mask.size(); ++i)
      text += fmt::format("{}\"{}\"", i ? ", " : "", mask_word(calibration.mask[i]));
    text += "] # lowest channels first: channel i is bit i % 32 of word i / 32\n";
  }
  if (!calibration.profile.empty()) text += fmt::format("profile = {}\n", number_list(calibration.profile));
  text += "\n[made]\n";
  for (const auto& [key, value] : origin) text += fmt::format("{} = {}\n", key, value);
  return text;
}

}  // namespace kvjit
