// Collects and writes kernels: see pack.hpp.
// SPDX-License-Identifier: MIT
#include "tools/pack/pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "generator/program.hpp"
#include "generator/resolve/problem.hpp"
#include "runtime/store/manifest.hpp"
#include "tools/io/files.hpp"

namespace kvjit {
namespace {

// A device name that no row of specs/tuning has. It stands for every device without measured shapes.
constexpr const char* kUnknownDevice = "a device that nobody measured";

}  // namespace

Result<std::vector<Source>> sources_to_pack(const Spec& spec, const Registry& registry, const std::string& arch,
                                            bool is_for_gpu) {
  std::set<std::string> devices = {""};
  if (is_for_gpu) {
    devices.insert(kUnknownDevice);
    for (const TuningRow& row : registry.tuning(arch)) devices.insert(row.device);
  }
  std::vector<Source> sources;
  std::set<std::string> texts;
  for (const std::string& device : devices) {
    KV_TRY(problem, resolve(spec, registry, arch));
    problem.device = device;
    KV_TRY(program, make_program(problem, registry));
    for_each_kernel(program, [&](Role, Source& source) {
      if (texts.insert(source.text.str()).second) sources.push_back(std::move(source));
    });
  }
  return sources;
}

Result<std::vector<Source>> operations_to_pack(const std::vector<SpecOnArchs>& specs, const Registry& registry,
                                               const OperationSet& operations) {
  std::map<std::string, std::vector<Problem>> by_arch;
  for (const auto& [spec, archs] : specs)
    for (const std::string& arch : archs) {
      KV_TRY(problem, resolve(spec, registry, arch));
      by_arch[arch].push_back(std::move(problem));
    }
  std::vector<Source> sources;
  for (const auto& [arch, problems] : by_arch) {
    KV_TRY(more, operation_kernels(problems, operations, registry));
    std::move(more.begin(), more.end(), std::back_inserter(sources));
  }
  return sources;
}

Result<std::vector<CacheEntry>> entries_of(std::vector<KernelAhead> kernels) {
  std::vector<CacheEntry> entries;
  for (KernelAhead& kernel : kernels) {
    // Kernels that the failure of another one cancelled say nothing about the cause.
    if (!kernel.entry && kernel.entry.error().code == Code::cancelled) continue;
    if (!kernel.entry) return tl::unexpected(kernel.entry.error());
    entries.push_back(std::move(*kernel.entry));
    entries.back().key = std::move(kernel.request);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.key.hex < b.key.hex; });
  return entries;
}

Result<void> write_folder(const std::string& folder, const std::vector<CacheEntry>& entries) {
  namespace fs = std::filesystem;
  KV_CHECK(make_folder(folder));
  for (const CacheEntry& entry : entries)
    KV_CHECK(write_bytes((fs::path(folder) / file_name(entry)).string(), entry.artefact.bytes));
  return write_text((fs::path(folder) / "manifest.json").string(), write_manifest(entries));
}

Result<std::string> c_header_text(const std::string& name, std::span<const std::uint8_t> bytes) {
  const bool is_name =
      !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  if (!is_name)
    return fail(Code::usage, fmt::format("'{}' cannot be a name in C: it is made of the file's", name), {},
                {"for example -o my_kernels.h"});
  constexpr std::size_t kPerLine = 24;
  std::string text = fmt::format(
      "/* Kernels packed by kvjit {}: for kvjit_context_options.bundle_bytes and bundle_sizes. */\n#ifndef {}_H\n"
      "#define {}_H\n#include <stddef.h>\n\nstatic const unsigned char {}[{}] = {{",
      KVJIT_VERSION, name, name, name, bytes.size());
  text.reserve(text.size() + bytes.size() * 4 + bytes.size() / kPerLine + 200);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}{}", i ? "," : "", i % kPerLine == 0 ? "\n" : "", bytes[i]);
  text += fmt::format("}};\nstatic const size_t {}_size = sizeof {};\n\n#endif\n", name, name);
  return text;
}

}  // namespace kvjit
