// Reads calibrations and applies them to formats (calibration.hpp).
// SPDX-License-Identifier: MIT
#include "generator/formats/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "generator/base/schema.hpp"

namespace kvjit {
namespace {

// The limits of a factor. No rule that makes factors comes near them; beyond them float32 and fp16 numbers may
// overflow.
constexpr double kLeastScale = 1.0 / 1024, kLargestScale = 1024;
constexpr std::size_t kWordChannels = 32;

void read_channels(schema::Table& top, Calibration& c) {
  top.read("channels", c.channels);
  for (double& s : c.channels) {
    if (!(s >= kLeastScale && s <= kLargestScale))
      return top.complain(top.where("channels"),
                          fmt::format("each item of channels must be {}..{}", kLeastScale, kLargestScale));
    s = static_cast<float>(s);  // The reference codec and the kernels both multiply with float32 numbers.
  }
  if (top.find("channels") && c.channels.empty()) top.complain(top.where("channels"), "channels must not be empty");
}

void read_profile(schema::Table& top, Calibration& c) {
  top.read("profile", c.profile);
  for (double& variance : c.profile) {
    if (!(variance >= 0)) return top.complain(top.where("profile"), "each item of profile must be 0 or more");
    variance = static_cast<float>(variance);
  }
}

void read_mask(schema::Table& top, Calibration& c) {
  std::vector<std::string> words;
  top.read("mask", words);
  for (const std::string& text : words) {
    std::uint32_t word = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), word, 16);
    if (text.size() != 8 || problem != std::errc() || end != text.data() + text.size())
      return top.complain(top.where("mask"),
                          fmt::format("'{}' in mask is not a word of 32 channels: 8 hexadecimal digits", text),
                          {"lowest channels first: channel i is bit i % 32 of word i / 32"});
    c.mask.push_back(word);
  }
  if (!c.mask.empty() && !c.profile.empty() && (c.profile.size() + kWordChannels - 1) / kWordChannels != c.mask.size())
    top.complain(top.where("mask"), fmt::format("mask has {} words of 32 channels, profile has {} channels",
                                                c.mask.size(), c.profile.size()));
}

}  // namespace

Result<Calibration> parse_calibration(std::string_view toml_text, const std::string& file) {
  KV_TRY(root, schema::parse(toml_text, file));
  schema::Table top(&root, "a calibration", {file});
  Calibration c;
  c.name = std::filesystem::path(file).stem().string();
  for (const char* key : {"title", "channels"}) top.require(key);
  top.read("title", c.title);
  top.read("source", c.source);
  read_channels(top, c);
  read_profile(top, c);
  read_mask(top, c);
  top.takes("made", schema::Node::Kind::table);
  if (const schema::Node* origin = top.find("made"); origin && origin->kind != schema::Node::Kind::table)
    top.complain(origin->where, "made must be a table: how the calibration was made");
  KV_CHECK(top.done());
  return c;
}

Result<void> check_calibration(const Calibration& calibration, int head_dim, const Where& where) {
  if (calibration.channels.size() == static_cast<std::size_t>(head_dim)) return {};
  return fail(Code::bad_input,
              fmt::format("calibration '{}' is of {} channels, head_dim is {}", calibration.name,
                          calibration.channels.size(), head_dim),
              where, {"`kvjit quality --calibrate` makes one from keys and values of this head_dim"});
}

Result<Format> calibrated(Format format, const Calibration& calibration, const Where& where) {
  if (format.has_segments())
    return fail(Code::unsupported, fmt::format("'{}' has segments, which no calibration serves", format.name), where);
  const auto is_one = [](double v) { return v == 1; };
  if (!std::all_of(calibration.channels.begin(), calibration.channels.end(), is_one))
    format.channels = calibration.channels;
  const bool has_outliers = format.sections.size() > 1 && format.residual_section != 1 && format.stored_mask == 0;
  if (has_outliers && !calibration.mask.empty()) {
    if (int(calibration.mask.size()) * 32 != format.block)
      return fail(Code::bad_input,
                  fmt::format("the mask of calibration '{}' covers {} channels, a block of {} has {}", calibration.name,
                              calibration.mask.size() * 32, format.name, format.block),
                  where);
    std::vector<int> members[2];
    for (int i = 0; i < format.block; ++i) members[calibration.mask[std::size_t(i / 32)] >> i % 32 & 1].push_back(i);
    if (members[1].size() != format.sections[1].members.size())
      return fail(Code::bad_input,
                  fmt::format("the mask of calibration '{}' has {} outliers, {} stores {}", calibration.name,
                              members[1].size(), format.name, format.sections[1].members.size()),
                  where,
                  {fmt::format("`kvjit quality --calibrate ... --outliers {}` makes one that fits",
                               format.sections[1].members.size())});
    for (std::size_t s : {0, 1}) format.sections[s].members = members[s];
  }
  format.name += "_" + calibration.name;
  return format;
}

std::string mask_word(std::uint32_t word) { return fmt::format("{:08X}", word); }

}  // namespace kvjit
