// The verb quality with --calibrate, which writes channel scales, profile and outlier mask to a TOML file, and with
// --profile, which prints the variance of channels as a table and a picture.
// SPDX-License-Identifier: MIT
#include "tools/quality/calibrate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "tools/cli/quality_args.hpp"
#include "tools/io/files.hpp"
#include "tools/io/plot.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

constexpr double kDefaultStrength = 0.5;
constexpr int kDefaultOutliers = 32;  // channels of the mask
constexpr int kListed = 8;            // channels that are printed

// Fails if the command line has an option that `mode` does not read.
Result<void> refuse_unread(const QualityArgs& args, const char* mode) {
  const std::vector<std::pair<const char*, bool>> unread = {
      {"SPEC", !args.specs.empty()},    {"--formats", !args.formats.empty()}, {"--q", !args.q.empty()},
      {"--queries", args.queries != 0}, {"--causal", args.is_causal},         {"--head-dim", args.head_dim != 0}};
  for (const auto& [name, is_given] : unread)
    if (is_given) return fail(Code::usage, fmt::format("{} reads no {}", mode, name));
  return {};
}

Result<RotationFlag> rotation_of(const Registry& registry, const QualityArgs& args, long long dim) {
  const std::string text = args.rotation.empty() ? fmt::format("wht_signed:{}", dim) : args.rotation;
  KV_TRY(flag, rotation_flag(registry, text));
  if (dim % flag.group != 0)
    return fail(Code::bad_input,
                fmt::format("head_dim {} is not a multiple of the {} channels of {}", dim, flag.group, text));
  return flag;
}

struct Spread {
  std::vector<std::size_t> order;  // channels, largest variance first
  double low = 0;                  // smallest variance
  double high = 0;                 // largest variance
};

Spread spread_of(const std::vector<double>& profile) {
  Spread spread;
  for (std::size_t i = 0; i < profile.size(); ++i) spread.order.push_back(i);
  std::stable_sort(spread.order.begin(), spread.order.end(),
                   [&](std::size_t a, std::size_t b) { return profile[a] > profile[b]; });
  spread.high = profile[spread.order.front()];
  spread.low = profile[spread.order.back()];
  return spread;
}

std::string ratio_text(const Spread& spread) {
  return spread.low > 0 ? fmt::format("{:.3f}", spread.high / spread.low) : "infinite: a channel is always 0";
}

std::string top_text(const std::vector<double>& profile, const Spread& spread) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min<std::size_t>(kListed, spread.order.size()); ++i)
    texts.push_back(fmt::format("{} ({:.3f})", spread.order[i], profile[spread.order[i]]));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

Result<int> profile_channels(const Cli& cli, const QualityArgs& args) {
  KV_CHECK(refuse_unread(args, "--profile"));
  if (args.k.empty() && args.v.empty()) return fail(Code::usage, "--profile needs --k or --v, or both");
  KV_TRY(registry, cli.registry());
  Json results = Json::array();
  std::string text, page;
  for (const auto& [side, file] : {std::pair<const char*, std::string>{"K", args.k}, {"V", args.v}}) {
    if (file.empty()) continue;
    KV_TRY(rows, read_kvq(file, "keys or values [kv_heads, tokens, head_dim]"));
    KV_TRY(flag, rotation_of(registry, args, rows.dim));
    const auto profile = rotated_profile(flag.rotation, flag.group, {}, {&rows});
    const Spread spread = spread_of(profile);
    results.push_back({{"side", side},
                       {"file", file},
                       {"rotation", flag.rotation.name},
                       {"group", flag.group},
                       {"max_over_min", spread.low > 0 ? Json(spread.high / spread.low) : Json(nullptr)},
                       {"order", spread.order},
                       {"variance", profile}});
    text +=
        (text.empty() ? "" : "\n") +
        info_text({{side, fmt::format("{}: {} heads, {} tokens, head_dim {}", file, rows.heads, rows.rows, rows.dim)},
                   {"rotation", fmt::format("{} over {} channels", flag.rotation.name, flag.group)},
                   {"variance", fmt::format("{:.4f} to {:.4f}; mean 1", spread.low, spread.high)},
                   {"max / min", ratio_text(spread)},
                   {"top channels", top_text(profile, spread)}});
    page += fmt::format("<h2>{}</h2>\n<p>{}: {} over {} channels; max / min {}</p>\n", side, escaped(file),
                        escaped(flag.rotation.name), flag.group, ratio_text(spread)) +
            bars_svg("channel", "variance", profile, largest_channels(profile, kListed), 1);
  }
  if (!args.html.empty()) KV_CHECK(write_text(args.html, html_page("Variance of channels", page)));
  cli.print(results, text);
  return 0;
}

Result<int> calibrate_channels(const Cli& cli, const QualityArgs& args) {
  KV_CHECK(refuse_unread(args, "--calibrate"));
  if (!args.html.empty()) return fail(Code::usage, "--html belongs to the evaluation and to --profile");
  if (args.k.empty() || args.v.empty() || args.out_dir.empty())
    return fail(Code::usage, "--calibrate needs --k, --v and -o DIR");
  // The name becomes a file name and a key of specs.
  if (args.calibrate.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
    return fail(Code::usage, fmt::format("--calibrate {}: a name is made of a-z, 0-9 and _", args.calibrate));
  const bool is_max = args.method == "max";
  if (is_max && args.strength) return fail(Code::usage, "--strength belongs to --method inner_q");
  KV_TRY(registry, cli.registry());
  KV_TRY(k, read_kvq(args.k, "K [kv_heads, tokens, head_dim]"));
  KV_TRY(v, read_kvq(args.v, "V [kv_heads, tokens, head_dim]"));
  KV_CHECK(expect_shape(args.v, v, 0, 1, k.dim, "V has the head_dim of K"));
  KV_TRY(flag, rotation_of(registry, args, k.dim));
  const int outliers = args.outliers.value_or(kDefaultOutliers);
  if (outliers >= flag.group)
    return fail(Code::usage,
                fmt::format("--outliers {}: must be fewer than the {} channels of a group", outliers, flag.group));

  const double strength = args.strength.value_or(kDefaultStrength);
  const ChannelScales found = channel_scales(is_max ? ScaleMethod::max : ScaleMethod::inner_q, strength, k, v);
  Calibration c;
  c.name = args.calibrate;
  c.title = fmt::format("Channel scales and profile of {} heads of {} channels", k.heads, k.dim);
  c.source = fmt::format("kvjit quality --calibrate, from {} and {}", fs::path(args.k).filename().string(),
                         fs::path(args.v).filename().string());
  c.channels = found.scales;
  c.profile = rotated_profile(flag.rotation, flag.group, c.channels, {&k, &v});
  if (outliers > 0) c.mask = mask_words(largest_channels(c.profile, outliers));
  std::vector<std::pair<std::string, std::string>> origin = {{"method", fmt::format("\"{}\"", args.method)}};
  if (!is_max) origin.emplace_back("strength", fmt::format("{:#}", strength));
  origin.insert(origin.end(),
                {{"rows", fmt::format("{}", k.heads * k.rows + v.heads * v.rows)},
                 {"least", fmt::format("{:.4f}", found.low)},
                 {"largest", fmt::format("{:.4f}", found.high)},
                 {"is_needless", found.is_needless ? "true" : "false"},
                 {"rotation", fmt::format("{{ name = \"{}\", size = {} }}", flag.rotation.name, flag.group)},
                 {"outliers", std::to_string(outliers)}});

  const std::string toml = calibration_toml(c, origin);
  const fs::path folder = fs::path(args.out_dir) / "calibrations", file = folder / (c.name + ".toml");
  KV_CHECK(parse_calibration(toml, file.string()));  // proves that the file can be read
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem)
    return fail(Code::environment, fmt::format("{}: cannot be made a folder: {}", folder.string(), problem.message()));
  KV_CHECK(write_text(file.string(), toml));

  const Spread before = spread_of(rotated_profile({}, static_cast<int>(k.dim), {}, {&k, &v}));
  const Spread after = spread_of(c.profile);
  std::vector<std::string> words;
  for (const std::uint32_t word : c.mask) words.push_back(mask_word(word));
  cli.print({{"file", file.string()},
             {"method", args.method},
             {"least", found.low},
             {"largest", found.high},
             {"is_needless", found.is_needless},
             {"channels", c.channels},
             {"mask", words},
             {"profile", c.profile}},
            info_text({{"file", file.string()},
                       {"scales", found.is_needless
                                      ? fmt::format("{:.4f} to {:.4f}: all within 1.2 of 1, so ones are written",
                                                    found.low, found.high)
                                      : fmt::format("{:.4f} to {:.4f}, by {}", found.low, found.high, args.method)},
                       {"unrotated", fmt::format("variance max / min {}", ratio_text(before))},
                       {"rotated", fmt::format("by {}:{}, scaled: max / min {}", flag.rotation.name, flag.group,
                                               ratio_text(after))},
                       {"top channels", top_text(c.profile, after)},
                       {"mask", words.empty() ? "none" : fmt::format("{}", fmt::join(words, " "))}}));
  return 0;
}

}  // namespace kvjit
