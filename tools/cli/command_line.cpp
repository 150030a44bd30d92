// The command line as a whole: the global flags, the verbs, and parse_command_line, which chooses an action and runs
// nothing.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>

#include "tools/cli/cli.hpp"
#include "tools/cli/manual.hpp"
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
  add_schema_verb(app, cli);
  add_quality_verb(app, cli);
  add_weights_verb(app, cli);
  add_cache_verbs(app, cli);
  add_doctor_verb(app, cli);
}

// A verb takes the global flags too, and no flag takes a value with `=` that it does not use.
void apply_rules(CLI::App& app) {
  app.fallthrough();
  if (CLI::Option* help = app.get_help_ptr()) help->description("print this help");
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
  for (CLI::App* verb : app.get_subcommands({})) apply_rules(*verb);
}

Result<int> print_version(const Cli& cli) {
  cli.print({{"version", KVJIT_VERSION}}, "kvjit " KVJIT_VERSION "\n");
  return 0;
}

Result<int> print_text(const Cli& cli, const char* what, const std::string& text) {
  cli.print({{what, text}}, text);
  return 0;
}

// Prints the help of the verb that `words` name, such as {"cache", "gc"}; without words, that of the command.
Result<int> print_help(const Cli& cli, const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* verb = &app;
  for (const std::string& word : words) {
    const auto below = verbs_of(*verb);
    const auto named =
        std::find_if(below.begin(), below.end(), [&](const auto* one) { return one->get_name() == word; });
    if (named == below.end()) return tl::unexpected(unknown_verb(*verb, word));
    verb = *named;
  }
  return print_text(cli, "help", help_text(*verb));
}

// The verbs that print about the command itself. The actions keep the app by which they were made.
void add_own_verbs(const std::shared_ptr<CLI::App>& app, Cli& cli) {
  const std::weak_ptr<CLI::App> held = app;  // the app holds these callbacks
  const auto topic = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app->add_subcommand("help", "the help of the command, or of a verb");
  help->add_option("VERB", *topic, "for example verify, or cache gc");
  help->callback(
      [&cli, held, topic] { cli.action = [&cli, app = held.lock(), topic] { return print_help(cli, *app, *topic); }; });
  app->add_subcommand("version", "the version")->callback([&cli] {
    cli.action = [&cli] { return print_version(cli); };
  });
  app->add_subcommand("man", "the manual page, as roff")->callback([&cli, held] {
    cli.action = [&cli, app = held.lock()] { return print_text(cli, "man", man_page(*app)); };
  });
  const auto shell = std::make_shared<std::string>();
  CLI::App* script = app->add_subcommand("completion", "a script that completes command lines in a shell");
  one_of(script->add_option("SHELL", *shell, "the shell that reads it"), {"bash", "zsh", "fish"})->required();
  script->callback([&cli, held, shell] {
    cli.action = [&cli, app = held.lock(), shell] { return print_text(cli, "completion", completion(*app, *shell)); };
  });
}

}  // namespace

std::shared_ptr<CLI::App> make_app(Cli& cli) {
  const auto app = std::make_shared<CLI::App>(
      "kvjit: attention kernels for quantized KV caches, generated from a TOML spec", "kvjit");
  app->require_subcommand(1);
  add_global_flags(*app, cli);
  add_verbs(*app, cli);
  add_own_verbs(app, cli);
  apply_rules(*app);
  return app;
}

Result<void> parse_command_line(const std::vector<std::string>& args, Cli& cli) {
  const std::shared_ptr<CLI::App> app = make_app(cli);
  cli.words = args;
  // The parser sets flags only when it knows all words, so an error needs --json from elsewhere.
  cli.is_json = std::count(args.begin(), std::find(args.begin(), args.end(), "--"), "--json") > 0;
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // the parser takes the words last first
  try {
    app->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::vector<std::string> words;
    for (auto verbs = app->get_subcommands(); !verbs.empty(); verbs = verbs.back()->get_subcommands())
      words.push_back(verbs.back()->get_name());
    cli.action = [&cli, app, words] { return print_help(cli, *app, words); };
  } catch (const CLI::CallForVersion&) {
    cli.action = [&cli] { return print_version(cli); };
  } catch (const CLI::ParseError& failure) {
    return tl::unexpected(usage_error(*app, failure));
  }
  return {};
}

}  // namespace kvjit
