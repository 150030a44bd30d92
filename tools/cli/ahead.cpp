// Collects kernels of specs and compiles them ahead of use: see ahead.hpp.
// SPDX-License-Identifier: MIT
#include "tools/cli/ahead.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/io/progress.hpp"
#include "tools/io/terminal.hpp"

namespace kvjit {

bool is_for_gpu(const Cli& cli) { return cli.options.device != DeviceKind::cpu; }

Result<std::vector<Source>> sources_of(const Cli& cli, const KernelsOf& kernels) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(kernels.specs));
  KV_TRY(operations, read_operations(kernels.operations));
  std::vector<Source> sources;
  std::vector<SpecOnArchs> all;
  for (const Spec& spec : specs) {
    KV_TRY(archs, cli.archs(spec, registry, kernels.archs, is_for_gpu(cli)));
    for (const std::string& arch : archs) {
      KV_TRY(more, sources_to_pack(spec, registry, arch, is_for_gpu(cli)));
      std::move(more.begin(), more.end(), std::back_inserter(sources));
    }
    all.push_back({spec, archs});
  }
  KV_TRY(more, operations_to_pack(all, registry, operations));
  std::move(more.begin(), more.end(), std::back_inserter(sources));
  return sources;
}

Result<std::unique_ptr<Store>> open_store_ahead(const Cli& cli, Options options, ArtefactKind kind) {
  options.log = [&cli](const std::string& line) {
    if (line.rfind("compiling ", 0) != 0) cli.talk(line);
  };
  Toolchain toolchain = is_for_gpu(cli) ? nvrtc_toolchain(options, kind) : host_toolchain(options);
  toolchain.reads_ptx = false;  // machine code is asked for, so PTX of a bundle does not serve
  return Store::open(options, std::move(toolchain));
}

std::vector<KernelAhead> compile_ahead(const Cli& cli, Store& store, const std::vector<Source>& sources,
                                       unsigned threads, bool stops_at_failure,
                                       const std::function<void(const KernelAhead&)>& show) {
  const Interrupts interrupts;
  Progress progress(sources.size(), cli.shows_progress());
  const auto report = [&](const KernelAhead& kernel, const AheadProgress& now) {
    if (show) show(kernel);
    progress.show(now.done, now.count, kernel.source->name);
  };
  return compile_ahead(store, sources, {threads, stops_at_failure, Interrupts::is_requested, report});
}

std::size_t done_of(const std::vector<KernelAhead>& kernels) {
  return static_cast<std::size_t>(std::count_if(kernels.begin(), kernels.end(), [](const KernelAhead& kernel) {
    return kernel.entry || kernel.entry.error().code != Code::cancelled;
  }));
}

std::string counted_text(const std::vector<KernelAhead>& kernels) {
  constexpr std::pair<Origin, const char*> kPlaces[] = {{Origin::bundle, "from bundles"},
                                                        {Origin::disk, "from the cache"},
                                                        {Origin::remote, "from the server"},
                                                        {Origin::compiled, "compiled"}};
  std::vector<std::string> parts;
  const auto add = [&](const char* what, auto counts) {
    const auto count = std::count_if(kernels.begin(), kernels.end(), counts);
    if (count) parts.push_back(fmt::format("{} {}", count, what));
  };
  for (const auto& [origin, what] : kPlaces)
    add(what, [&, origin = origin](const KernelAhead& kernel) { return kernel.entry && kernel.origin == origin; });
  add("failed",
      [](const KernelAhead& kernel) { return !kernel.entry && kernel.entry.error().code != Code::cancelled; });
  add("left", [](const KernelAhead& kernel) { return !kernel.entry && kernel.entry.error().code == Code::cancelled; });
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace kvjit
