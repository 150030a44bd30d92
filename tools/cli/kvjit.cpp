// main of the command `kvjit`: it defines the global flags, chooses the verb and prints errors. Exit codes are the
// values of Code (generator/base/result.hpp).
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "tools/cli/cli.hpp"

int main(int argc, char** argv) {
  using namespace kvjit;
  Cli cli;
  cli.options = Options::from_environment();
  cli.options.must_open_bundles = true;
  CLI::App app("kvjit: attention kernels for quantized KV caches, generated from a TOML spec", "kvjit");
  app.set_version_flag("--version", "kvjit " KVJIT_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", cli.is_json, "print one JSON document instead of text");
  app.add_flag("--quiet", cli.is_quiet, "say nothing on stderr but errors");
  app.add_option("--specs", cli.spec_dirs,
                 "folder of formats/, rotations/, archs/, calibrations/, hooks/, policies/ and tuning/ to add to the "
                 "built-in ones "
                 "(repeatable)")
      ->type_name("DIR")
      ->take_all()
      ->allow_extra_args(false);
  const std::map<std::string, DeviceKind> devices = {
      {"auto", DeviceKind::automatic}, {"gpu", DeviceKind::gpu}, {"cpu", DeviceKind::cpu}};
  app.add_option("--device", cli.options.device, "auto (the GPU if there is one), gpu or cpu")
      ->transform(CLI::CheckedTransformer(devices))
      ->type_name("auto|gpu|cpu");
  app.add_option("--cache-dir", cli.options.cache_dir, "folder of compiled kernels; \"off\": memory only")
      ->type_name("DIR");
  app.add_option("--bundle", cli.options.bundles, "prebuilt kernels, searched first (repeatable; also KVJIT_BUNDLES)")
      ->type_name("FILE.kvb")
      ->allow_extra_args(false);
  add_spec_verbs(app, cli);
  add_build_verbs(app, cli);
  add_run_verb(app, cli);
  add_verify_verb(app, cli);
  add_bench_verb(app, cli);
  add_pack_verb(app, cli);
  add_codec_verbs(app, cli);
  add_formats_verb(app, cli);
  add_quality_verb(app, cli);
  add_weights_verb(app, cli);
  add_cache_verbs(app, cli);
  add_doctor_verb(app, cli);
  for (CLI::App* verb : app.get_subcommands({})) verb->fallthrough();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(Code::usage);
  }
  const Result<int> outcome = cli.action();
  if (outcome) {
    if (std::fflush(stdout) != 0) return static_cast<int>(Code::environment);
    return *outcome;
  }
  if (cli.is_json) cli.print({{"error", to_json(outcome.error())}}, "");
  fmt::print(stderr, "{}", render(outcome.error()));
  return static_cast<int>(outcome.error().code);
}
