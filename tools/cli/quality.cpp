// The verb quality: prints the errors of formats on numbers from files or generators, in tables and one plot. With
// --calibrate or --profile it measures the channels of the numbers instead (calibrate.cpp). It uses the reference codec
// and double precision; no kernel runs.
// SPDX-License-Identifier: MIT
#include "tools/quality/quality.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "tools/cli/quality_args.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/plot.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"
#include "tools/quality/coding.hpp"

namespace kvjit {
namespace {

constexpr int kDefaultHeadDim = 128;

struct Row {
  std::string name;  // name of the K/V formats
  Coding coding;     // of both
  Result<Quality> quality = fail(Code::internal, "not measured");
};

// Fails unless the specs have one head_dim and the same features, since they are rows of one table.
Result<void> check_agreement(const std::vector<Spec>& specs) {
  for (const Spec& spec : specs) {
    if (spec.head_dim != specs[0].head_dim)
      return fail(Code::bad_input,
                  fmt::format("head_dim {} here, {} in {}: one table compares one head_dim", spec.head_dim,
                              specs[0].head_dim, specs[0].file),
                  spec.where("attention.head_dim"));
    if (spec.features != specs[0].features || spec.causal != specs[0].causal)
      return fail(Code::bad_input, fmt::format("features differ from those of {}", specs[0].file),
                  spec.where("attention.features"), {"one table compares one way to attend"});
    FeatureSet others = spec.features;  // all features but those with a separate key, and lse, which changes no score
    others.softcap = 0, others.window_left = others.window_right = -1, others.lse = false;
    for (const auto& [key, is_set] : {std::pair{"attention.softcap", spec.features.softcap > 0},
                                      {"attention.window", spec.features.has_window()},
                                      {"attention.hook", !spec.hook.empty()},
                                      {"attention.features", others.any()}})
      if (is_set)
        return fail(Code::unsupported, "quality attends without what changes scores, other than causal",
                    spec.where(key), {"leave it out: it does not change what a format costs a score"});
  }
  return {};
}

Result<std::vector<Sample>> samples_of(const QualityArgs& args, const std::vector<Spec>& specs) {
  const int files = !args.k.empty() + !args.v.empty() + !args.q.empty();
  if (files != 0 && files != 3)
    return fail(Code::usage, "--k, --v and --q belong together", {}, {"without all three, generated numbers are used"});
  const bool is_causal = args.is_causal || (!specs.empty() && specs[0].causal);
  if (files == 0) {
    const int dim = args.head_dim ? args.head_dim : specs.empty() ? kDefaultHeadDim : specs[0].head_dim;
    if (!specs.empty() && dim != specs[0].head_dim)
      return fail(Code::usage, fmt::format("--head-dim {}: {} has head_dim {}", dim, specs[0].file, specs[0].head_dim));
    if (args.queries) return fail(Code::usage, "--queries cuts the file of --q; generated numbers are used here");
    std::vector<Sample> samples = generated_samples(dim);
    for (Sample& sample : samples) sample.is_causal = is_causal;
    return samples;
  }
  KV_TRY(sample, read_sample(args.k, args.v, args.q, args.queries, is_causal));
  const int dim = args.head_dim ? args.head_dim : specs.empty() ? static_cast<int>(sample.k.dim) : specs[0].head_dim;
  if (sample.k.dim != dim)
    return fail(Code::bad_input, fmt::format("{}: head_dim is {}, not {}", args.k, sample.k.dim, dim), {},
                {args.head_dim ? "--head-dim" : specs[0].file});
  return std::vector<Sample>{sample};
}

const std::vector<std::string> kHeadings = {"format",    "bits",   "K error",      "V error", "logit error",
                                            "logit max", "cosine", "output error", ""};

// The scales that were used for formats with one scale a tensor, as text.
std::string tensor_scales(const Quality& q) {
  std::string text;
  if (q.k_scale > 0) text += fmt::format("K scale {:.4g}", q.k_scale);
  if (q.v_scale > 0) text += fmt::format("{}V scale {:.4g}", text.empty() ? "" : ", ", q.v_scale);
  return text;
}

std::vector<std::string> cells(const Row& row) {
  if (!row.quality) return {row.name, "-", "-", "-", "-", "-", "-", "-", row.quality.error().message};
  const Quality& q = *row.quality;
  std::vector<std::string> text = {row.name, fmt::format("{:.4g}", q.bits())};
  for (const double number : {q.k_mse, q.v_mse, q.logit_error, q.logit_max}) text.push_back(short_number(number));
  text.push_back(fmt::format("{:.6f}", q.cosine));
  text.push_back(short_number(q.output_error));
  text.push_back(tensor_scales(q));
  return text;
}

Json row_json(const Row& row) {
  Json json = {{"formats", row.name}};
  if (!row.quality) {
    json["reason"] = row.quality.error().message;
    return json;
  }
  const Quality& q = *row.quality;
  json.update({{"bits", q.bits()},
               {"k_bits", q.k_bits},
               {"v_bits", q.v_bits},
               {"k_relative_mse", q.k_mse},
               {"v_relative_mse", q.v_mse},
               {"logit_error", q.logit_error},
               {"logit_max", q.logit_max},
               {"output_cosine", q.cosine},
               {"output_error", q.output_error}});
  if (q.k_scale > 0) json["k_tensor_scale"] = q.k_scale;
  if (q.v_scale > 0) json["v_tensor_scale"] = q.v_scale;
  return json;
}

constexpr const char* kLegend =
    "K, V error: relative mean squared error. logit error: relative RMS of q.k / sqrt(d); logit max: the largest "
    "difference. "
    "cosine, output error: attention over the decoded cache against attention over the original one, relative L2. "
    "K, V scale: of formats with one scale a tensor, the largest number over the largest that a code means (448 of "
    "E4M3).";

// The label of a row in the plot: its name, or its number if the name is long.
std::string plot_label(const Row& row, std::size_t number) {
  constexpr std::size_t kLongest = 28;
  return row.name.size() <= kLongest ? row.name : fmt::format("#{}", number);
}

std::string page_section(const Sample& sample, const std::vector<Row>& rows) {
  // Most formats of a cache have codes of two to five bits, so a second panel shows these.
  Scatter scatter{"bits a value (mean of K and V)", "output error", coding_names(), {}, {"2 to 5 bits", 2, 5}};
  std::vector<std::vector<std::string>> table;
  for (const Row& row : rows) {
    table.push_back(cells(row));
    table.back().insert(table.back().begin(), fmt::format("#{}", table.size()));
    if (row.quality)
      scatter.points.push_back({row.quality->bits(), row.quality->output_error, plot_label(row, table.size()),
                                static_cast<std::size_t>(row.coding)});
  }
  std::vector<std::string> headings = kHeadings;
  headings.insert(headings.begin(), "");
  return fmt::format("<h2>{}</h2>\n<p>{}</p>\n", escaped(sample.name), escaped(sample.description)) +
         scatter_svg(scatter) + html_table(headings, table);
}

Result<int> evaluate(const Cli& cli, const QualityArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_CHECK(check_agreement(specs));
  KV_TRY(samples, samples_of(args, specs));
  std::vector<std::string> names = args.formats;
  if (names.empty() && specs.empty()) names = {"all"};
  KV_TRY(combinations, kv_formats_of(specs, names, static_cast<int>(samples.front().k.dim), registry));
  Json results = Json::array();
  std::string text, page;
  std::size_t measured = 0, at = 0;  // at: rows of all tables so far, with those that are left out
  const std::size_t count = samples.size() * combinations.size();
  if (args.skip >= count) return fail(Code::usage, fmt::format("--skip {}: there are {} rows", args.skip, count));
  std::vector<int> widths = {-6, 6, 8, 8, 11, 9, 8, 12, 0};
  for (const KvFormats& formats : combinations)
    widths[0] = std::min(widths[0], -static_cast<int>(formats.name().size()));
  auto interrupts = std::make_unique<Interrupts>();
  auto progress = std::make_unique<Progress>(count - args.skip, cli.shows_progress());
  for (const Sample& sample : samples) {
    if (Interrupts::is_requested()) break;
    if (at + combinations.size() <= args.skip) {
      at += combinations.size();
      continue;
    }
    if (cli.shows_rows())
      print_above(stdout, fmt::format("{}{}: {}\n{}", results.empty() ? "" : "\n", sample.name, sample.description,
                                      fixed_row(kHeadings, widths)));
    std::vector<Row> rows;
    Json row_results = Json::array();
    std::vector<std::vector<std::string>> table;
    for (const KvFormats& formats : combinations) {
      if (Interrupts::is_requested()) break;
      if (at++ < args.skip) continue;
      rows.push_back({formats.name(), coding_of(formats), measure_quality(sample, formats)});
      measured += rows.back().quality.has_value();
      row_results.push_back(row_json(rows.back()));
      table.push_back(cells(rows.back()));
      if (cli.shows_rows()) print_above(stdout, fixed_row(table.back(), widths));
      progress->show(at - args.skip);
    }
    results.push_back({{"sample", sample.name}, {"description", sample.description}, {"rows", row_results}});
    text += fmt::format("{}{}: {}\n{}", text.empty() ? "" : "\n", sample.name, sample.description,
                        table_text(kHeadings, table));
    page += page_section(sample, rows);
  }
  progress.reset();
  interrupts.reset();
  if (!args.html.empty())
    KV_CHECK(
        write_text(args.html, html_page("Quality of KV cache formats", fmt::format("<p>{}</p>\n{}", kLegend, page))));
  cli.print(results, cli.shows_rows() ? "" : text);
  if (at < count) return cli.interrupted(at - args.skip, count - args.skip, {{"--skip", std::to_string(at)}});
  return measured == 0 ? static_cast<int>(Code::unsupported) : 0;  // a row that was not measured has its reason
}

}  // namespace

void add_quality_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<QualityArgs>();
  CLI::App* verb = app.add_subcommand("quality", "what formats cost in accuracy; or calibrate channels");
  verb->add_option("SPEC", args->specs, "spec files: each gives its K/V formats")->type_name("SPEC.toml");
  verb->add_option("--formats", args->formats, "formats, each as K and as V")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FORMAT,FORMAT|all")
      ->default_str("those of the specs, or all");
  verb->add_option("--k", args->k, "keys: .npy [kv_heads, tokens, head_dim]")->type_name("K.npy");
  verb->add_option("--v", args->v, "values, like K")->type_name("V.npy");
  verb->add_option("--q", args->q, "queries: .npy [q_heads, queries, head_dim]")->type_name("Q.npy");
  whole_number(verb->add_option("--queries", args->queries, "use only the last N queries of each head"), "N", 1,
               1 << 30)
      ->default_str("all");
  whole_number(verb->add_option("--skip", args->skip, "leave out the first N rows, to go on after Ctrl-C"), "N", 0,
               1 << 30);
  verb->add_flag("--causal", args->is_causal, "the last query stands at the last token (specs may say it too)");
  whole_number(verb->add_option("--head-dim", args->head_dim, "of generated numbers, if no spec says it"), "D", 16,
               1024)
      ->default_str(std::to_string(kDefaultHeadDim));
  verb->add_option("--html", args->html, "also write tables and a plot to one HTML file")->type_name("FILE.html");
  CLI::Option* calibrate =
      verb->add_option("--calibrate", args->calibrate, "write calibrations/NAME.toml from K and V");
  CLI::Option* profile = verb->add_flag("--profile", args->is_profile, "variance of each channel after a rotation");
  calibrate->type_name("NAME")->excludes(profile);
  verb->add_option("-o,--output", args->out_dir, "folder for --calibrate; `--specs DIR` then finds the file")
      ->needs(calibrate)
      ->type_name("DIR");
  one_of(verb->add_option("--method", args->method, "rule of the channel scales"), {"inner_q", "max"})
      ->needs(calibrate)
      ->capture_default_str();
  decimal_number(verb->add_option("--strength", args->strength, "exponent of inner_q"), "X", 0, 1)
      ->needs(calibrate)
      ->default_str("0.5");
  whole_number(verb->add_option("--outliers", args->outliers, "channels in the mask; 0: no mask"), "N", 0, 4096)
      ->needs(calibrate)
      ->default_str("32");
  verb->add_option("--rotation", args->rotation, "rotation of --profile and --calibrate")
      ->type_name("NAME:SIZE")
      ->default_str("wht_signed over the head");
  verb->callback([&cli, args] {
    cli.action = [&cli, args]() -> Result<int> {
      if (!args->calibrate.empty()) return calibrate_channels(cli, *args);
      if (args->is_profile) return profile_channels(cli, *args);
      if (!args->rotation.empty()) return fail(Code::usage, "--rotation belongs to --profile or --calibrate");
      return evaluate(cli, *args);
    };
  });
}

}  // namespace kvjit
