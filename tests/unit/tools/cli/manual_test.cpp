// tools/cli/manual.cpp and completion.cpp: every verb of the binary is documented, in words and without the parser's
// notation.
// SPDX-License-Identifier: MIT
#include "tools/cli/manual.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/support/project_files.hpp"
#include "tools/cli/cli.hpp"

namespace kvjit {
namespace {

struct Command {
  Cli cli;
  std::shared_ptr<CLI::App> app = make_app(cli);

  // The help of "verify" or "cache gc"; "": of the command.
  std::string help(const std::string& verb) const {
    const CLI::App* found = app.get();
    for (std::size_t begin = 0; begin < verb.size();) {
      const std::size_t end = std::min(verb.find(' ', begin), verb.size());
      for (const CLI::App* below : verbs_of(*found))
        if (below->get_name() == verb.substr(begin, end - begin)) found = below;
      begin = end + 1;
    }
    return help_text(*found);
  }
};

// The words that a list of the help begins with: "Verbs" and the indented lines below it.
std::vector<std::string> listed(const std::string& help, const std::string& title) {
  std::vector<std::string> words;
  std::size_t at = help.find("\n" + title + "\n");
  REQUIRE(at != std::string::npos);
  at = help.find('\n', at + 1) + 1;
  while (help.compare(at, 2, "  ") == 0) {
    if (help[at + 2] != ' ') words.push_back(help.substr(at + 2, help.find_first_of(" \n", at + 2) - at - 2));
    at = help.find('\n', at) + 1;
  }
  return words;
}

TEST_CASE("every verb is documented in command.md and has an example") {
  const Command command;
  const std::string page = test::text_of(test::project_root() / "tools/docs/command.md"), man = man_page(*command.app);
  const auto verbs = listed(command.help(""), "Verbs");
  CHECK(verbs.size() >= 20);
  for (const std::string& verb : verbs) {
    CAPTURE(verb);
    CHECK(page.find(fmt::format("`kvjit {}", verb)) != std::string::npos);
    const std::string help = command.help(verb);
    CHECK(help.find("\nExamples\n  kvjit " + verb) != std::string::npos);
    std::string name = verb;
    if (const std::size_t dash = name.find('-'); dash != std::string::npos) name.replace(dash, 1, "\\-");
    CHECK(man.find("\n.SS " + name + "\n") != std::string::npos);
  }
}

TEST_CASE("help has no notation of the parser, no empty lines in a row, and no line that is too long") {
  const Command command;
  std::vector<std::string> topics = {"", "cache gc"};
  for (const std::string& verb : listed(command.help(""), "Verbs")) topics.push_back(verb);
  for (const auto& topic : topics) {
    const std::string help = command.help(topic);
    CAPTURE(help);
    for (const char* leak :
         {"->", "{", "Excludes", "Needs", "TEXT", "INT", "UINT", "FLOAT", "REQUIRED", "\n\n\n", ":value"})
      CHECK(help.find(leak) == std::string::npos);
    for (std::size_t at = 0; at < help.size(); at = help.find('\n', at) + 1) CHECK(help.find('\n', at) - at <= 120);
    CHECK(help.ends_with("\n"));
    CHECK_FALSE(help.ends_with("\n\n"));
  }
}

TEST_CASE("help states ranges, defaults, exit codes and the environment") {
  const Command kvjit;
  const std::string verify = kvjit.help("verify"), command = kvjit.help("");
  CHECK(verify.find("1 to 4194304") != std::string::npos);
  CHECK(kvjit.help("build").find("(default: all processors)") != std::string::npos);
  CHECK(verify.find("--device") != std::string::npos);
  CHECK(command.find("KVJIT_CACHE_DIR") != std::string::npos);
  CHECK(command.find("integrity") != std::string::npos);
  CHECK(command.find("auto|gpu|cpu") != std::string::npos);
}

TEST_CASE("completion scripts know the flags of every verb") {
  const Command command;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion(*command.app, shell);
    CAPTURE(script);
    for (const char* word : {"verify", "rotate-weights", "inspect", "matrix", "q4_0", "gpu"})
      CHECK(script.find(word) != std::string::npos);
  }
}

}  // namespace
}  // namespace kvjit
