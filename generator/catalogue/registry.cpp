// Registry::load reads specs and templates; the other functions look up names.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include "generator/base/recording.hpp"
#include "generator/base/schema.hpp"
#include "generator/formats/reference_codec.hpp"

namespace kvjit {
namespace {

template <class T>
std::vector<std::string> keys(const std::map<std::string, T>& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// The files of a folder: name for messages, and text. The name of a format or the like is the stem of either file name,
// which are equal.
std::vector<std::pair<std::string, std::string>> in_folder(const FileSet& files, const FileNames& shown_as,
                                                           const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [name, text] : files) {
    if (!name.starts_with(folder)) continue;
    const auto shown = shown_as.find(name);
    found.emplace_back(shown == shown_as.end() ? name : shown->second, text);
  }
  return found;
}

// Fails if a file is in a folder that is not read, so that a misspelt folder is not silently skipped. specs/attention
// has examples of specs.
Result<void> check_folders(const FileSet& files) {
  const std::vector<std::string> names = {"specs/archs", "specs/attention", "specs/calibrations", "specs/formats",
                                          "specs/hooks", "specs/policies",  "specs/rotations",    "specs/tuning"};
  for (const auto& [name, text] : files) {
    const std::string folder = std::filesystem::path(name).parent_path().generic_string();
    if (name.starts_with("templates/") || std::find(names.begin(), names.end(), folder) != names.end()) continue;
    return fail(Code::bad_input, fmt::format("folder '{}' holds nothing that is read", folder), {name},
                schema::suggestions(folder, "folders", names));
  }
  return {};
}

// The relative squared error of a format on N(0,1), by the reference codec. The same numbers in each run; about 10 ms.
double measured_mse(const Format& format) {
  constexpr int kValues = 16384;
  const int n = format.has_segments()   ? format.block
                : format.granule() < 16 ? 128
                                        : std::max(format.granule(), format.is_per_head ? 128 : 1);
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): every run measures the same rows
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n));
  double error = 0, total = 0;
  for (int done = 0; done < kValues; done += n) {
    for (float& value : x) value = normal(random);
    const std::vector<double> y = decode_row(format, encode_row(format, x), n, false);
    for (std::size_t i = 0; i < x.size(); ++i) error += (y[i] - x[i]) * (y[i] - x[i]), total += double(x[i]) * x[i];
  }
  return error / total;
}

// Holds a caller's format to its [accept]. The tests hold the built-in formats to theirs, over more rows.
Result<void> check_accept(const Format& format, const std::string& text, const std::string& file) {
  constexpr double kScatter = 1.15;  // what a sample of this size may measure above the mean error
  if (format.codes().kind == CodeKind::plain) return {};
  const double measured = measured_mse(format);
  if (measured <= kScatter * format.max_relative_mse) return {};
  KV_TRY(root, schema::parse(text, file));
  const schema::Node* const accept = root.find("accept");
  const schema::Node* const bound = accept ? accept->find("max_relative_mse") : nullptr;
  return fail(Code::bad_input,
              fmt::format("format '{}' has a relative squared error of {:.4g} on N(0,1); it promises {:.4g}",
                          format.name, measured, format.max_relative_mse),
              bound ? bound->where : Where{file},
              {"correct the codes or the scale of the format, or state the error that it has"});
}

}  // namespace

Result<Registry> Registry::load(const FileSet& files, const FileNames& shown_as) {
  KV_CHECK(check_folders(files));
  Registry registry;
  for (const auto& [name, shown] : shown_as)
    if (const std::filesystem::path path = name; path.parent_path() == "specs")
      registry.unread_[path.filename().string()] = shown;
  const std::string templates = "templates/";
  for (auto& [file, text] : in_folder(files, shown_as, templates))
    registry.fragments_[file.substr(templates.size())] = split_fragment(text);
  for (const auto& [file, text] : in_folder(files, shown_as, "specs/rotations/")) {
    KV_TRY(spec, parse_rotation(text, file));
    registry.rotations_[spec.name] = spec;
  }
  for (const auto& [file, text] : in_folder(files, shown_as, "specs/calibrations/")) {
    KV_TRY(calibration, parse_calibration(text, file));
    registry.calibrations_[calibration.name] = calibration;
  }
  for (const auto& [file, text] : in_folder(files, shown_as, "specs/hooks/")) {
    KV_TRY(hook, parse_hook(text, file));
    registry.hooks_[hook.name] = hook;
  }
  for (const auto& [file, text] : in_folder(files, shown_as, "specs/policies/")) {
    KV_TRY(policy, parse_policy(text, file));
    registry.policies_[policy.name] = policy;
  }
  // An arch may inherit from one that is later in the alphabet, so those that fail are tried again until none succeeds.
  for (auto pending = in_folder(files, shown_as, "specs/archs/"); !pending.empty();) {
    std::vector<std::pair<std::string, std::string>> failed;
    std::vector<Error> errors;
    for (const auto& item : pending) {
      Result<Arch> arch = parse_arch(item.second, item.first, registry);
      if (arch)
        registry.archs_[arch->name] = *arch;
      else
        failed.push_back(item), errors.push_back(arch.error());
    }
    if (failed.size() == pending.size()) return tl::unexpected(errors.front());
    pending = std::move(failed);
  }
  std::set<std::string> callers;  // files of a caller's, by their names in messages
  for (const auto& [name, shown] : shown_as) callers.insert(shown);
  std::map<std::string, std::string> owners;  // name or alias -> file
  for (const auto& [file, text] : in_folder(files, shown_as, "specs/formats/")) {
    KV_TRY(format, parse_format(text, file, registry));
    if (callers.contains(file)) KV_CHECK(check_accept(format, text, file));
    std::vector<std::string> names = format.aliases;
    names.push_back(format.name);
    for (const std::string& name : names) {
      if (const auto [owner, is_new] = owners.emplace(name, file); !is_new)
        return fail(Code::bad_input, fmt::format("format name '{}' has two owners", name), {file},
                    {"the other is " + owner->second});
      if (name != format.name) registry.aliases_[name] = format.name;
    }
    if (format.is_per_head) registry.sources_[format.name] = {file, text};
    registry.formats_[format.name] = format;
  }
  for (const auto& [file, text] : in_folder(files, shown_as, "specs/tuning/")) {
    KV_TRY(rows, parse_tuning(text, file, registry));
    registry.tuning_[std::filesystem::path(file).stem().string()] = std::move(rows);
  }
  return registry;
}

tl::unexpected<Error> Registry::unknown(const std::string& what, const std::string& name, const Where& where,
                                        const std::vector<std::string>& names) const {
  const std::string folder = what == "policy" ? "policies" : what + "s";
  std::vector<std::string> notes = schema::suggestions(name, folder, names);
  if (const auto file = unread_.find(name + (what == "hook" ? ".cuh" : ".toml")); file != unread_.end()) {
    const std::filesystem::path path = file->second;
    notes.insert(notes.begin(), fmt::format("{} is not read; move it to {}", path.string(),
                                            (path.parent_path() / folder / path.filename()).string()));
  }
  return fail(Code::bad_input, fmt::format("{} '{}' is not known", what, name), where, std::move(notes));
}

Result<const Format*> Registry::format(const std::string& name_or_alias, const Where& where) const {
  const auto alias = aliases_.find(name_or_alias);
  const auto found = formats_.find(alias == aliases_.end() ? name_or_alias : alias->second);
  if (found != formats_.end()) return &found->second;
  std::vector<std::string> names = keys(formats_);
  for (const auto& [name, target] : aliases_) names.push_back(name);
  tl::unexpected<Error> error = unknown("format", name_or_alias, where, names);
  constexpr std::size_t kMostListed = 24;
  if (names.size() > kMostListed)
    error.value().notes.back() = fmt::format("{} formats and {} other names for them: `kvjit formats` lists all",
                                             formats_.size(), aliases_.size());
  return error;
}

Result<Format> Registry::format_for(const std::string& name_or_alias, int head_dim, const Where& where) const {
  KV_TRY(found, format(name_or_alias, where));
  const auto source = sources_.find(found->name);
  Format format = *found;
  if (source != sources_.end()) {
    const schema::Recording::Pause pause;
    Result<Format> parsed = parse_format(source->second.second, source->second.first, *this, head_dim);
    if (!parsed) {
      // The file itself was loaded without error, so the error is about this head_dim.
      parsed.error().message =
          fmt::format("format '{}' cannot store heads of {}: {}", found->name, head_dim, parsed.error().message);
      parsed.error().where = where;
      return tl::unexpected(parsed.error());
    }
    format = *std::move(parsed);
  }
  KV_CHECK(check_head_dim(format, head_dim, where));
  return format;
}

std::vector<std::string> Registry::variants(const std::string& name_or_alias) const {
  std::vector<std::string> names;
  if (const Result<const Format*> owner = format(name_or_alias, {})) names.push_back((*owner)->name);
  for (const auto& [name, f] : formats_)
    if (std::count(f.also.begin(), f.also.end(), name_or_alias)) names.push_back(name);
  return names;
}

Result<Rotation> Registry::rotation(const std::string& name, int size, const Where& where) const {
  if (name == "none") return Rotation{};
  const auto found = rotations_.find(name);
  if (found == rotations_.end()) {
    std::vector<std::string> names = keys(rotations_);
    names.emplace_back("none");
    return unknown("rotation", name, where, names);
  }
  Result<Rotation> rotation = make_rotation(found->second, size);
  if (!rotation) rotation.error().where = where;
  return rotation;
}

const Arch* Registry::arch(const std::string& name) const {
  const auto found = archs_.find(name);
  return found == archs_.end() ? nullptr : &found->second;
}

Result<const Arch*> Registry::require_arch(const std::string& name, const Where& where) const {
  if (const Arch* found = arch(name)) return found;
  return unknown("arch", name, where, keys(archs_));
}

Result<const Hook*> Registry::hook(const std::string& name, const Where& where) const {
  const auto found = hooks_.find(name);
  if (found != hooks_.end()) return &found->second;
  return unknown("hook", name, where, keys(hooks_));
}

Result<const Calibration*> Registry::calibration(const std::string& name, const Where& where) const {
  const auto found = calibrations_.find(name);
  if (found != calibrations_.end()) return &found->second;
  return unknown("calibration", name, where, keys(calibrations_));
}

Result<const Policy*> Registry::policy(const std::string& name, const Where& where) const {
  const auto found = policies_.find(name);
  if (found != policies_.end()) return &found->second;
  return unknown("policy", name, where, keys(policies_));
}

const std::vector<TuningRow>& Registry::tuning(const std::string& arch) const {
  static const std::vector<TuningRow> none;
  const auto found = tuning_.find(arch);
  return found == tuning_.end() ? none : found->second;
}

const Fragment* Registry::fragment(const std::string& name) const {
  const auto found = fragments_.find(name);
  return found == fragments_.end() ? nullptr : &found->second;
}

}  // namespace kvjit
