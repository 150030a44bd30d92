// Opens specs, archs and devices for verbs, and prints their output: see cli.hpp.
// SPDX-License-Identifier: MIT
#include "tools/cli/cli.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "generator/base/display.hpp"
#include "generator/program.hpp"
#include "generator/resolve/layers.hpp"
#include "runtime/api/specs_folder.hpp"
#include "runtime/base/arch_name.hpp"
#include "runtime/base/input_file.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/terminal.hpp"

namespace kvjit {

void Cli::talk(const std::string& line) const {
  if (!is_quiet) print_error(fmt::format("kvjit: {}\n", displayed_lines(line, 8 * kShownColumns)));
}

void Cli::print_error(const std::string& text) const { print_above(stderr, for_terminal(stderr, text)); }

void Cli::print(const Json& data, const std::string& text) const {
  // File names need not be UTF-8, JSON must be.
  const std::string out = is_json ? data.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text;
  std::fwrite(out.data(), 1, out.size(), stdout);
}

Result<void> Cli::close_output() const {
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (is_written) return {};
  const std::string why = errno != 0 ? fmt::format(": {}", std::strerror(errno)) : "";
  return fail(Code::environment, "stdout cannot be written" + why);
}

bool Cli::shows_progress() const { return !is_quiet && is_terminal(stderr); }

bool Cli::shows_rows() const { return !is_json && is_terminal(stdout); }

int Cli::interrupted(std::size_t done, std::size_t count,
                     const std::vector<std::pair<std::string, std::string>>& flags) const {
  const Error error{Code::cancelled,
                    fmt::format("interrupted: {} of {} done", done, count),
                    {},
                    {"go on with: " + line_with(words, flags)}};
  print_error(render(error));
  return static_cast<int>(error.code);
}

Result<Registry> Cli::registry() const {
  FileSet files = embedded_files();
  FileNames shown_as;
  for (const std::string& folder : spec_dirs) KV_CHECK(add_specs_folder(files, shown_as, folder));
  return Registry::load(files, shown_as);
}

Result<std::vector<Spec>> Cli::specs(const std::vector<std::string>& files) const {
  KV_TRY(registered, registry());
  std::vector<Spec> all;
  for (const std::string& file : files) {
    KV_TRY(text, read_text(file));
    KV_TRY(parsed, parse_all(text, file, registered));
    all.insert(all.end(), parsed.begin(), parsed.end());
  }
  return all;
}

Result<Spec> Cli::one_spec(const std::string& file) const {
  KV_TRY(all, specs({file}));
  if (all.size() == 1) return all[0];
  return fail(Code::usage,
              fmt::format("{}: its [matrix] and [layers] give {} specs, this verb takes one", file, all.size()), {},
              {"`kvjit verify`, `check` and `build` take all of them"});
}

Result<std::shared_ptr<Context>> Cli::context() const {
  if (context_) return context_;
  Options logged = options;
  logged.log = [this](const std::string& line) { talk(line); };
  KV_TRY(opened, Context::open(logged));
  return context_ = opened;
}

Result<void> Cli::check_arch(const Registry& registry) const {
  if (!options.arch.empty()) KV_CHECK(registry.require_arch(options.arch, {"--arch"}));
  return {};
}

Result<std::vector<std::string>> Cli::archs(const Spec& spec, const Registry& registry,
                                            const std::vector<std::string>& requested, bool needs_gpu) const {
  for (const std::string& name : requested) KV_CHECK(registry.require_arch(name, {"--arch"}));
  if (!requested.empty()) return requested;
  if (!spec.archs.empty()) return spec.archs;
  if (!arch_context_) {
    Options silent = options;
    silent.log = {};
    KV_TRY(opened, Context::open(silent));
    arch_context_ = std::move(opened);
  }
  const DeviceInfo& info = arch_context_->backend()->info();
  if (!info.is_gpu && needs_gpu)
    return fail(Code::environment,
                fmt::format("{}: names no arch and this machine has no GPU to take it from", spec.file), {},
                {"add --arch sm_90a (or a list), or [target] arch to the spec",
                 "if there is a GPU, `kvjit doctor` says why it is not found"});
  if (!info.is_gpu && !std::exchange(has_said_arch_, true))
    talk(fmt::format("{}: no arch named and no GPU: {} is assumed (--arch chooses)", spec.file, info.arch));
  return std::vector<std::string>{info.arch};
}

Result<Ready> make_ready(const Spec& spec, const Registry& registry, const std::shared_ptr<Context>& context) {
  const DeviceInfo& info = context->backend()->info();
  std::string arch = info.arch;
  // The CPU back-end runs the text of any arch, so it takes the spec's first one.
  const bool is_listed =
      !context->options().arch.empty() || spec.archs.empty() || std::count(spec.archs.begin(), spec.archs.end(), arch);
  if (!is_listed && info.is_gpu) {
    std::vector<std::string> notes = {fmt::format("add \"{}\" to [target] arch, or leave it out", arch)};
    if (const std::string way = way_to_run(spec.archs, info); !way.empty()) notes.push_back(way);
    notes.emplace_back("--device cpu runs it here");
    return fail(Code::unsupported,
                fmt::format("this spec is for {}, the device is {} ({})", fmt::join(spec.archs, ", "), arch, info.name),
                spec.where("target.arch"), std::move(notes));
  }
  if (!is_listed) arch = spec.archs[0];
  Ready ready;
  KV_TRY(problem, resolve(spec, registry, arch));
  if (info.is_gpu) problem.device = info.name;
  KV_TRY(source, make_program(problem, registry));
  KV_TRY(program, Program::create(context, source));
  return Ready{problem, program};
}

std::string shown_device(const Context& context) {
  const DeviceInfo& info = context.backend()->info();
  return context.options().arch.empty() ? info.name : device_text(info, info.arch);
}

Json text_json(const DeviceInfo& device, const std::string& text_arch) {
  Json json = {{"arch", text_arch}};
  if (device.runs_ptx) json["as_ptx_on"] = without_suffix(device.own_arch);
  return json;
}

Result<RotationFlag> rotation_flag(const Registry& registry, const std::string& text) {
  const std::size_t colon = text.find(':');
  int group = 0;
  const char* end = text.data() + text.size();
  const bool is_number = colon != std::string::npos &&
                         std::from_chars(text.data() + colon + 1, end, group).ptr == end && group > 0 && group <= 4096;
  if (!is_number)
    return fail(Code::usage, fmt::format("--rotation {}: expected a name and the channels of a group", text), {},
                {"for example --rotation wht_signed:128"});
  KV_TRY(rotation, registry.rotation(text.substr(0, colon), group, {}));
  if (rotation.has_head_signs())
    return fail(Code::unsupported, fmt::format("--rotation {}: the groups of a head have different signs", text), {},
                {"rotations with the same signs for each group work"});
  return RotationFlag{rotation, group};
}

Json to_json(const Error& error) {
  Json json = {{"exit", static_cast<int>(error.code)}, {"message", displayed_lines(error.message, 8 * kShownColumns)}};
  if (!error.where.file.empty())
    json["where"] = {{"file", error.where.file}, {"line", error.where.line}, {"column", error.where.column}};
  json["notes"] = error.notes;
  return json;
}

}  // namespace kvjit
