// The verbs build and warm, which compile kernels through the cache. build prints what each kernel of a program needs;
// warm fills the cache for a deploy. Neither needs a GPU, but without one they must be told an arch.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>

#include "generator/program.hpp"
#include "tools/cli/ahead.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/progress.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct BuildArgs {
  KernelsOf kernels;
  std::string out_dir;                                                   // -o
  bool is_ptx = false;                                                   // --ptx
  bool is_cubin = false;                                                 // --cubin
  bool has_no_cache = false;                                             // --no-cache
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());  // -j
};

// The kernels of the programs of all specs, each for all of its archs.
Result<std::vector<Source>> program_sources(const Cli& cli, const KernelsOf& kernels) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(kernels.specs));
  std::vector<Source> sources;
  for (const Spec& spec : specs) {
    KV_TRY(archs, cli.archs(spec, registry, kernels.archs, is_for_gpu(cli)));
    for (const std::string& arch : archs) {
      KV_TRY(problem, resolve(spec, registry, arch));
      KV_TRY(program, make_program(problem, registry));
      for_each_kernel(program, [&](Role, Source& source) { sources.push_back(std::move(source)); });
    }
  }
  return sources;
}

// Prints the failures. Returns the exit code of the first one, or 0.
int print_failures(const Cli& cli, const std::vector<KernelAhead>& kernels) {
  int exit_code = 0;
  for (const KernelAhead& kernel : kernels) {
    if (kernel.entry || kernel.entry.error().code == Code::cancelled) continue;
    cli.print_error(fmt::format("{}: {}", kernel.source->name, render(kernel.entry.error())));
    if (exit_code == 0) exit_code = static_cast<int>(kernel.entry.error().code);
  }
  return exit_code;
}

const std::vector<std::string> kHeadings = {"kernel", "arch", "from", "ms", "registers", "spills", "stack", "bytes"};

// The cells of a kernel that was compiled or found. Only a cubin has registers, spills and stack. A bundle does not
// record the time of a compile.
std::vector<std::string> cells(const KernelAhead& kernel) {
  const Artefact& a = kernel.entry->artefact;
  const auto assembled = [&](int number) {
    return a.kind == ArtefactKind::cubin ? std::to_string(number) : std::string("-");
  };
  return {kernel.source->name,      kernel.source->arch,
          to_string(kernel.origin), a.compile_ms > 0 ? fmt::format("{:.0f}", a.compile_ms) : "-",
          assembled(a.registers),   assembled(a.spill_store_bytes + a.spill_load_bytes),
          assembled(a.stack_bytes), std::to_string(a.bytes.size())};
}

Json kernel_json(const KernelAhead& kernel) {
  Json json = {{"name", kernel.source->name}, {"arch", kernel.source->arch}};
  if (!kernel.entry) {
    json["error"] = to_json(kernel.entry.error());
    return json;
  }
  const Artefact& a = kernel.entry->artefact;
  json["from"] = to_string(kernel.origin);
  json["compiler"] = kernel.entry->compiler;
  if (a.compile_ms > 0) json["compile_ms"] = a.compile_ms;
  if (a.kind == ArtefactKind::cubin)
    json.update({{"registers", a.registers},
                 {"spill_bytes", a.spill_store_bytes + a.spill_load_bytes},
                 {"stack_bytes", a.stack_bytes}});
  json["bytes"] = a.bytes.size();
  return json;
}

Result<int> build(const Cli& cli, const BuildArgs& args) {
  if (args.is_ptx && args.is_cubin) return fail(Code::usage, "--ptx and --cubin exclude each other");
  if (args.is_ptx && !is_for_gpu(cli)) return fail(Code::usage, "--ptx: the CPU back-end has none");
  const ArtefactKind kind = !is_for_gpu(cli) ? ArtefactKind::host_object
                            : args.is_ptx    ? ArtefactKind::ptx
                                             : ArtefactKind::cubin;
  Options options = cli.options;
  if (args.has_no_cache) {
    options.cache_dir = "off";
    options.bundles.clear();
    options.remote.clear();
  }
  KV_TRY(sources, program_sources(cli, args.kernels));
  KV_TRY(store, open_store_ahead(cli, options, kind));
  if (!args.out_dir.empty()) KV_CHECK(make_folder(args.out_dir));
  std::vector<int> widths = {-6, -8, -8, 5, 9, 6, 5, 7};
  for (const Source& source : sources) widths[0] = std::min(widths[0], -static_cast<int>(source.name.size()));
  if (cli.shows_rows()) print_above(stdout, fixed_row(kHeadings, widths));
  const auto kernels = compile_ahead(cli, *store, sources, args.threads, false, [&](const KernelAhead& kernel) {
    if (cli.shows_rows() && kernel.entry) print_above(stdout, fixed_row(cells(kernel), widths));
  });

  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  const int exit_code = print_failures(cli, kernels);
  for (const KernelAhead& kernel : kernels) {
    if (!kernel.entry && kernel.entry.error().code == Code::cancelled) continue;
    Json result = kernel_json(kernel);
    if (kernel.entry) rows.push_back(cells(kernel));
    if (kernel.entry && !args.out_dir.empty()) {
      const char* const extension = kind == ArtefactKind::cubin ? ".cubin" : args.is_ptx ? ".ptx" : ".so";
      const std::string file = (fs::path(args.out_dir) / (kernel.source->name + extension)).string();
      KV_CHECK(write_bytes(file, kernel.entry->artefact.bytes));
      result["file"] = file;
    }
    results.push_back(result);
  }
  cli.print({{"kernels", results}}, cli.shows_rows() ? "" : table_text(kHeadings, rows));
  // The same line goes on: what was compiled is in the cache.
  if (done_of(kernels) < kernels.size()) return cli.interrupted(done_of(kernels), kernels.size(), {});
  return exit_code;
}

Result<int> warm_cache(const Cli& cli, const BuildArgs& args) {
  KV_TRY(folder, open_cache_folder(cli.options));
  if (folder.empty()) return fail(Code::usage, "the cache is off, so there is no folder to fill");
  KV_TRY(sources, sources_of(cli, args.kernels));
  KV_TRY(store, open_store_ahead(cli, cli.options, is_for_gpu(cli) ? ArtefactKind::cubin : ArtefactKind::host_object));
  const auto kernels = compile_ahead(cli, *store, sources, args.threads, false);

  int exit_code = print_failures(cli, kernels);
  const std::uint64_t unwritten = store->counters().write_failures;
  if (unwritten && exit_code == 0) exit_code = static_cast<int>(Code::environment);
  Json counts = Json::object(), errors = Json::array();
  for (const Origin origin : {Origin::bundle, Origin::disk, Origin::remote, Origin::compiled})
    counts[to_string(origin)] = std::count_if(kernels.begin(), kernels.end(), [&](const KernelAhead& kernel) {
      return kernel.entry && kernel.origin == origin;
    });
  for (const KernelAhead& kernel : kernels)
    if (!kernel.entry && kernel.entry.error().code != Code::cancelled)
      errors.push_back({{"name", kernel.source->name}, {"error", to_json(kernel.entry.error())}});
  cli.print(
      {{"folder", folder}, {"kernels", kernels.size()}, {"from", counts}, {"unwritten", unwritten}, {"errors", errors}},
      fmt::format("{}: {} kernels: {}{}\n", folder, kernels.size(), counted_text(kernels),
                  unwritten ? fmt::format(", {} could not be written", unwritten) : ""));
  if (done_of(kernels) < kernels.size()) return cli.interrupted(done_of(kernels), kernels.size(), {});
  return exit_code;
}

}  // namespace

void add_build_verbs(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<BuildArgs>();
  const auto verb = [&](const char* name, const char* help, auto run) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_option("SPEC", args->kernels.specs, "spec files")->type_name("SPEC.toml")->required()->expected(1, -1);
    sub->add_option("--arch", args->kernels.archs, "GPU architectures, instead of the spec's")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("A,B");
    whole_number(sub->add_option("-j", args->threads, "compile on N threads"), "N", 1, kMostThreads)
        ->default_str(kAllProcessors);
    sub->callback([&cli, args, run] { cli.action = [&cli, args, run] { return run(cli, *args); }; });
    return sub;
  };
  CLI::App* compile = verb("build", "compile every kernel through the cache, and print what each needs", build);
  compile->add_flag("--cubin", args->is_cubin, "machine code (the default)");
  compile->add_flag("--ptx", args->is_ptx, "PTX instead of machine code");
  CLI::Option* no_cache =
      compile->add_flag("--no-cache", args->has_no_cache, "compile anew: use no cache folder, no bundle and no server");
  for (const char* name : {"--cache-dir", "--bundle"}) no_cache->excludes(app.get_option(name));
  compile->add_option("-o,--output", args->out_dir, "folder to write to")->type_name("DIR");
  verb("warm", "fill the cache with every kernel that these specs may ask for", warm_cache)
      ->add_option("--operations", args->kernels.operations,
                   "also kernels that only some calls need: of slots,rope,shift,copy")
      ->type_name("LIST");
}

}  // namespace kvjit
