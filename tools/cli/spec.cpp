// The verbs that read specs and write text: check, emit and explain. None of them needs a GPU or a compiler.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "generator/program.hpp"
#include "tools/cli/cli.hpp"
#include "tools/io/files.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"
#include "tools/pack/pack.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct SpecArgs {
  std::vector<std::string> specs;  // files
  std::vector<std::string> archs;  // --arch; empty: the spec's
  std::string out_dir;             // -o
  std::string role;                // emit --kernel; empty: all kernels
  std::string operations;          // emit --operations
  bool has_key = false;            // explain --key
};

Result<ProgramSource> program_of(const Spec& spec, const Registry& registry, const std::string& arch) {
  KV_TRY(problem, resolve(spec, registry, arch));
  return make_program(problem, registry);
}

// The programs of all specs, each for all of its archs.
Result<std::vector<ProgramSource>> programs_of(const Cli& cli, const SpecArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  std::vector<ProgramSource> programs;
  for (const Spec& spec : specs) {
    KV_TRY(archs, cli.archs(spec, registry, args.archs, false));
    for (const std::string& arch : archs) {
      KV_TRY(program, program_of(spec, registry, arch));
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

// The kernels of --operations on the caches of the specs. Programs do not carry them; calls generate them on request.
Result<std::vector<Source>> operations_of(const Cli& cli, const SpecArgs& args) {
  KV_TRY(registry, cli.registry());
  KV_TRY(specs, cli.specs(args.specs));
  KV_TRY(operations, read_operations(args.operations));
  std::vector<SpecOnArchs> all;
  for (const Spec& spec : specs) {
    KV_TRY(archs, cli.archs(spec, registry, args.archs, false));
    all.push_back({spec, archs});
  }
  return operations_to_pack(all, registry, operations);
}

Result<int> check(const Cli& cli, const SpecArgs& args) {
  KV_TRY(registry, cli.registry());
  Json results = Json::array();
  std::string text;
  int exit_code = 0;
  const auto refuse = [&](const std::string& file, const std::string& label, const Error& error) {
    results.push_back({{"spec", file}, {"combination", label}, {"is_ok", false}, {"error", to_json(error)}});
    cli.print_error((label.empty() ? "" : fmt::format("{} with {}:\n", file, label)) + render(error));
    if (exit_code == 0) exit_code = static_cast<int>(error.code);
  };
  for (const std::string& file : args.specs) {
    const auto specs = cli.specs({file});
    if (!specs) {
      refuse(file, "", specs.error());
      continue;
    }
    for (const Spec& spec : *specs) {
      KV_TRY(archs, cli.archs(spec, registry, args.archs, false));
      for (const std::string& arch : archs) {
        const auto program = program_of(spec, registry, arch);
        if (!program) {
          refuse(file, spec.label, program.error());
          continue;
        }
        text += fmt::format("ok {} {}{}{}\n", program->id, arch, spec.layer_label.empty() ? "" : " ", spec.layer_label);
        results.push_back(
            {{"spec", file}, {"combination", spec.label}, {"is_ok", true}, {"id", program->id}, {"arch", arch}});
      }
    }
  }
  cli.print(results, for_terminal(stdout, text));
  return exit_code;
}

Result<int> emit_text(const Cli& cli, const SpecArgs& args) {
  KV_TRY(programs, programs_of(cli, args));
  KV_TRY(operations, operations_of(cli, args));
  std::vector<const Source*> sources;
  std::vector<std::string> roles;
  std::set<std::string> names;  // each kernel once: K and V of one format share their codec kernels
  for (const ProgramSource& program : programs)
    for_each_kernel(program, [&](Role role, const Source& source) {
      if (roles.end() == std::find(roles.begin(), roles.end(), to_string(role))) roles.push_back(to_string(role));
      if ((args.role.empty() || args.role == to_string(role)) && names.insert(source.name).second)
        sources.push_back(&source);
    });
  if (args.role.empty())
    for (const Source& source : operations)
      if (names.insert(source.name).second) sources.push_back(&source);
  if (sources.empty())
    return fail(Code::usage, fmt::format("--kernel {}: this program has no such kernel", args.role), {},
                {fmt::format("it has {}", fmt::join(roles, ", "))});
  if (args.out_dir.empty() && sources.size() > 1 && !cli.is_json)
    return fail(
        Code::usage, fmt::format("{} kernels do not fit one stream", sources.size()), {},
        {"-o DIR writes one file a kernel", fmt::format("--kernel ROLE prints one: {}", fmt::join(roles, ", "))});
  Json results = Json::array();
  std::string text;
  if (!args.out_dir.empty()) KV_CHECK(make_folder(args.out_dir));
  for (const Source* source : sources) {
    Json result = {{"name", source->name},
                   {"entry", source->entry},
                   {"arch", source->arch},
                   {"threads", source->threads},
                   {"shared_bytes", source->shared_bytes}};
    if (args.out_dir.empty()) {
      text += source->text.str();
      result["text"] = source->text.str();
    } else {
      const std::string file = (fs::path(args.out_dir) / (source->name + ".cu")).string();
      KV_CHECK(write_text(file, source->text.str()));
      text += file + "\n";
      result["file"] = file;
    }
    results.push_back(result);
  }
  cli.print(results, text);
  return 0;
}

Result<int> explain_specs(const Cli& cli, const SpecArgs& args) {
  if (args.has_key) {
    KV_TRY(programs, programs_of(cli, args));
    return explain_keys(cli, programs);
  }
  KV_TRY(programs, programs_of(cli, args));
  Json results = Json::array();
  std::string text;
  for (const ProgramSource& program : programs) {
    text += (text.empty() ? "" : "\n") + explain(program);
    Json decisions = Json::array();
    for (const Decision& d : program.decisions)
      decisions.push_back({{"what", d.what}, {"choice", d.choice}, {"why", d.why}, {"rejected", d.rejected}});
    for (const ProgramSource& bucket : program.buckets)
      for (const Decision& d : bucket.decisions)
        decisions.push_back({{"program", bucket.id},
                             {"what", d.what},
                             {"choice", d.choice},
                             {"why", d.why},
                             {"rejected", d.rejected}});
    Json kernels = Json::array();
    for_each_kernel(program, [&](Role role, const Source& source) {
      kernels.push_back({{"role", to_string(role)},
                         {"name", source.name},
                         {"threads", source.threads},
                         {"shared_bytes", source.shared_bytes}});
    });
    results.push_back({{"id", program.id},
                       {"title", program.title},
                       {"arch", program.arch},
                       {"decisions", decisions},
                       {"kernels", kernels}});
  }
  cli.print(results, text);
  return 0;
}

}  // namespace

void add_spec_verbs(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<SpecArgs>();
  const auto verb = [&](const char* name, const char* help, auto run, bool many) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_option("SPEC", args->specs, many ? "spec files" : "spec file")
        ->type_name("SPEC.toml")
        ->required()
        ->expected(1, many ? -1 : 1);
    sub->add_option("--arch", args->archs, "GPU architectures, instead of the spec's")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("A,B");
    sub->callback([&cli, args, run] { cli.action = [&cli, args, run] { return run(cli, *args); }; });
    return sub;
  };
  verb("check", "parse, resolve and plan every spec of the matrix", check, true);
  CLI::App* emit = verb("emit", "write the CUDA text, one file a kernel", emit_text, false);
  emit->add_option("-o,--output", args->out_dir, "folder to write to")->type_name("DIR");
  emit->add_option("--kernel", args->role, "only this kernel: decode, merge, quantize_k ...")->type_name("ROLE");
  emit->add_option("--operations", args->operations, "also kernels that only some calls need: of slots,rope,shift,copy")
      ->type_name("LIST");
  verb("explain", "what was decided, and why", explain_specs, false)
      ->add_flag("--key", args->has_key, "each kernel's key, where it would come from, and why a miss is a miss");
}

}  // namespace kvjit
