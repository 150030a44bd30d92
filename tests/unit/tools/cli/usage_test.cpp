// tools/cli/usage.cpp and command_line.cpp: what the command line refuses, and in which words.
// SPDX-License-Identifier: MIT
#include "tools/cli/usage.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/cli/cli.hpp"

namespace kvjit {
namespace {

// The message of the arguments' usage error; "": they are accepted.
std::string refusal(const std::vector<std::string>& args) {
  Cli cli;
  const auto parsed = parse_command_line(args, cli);
  if (parsed) return "";
  CHECK(parsed.error().code == Code::usage);
  return parsed.error().message;
}

std::string note(const std::vector<std::string>& args) {
  Cli cli;
  const auto parsed = parse_command_line(args, cli);
  REQUIRE_FALSE(parsed);
  REQUIRE_FALSE(parsed.error().notes.empty());
  return parsed.error().notes[0];
}

TEST_CASE("numbers out of range are refused with the range") {
  CHECK(refusal({"verify", "x.toml", "--tokens", "0"}) == "--tokens: 0 is not a whole number from 1 to 4194304");
  CHECK(refusal({"verify", "x.toml", "--tokens", "4194304"}).empty());
  CHECK(refusal({"verify", "x.toml", "--tokens", "4194305"}).find("from 1 to 4194304") != std::string::npos);
  for (const char* text : {"x", "1.5", "", " 1", "1x", "0x10", "99999999999999999999", "-1", "1e3"}) {
    CAPTURE(text);
    if (*text)
      CHECK(refusal({"run", "s", "--q", "q", "--k", "k", "--v", "v", "--tokens", text}).find("is not a whole"));
    CHECK_FALSE(refusal({"run", "s", "--q", "q", "--k", "k", "--v", "v", "--tokens", text}).empty());
  }
  CHECK(refusal({"build", "s", "-j", "-3"}) == "-j: -3 is not a whole number from 1 to 1024");
  CHECK(refusal({"bench", "s", "--tokens", "1,0,3"}).find("0 is not a whole number") != std::string::npos);
  CHECK(refusal({"bench", "s", "--query-scale", "nan"}) == "--query-scale: nan is not a number from 0 to 10000");
  CHECK(refusal({"bench", "s", "--query-scale", "0.5"}).empty());
}

TEST_CASE("closed lists take their words alone") {
  for (const char* word : {"auto", "gpu", "cpu"}) CHECK(refusal({"doctor", "--device", word}).empty());
  CHECK(refusal({"doctor", "--device", "2"}) == "--device: 2 is not one of auto, gpu, cpu");
  CHECK(refusal({"doctor", "--device", "CPU"}) == "--device: CPU is not one of auto, gpu, cpu; did you mean 'cpu'?");
  CHECK(refusal({"quality", "--calibrate", "c", "--method", "mox"}).find("did you mean 'max'?") != std::string::npos);
  Cli cli;
  CHECK(parse_command_line({"--device", "cpu", "doctor"}, cli));
  CHECK(cli.options.device == DeviceKind::cpu);
}

TEST_CASE("a word that is nearly a verb or a flag is recognized") {
  CHECK(refusal({"chekc"}) == "there is no verb 'chekc'");
  CHECK(note({"chekc"}) == "did you mean 'check'?");
  Cli cli;
  REQUIRE(parse_command_line({"help", "verfy"}, cli));
  const auto help = cli.action();
  REQUIRE_FALSE(help);
  CHECK(help.error().code == Code::usage);
  CHECK(help.error().notes[0] == "did you mean 'verify'?");
  CHECK(note({"cache", "stat"}) == "did you mean 'stats'?");
  CHECK(refusal({"cache", "stat"}) == "there is no verb 'cache stat'");
  CHECK(note({"run", "s", "--quey", "q"}) == "did you mean '--quiet'?");
  CHECK(note({"verify", "s", "--token", "3"}) == "did you mean '--tokens'?");
  CHECK(note({"verify", "s", "--jsn"}) == "did you mean '--json'?");
  CHECK(note({"frobnicate"}).starts_with("there are: check, "));
}

TEST_CASE("every other mistake is said in words") {
  CHECK(refusal({}) == "a verb is missing");
  CHECK(refusal({"cache"}) == "cache: a verb is missing");
  CHECK(refusal({"-q"}) == "there is no flag -q");
  CHECK(refusal({"check", "s", "-q"}) == "there is no flag -q of check");
  CHECK(refusal({"check"}) == "SPEC is required");
  CHECK(refusal({"verify", "--tokens"}) == "--tokens: its value is missing");
  CHECK(refusal({"verify", "--tokens", "1", "--tokens", "2"}) == "--tokens: is given more than once");
  CHECK(refusal({"doctor", "x"}) == "doctor takes no further word: x");
  CHECK(refusal({"doctor", "--json=3"}) == "--json takes no value");
  CHECK(refusal({"bench", "s", "--write", "--tune"}).find("does not go together with") != std::string::npos);
  CHECK(refusal({"bench", "s", "--operations"}) == "--operations needs --write");
}

TEST_CASE("help and version are verbs and flags") {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{{"help"},
                                                                                    {"help", "verify"},
                                                                                    {"help", "cache", "gc"},
                                                                                    {"--help"},
                                                                                    {"cache", "gc", "-h"},
                                                                                    {"version"},
                                                                                    {"--version"},
                                                                                    {"-V"},
                                                                                    {"check", "--help"}}) {
    CAPTURE(fmt::format("{}", fmt::join(args, " ")));
    CHECK(refusal(args).empty());
  }
}

TEST_CASE("parsing sets an action and the flags, and --json also when it fails") {
  Cli cli;
  REQUIRE(parse_command_line({"--json", "check", "s.toml"}, cli));
  CHECK(cli.is_json);
  CHECK(cli.action);
  Cli failed;
  CHECK_FALSE(parse_command_line({"chekc", "--json"}, failed));
  CHECK(failed.is_json);
}

TEST_CASE("a line that goes on has the new values in place of the old ones, quoted for a shell") {
  CHECK(line_with({"verify", "a.toml"}, {{"--skip", "3"}}) == "kvjit verify a.toml --skip 3");
  CHECK(line_with({"verify", "--skip", "3", "my spec.toml", "-j", "2"}, {{"--skip", "5"}}) ==
        "kvjit verify 'my spec.toml' -j 2 --skip 5");
  CHECK(line_with({"verify", "--fuzz=9", "--seed", "1"}, {{"--fuzz", "4"}, {"--seed", "6"}}) ==
        "kvjit verify --fuzz 4 --seed 6");
  CHECK(line_with({"pack", "it's", ""}, {}) == "kvjit pack 'it'\\''s' ''");
}

}  // namespace
}  // namespace kvjit
