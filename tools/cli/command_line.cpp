// The command line as a whole: the global flags, the verbs, and parse_command_line, which chooses an action and runs
// nothing.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>

#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"

namespace kvjit {
namespace {

void add_global_flags(CLI::App& app, Cli& cli) {
  app.set_version_flag("-V,--version", "", "print the version");
  app.add_flag("--json", cli.is_json, "print one JSON document instead of text");
  app.add_flag("--quiet", cli.is_quiet, "say nothing on stderr but errors");
  app.add_option("--specs", cli.spec_dirs,
                 "folder of formats/, rotations/, archs/, calibrations/, hooks/, policies/ and tuning/ to add to the "
                 "built-in ones (repeatable)")
      ->type_name("DIR")
      ->take_all()
      ->allow_extra_args(false);
  const auto choose = [&cli](const std::string& name) {
    cli.options.device = name == "gpu" ? DeviceKind::gpu : name == "cpu" ? DeviceKind::cpu : DeviceKind::automatic;
  };
  one_of(app.add_option_function<std::string>("--device", choose, "where kernels run; auto: the GPU, if there is one"),
         {"auto", "gpu", "cpu"})
      ->default_str("auto");
  app.add_option("--cache-dir", cli.options.cache_dir, "folder of compiled kernels; \"off\": memory only")
      ->type_name("DIR");
  app.add_option("--bundle", cli.options.bundles, "prebuilt kernels, searched first (repeatable; also KVJIT_BUNDLES)")
      ->type_name("FILE.kvb")
      ->allow_extra_args(false);
}

void add_verbs(CLI::App& app, Cli& cli) {
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
}

// A verb takes the global flags too, and no flag takes a value with `=` that it does not use.
void apply_rules(CLI::App& app) {
  app.fallthrough();
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
  for (CLI::App* verb : app.get_subcommands({})) apply_rules(*verb);
}

Result<int> print_version(const Cli& cli) {
  cli.print({{"version", KVJIT_VERSION}}, "kvjit " KVJIT_VERSION "\n");
  return 0;
}

Result<int> print_help(const Cli& cli, const std::string& text) {
  cli.print({{"help", text}}, text);
  return 0;
}

// The help of the verb that `words` name, such as {"cache", "gc"}; without words, that of the command.
Result<std::string> help_of(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* verb = &app;
  for (const std::string& word : words) {
    const auto named = verb->get_subcommands([&word](const CLI::App* below) { return below->get_name() == word; });
    if (named.empty()) return tl::unexpected(unknown_verb(*verb, word));
    verb = named[0];
  }
  return verb->help();
}

// The verbs that print about the command itself.
void add_own_verbs(CLI::App& app, Cli& cli, const std::shared_ptr<std::vector<std::string>>& topic) {
  CLI::App* help = app.add_subcommand("help", "the help of the command, or of a verb");
  help->add_option("VERB", *topic, "for example verify, or cache gc");
  CLI::App* version = app.add_subcommand("version", "the version");
  version->callback([&cli] { cli.action = [&cli] { return print_version(cli); }; });
}

}  // namespace

Result<void> parse_command_line(const std::vector<std::string>& args, Cli& cli) {
  CLI::App app("kvjit: attention kernels for quantized KV caches, generated from a TOML spec", "kvjit");
  const auto topic = std::make_shared<std::vector<std::string>>();
  app.require_subcommand(1);
  add_global_flags(app, cli);
  add_verbs(app, cli);
  add_own_verbs(app, cli, topic);
  apply_rules(app);
  const auto show_help = [&](const std::vector<std::string>& words) -> Result<void> {
    KV_TRY(text, help_of(app, words));
    cli.action = [&cli, text = text] { return print_help(cli, text); };
    return {};
  };
  // The parser takes its words last first, and it sets flags only after all of them are known.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  cli.is_json = std::count(args.begin(), std::find(args.begin(), args.end(), "--"), "--json") > 0;
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const std::string verb = chosen_verb(app);
    const std::size_t blank = verb.find(' ');
    std::vector<std::string> words;
    if (!verb.empty()) words.push_back(verb.substr(0, blank));
    if (blank != std::string::npos) words.push_back(verb.substr(blank + 1));
    return show_help(words);
  } catch (const CLI::CallForVersion&) {
    cli.action = [&cli] { return print_version(cli); };
    return {};
  } catch (const CLI::ParseError& failure) {
    return tl::unexpected(usage_error(app, failure));
  }
  return app.got_subcommand("help") ? show_help(*topic) : Result<void>();
}

}  // namespace kvjit
