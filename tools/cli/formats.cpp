// The verb formats: prints every format in a table, one format in detail with its names that other formats have too, or
// published types that are not served.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "generator/catalogue/missing_formats.hpp"
#include "generator/catalogue/registry.hpp"
#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

struct FormatsArgs {
  std::string name;         // a format or an alias; empty: all formats
  int head_dim = 128;       // --head-dim: for formats whose layout depends on it
  bool is_missing = false;  // --missing: published types that are not served
};

std::string rotation_text(const Rotation& rotation) {
  return rotation.is_identity() ? "none" : fmt::format("{} of {}", rotation.name, rotation.size);
}

std::string block_text(const Format& f) {
  return f.is_per_head ? fmt::format("{} *", f.block) : std::to_string(f.block);
}

std::string codes_text(const Section& s) {
  if (s.kind == CodeKind::plain) return std::string(to_string(s.element));
  if (s.is_trellis()) return fmt::format("{} bits, steps of a trellis of {} states", s.step_bits, s.values.size());
  if (s.is_vector()) return fmt::format("{} bits, vectors of eight values", s.bits);
  return fmt::format("{} bits, {}", s.bits, s.kind == CodeKind::uniform ? "integers" : "a table");
}

std::string scale_text(const Scale& s) {
  constexpr const char* kRules[] = {
      "none", "one of the whole tensor", "largest magnitude",      "signed largest magnitude",
      "norm", "steps from the minimum",  "steps from a zero point"};
  constexpr const char* kRefines[] = {
      "", ", matched", ", least squares", ", unbiased", ", weighted least squares", ", weighted least squares"};
  constexpr const char* kTypes[] = {"f16", "bf16", "e4m3", "ue4m3", "e8m0", "f32"};
  const std::string whole = s.per_head ? "one of each KV head" : kRules[int(ScaleRule::tensor)];
  if (s.rule == ScaleRule::tensor) return whole;
  if (s.rule == ScaleRule::none) return kRules[int(s.rule)];
  const std::string span = s.span == s.group ? "" : fmt::format(", found over {}", s.span);
  std::vector<double> divisors = s.search;
  divisors.insert(divisors.begin(), s.divisor);
  const std::string search = s.search.empty() ? "" : fmt::format(", the best of / {}", fmt::join(divisors, ", / "));
  return fmt::format("{}{} of {} values as {}{}{}{}", kRules[int(s.rule)], kRefines[int(s.refine)], s.group,
                     kTypes[int(s.type)], span, search, s.over_tensor ? ", over " + whole : "");
}

std::string field_text(const Format& f, const Field& field) {
  constexpr const char* kKinds[] = {"codes", "scale", "minimum", "residual_norm", "residual_signs",
                                    "mask",  "pad",   "codes",   "scales",        "not of this head"};
  if (f.has_segments() && field.kind != FieldKind::pad && field.kind != FieldKind::foreign)
    return fmt::format("{} of segment {}", kKinds[int(field.kind)], field.section);
  if (field.section == 0 || f.has_segments()) return kKinds[int(field.kind)];
  return field.section == f.residual_section ? "residual" : "outliers";
}

Json format_json(const Format& f) {
  return {{"name", f.name},
          {"title", f.title},
          {"source", f.source},
          {"aliases", f.aliases},
          {"also", f.also},
          {"is_per_head", f.is_per_head},
          {"is_padded", f.is_padded},
          {"bits_per_value", f.bits_per_value()},
          {"code_bits", f.codes().is_trellis() ? f.codes().step_bits : f.codes().bits},
          {"block", f.block},
          {"block_bytes", f.block_bytes},
          {"rotation", f.rotation.name},
          {"rotation_size", f.rotation.size}};
}

Result<int> list_all(const Cli& cli, const Registry& registry) {
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, f] : registry.formats()) {
    rows.push_back({name, fmt::format("{}", fmt::join(f.aliases, " ")), short_number(f.bits_per_value()), block_text(f),
                    std::to_string(f.block_bytes), rotation_text(f.rotation)});
    results.push_back(format_json(f));
  }
  cli.print(results, table_text({"format", "aliases", "bits a value", "block", "bytes", "rotation"}, rows));
  return 0;
}

// A line for each name of the format that other formats have too: "tbq4_0: here ..., the most used; elsewhere ...".
std::vector<std::string> shared_names(const Registry& registry, const Format& f) {
  std::vector<std::string> lines, names = f.aliases;
  names.insert(names.end(), f.also.begin(), f.also.end());
  names.push_back(f.name);
  for (const std::string& name : names) {
    std::vector<std::string> variants = registry.variants(name);
    if (variants.size() < 2) continue;
    const std::string owner = variants.front();
    variants.erase(variants.begin());
    lines.push_back(fmt::format("{}: here {}, the most used; elsewhere {}", name, owner, fmt::join(variants, ", ")));
  }
  return lines;
}

Result<int> show_one(const Cli& cli, const Registry& registry, const FormatsArgs& args) {
  KV_TRY(f, registry.format_for(args.name, args.head_dim, {}));
  Json data = format_json(f), fields = Json::array();
  std::string layout;
  for (const Field& field : f.fields) {
    fields.push_back({{"field", field_text(f, field)}, {"at", field.at}, {"bytes", field.bytes}});
    layout +=
        fmt::format("{}{} at {} ({} bytes)", layout.empty() ? "" : ", ", field_text(f, field), field.at, field.bytes);
  }
  const std::vector<std::string> shared = shared_names(registry, f);
  data["fields"] = fields;
  data["shared_names"] = shared;
  data["values"] = f.codes().values;
  data["bounds"] = f.codes().bounds;
  data["max_relative_mse"] = f.max_relative_mse;
  std::vector<std::pair<std::string, std::string>> lines = {
      {"format", f.name}, {"title", f.title}, {"source", f.source}};
  if (!f.aliases.empty()) lines.push_back({"aliases", fmt::format("{}", fmt::join(f.aliases, " "))});
  for (const std::string& line : shared) lines.push_back({"shared name", line});
  lines.insert(lines.end(), {{"bits a value", fmt::format("{}", f.bits_per_value())},
                             {"block", fmt::format("{} values in {} bytes", f.block, f.block_bytes)},
                             {"fields", layout},
                             {"codes", codes_text(f.codes())},
                             {"scale", scale_text(f.scale)},
                             {"rotation", rotation_text(f.rotation)}});
  if (f.is_per_head)
    lines.push_back({"heads", fmt::format("made for each head_dim; this is the one of {}", args.head_dim)});
  if (f.is_padded) lines.push_back({"heads", fmt::format("padded with zeros to multiples of {}", f.granule())});
  if (!f.codes().values.empty()) lines.push_back({"codebook", fmt::format("{:.4f}", fmt::join(f.codes().values, " "))});
  if (f.max_relative_mse > 0)
    lines.push_back({"accept", fmt::format("relative mean squared error at most {}", f.max_relative_mse)});
  cli.print(data, info_text(lines));
  return 0;
}

Result<int> list_missing(const Cli& cli) {
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const MissingFormat& missing : kMissingFormats) {
    rows.push_back({missing.name, missing.project, missing.axis, missing.source});
    results.push_back(
        {{"name", missing.name}, {"project", missing.project}, {"axis", missing.axis}, {"source", missing.source}});
  }
  cli.print(results, table_text({"type", "project", "what a format file cannot state", "source"}, rows));
  return 0;
}

Result<int> formats(const Cli& cli, const FormatsArgs& args) {
  if (args.is_missing) return list_missing(cli);
  KV_TRY(registry, cli.registry());
  return args.name.empty() ? list_all(cli, registry) : show_one(cli, registry, args);
}

}  // namespace

void add_formats_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<FormatsArgs>();
  CLI::App* list = app.add_subcommand("formats", "every format, or one in detail");
  list->add_option("NAME", args->name, "name or alias")->type_name("FORMAT");
  whole_number(
      list->add_option("--head-dim", args->head_dim, "values of a head, for formats that are made for it (marked *)"),
      "D", 1, 1 << 20)
      ->capture_default_str();
  list->add_flag("--missing", args->is_missing, "published types that are not served, and why");
  list->callback([&cli, args] { cli.action = [&cli, args] { return formats(cli, *args); }; });
}

}  // namespace kvjit
