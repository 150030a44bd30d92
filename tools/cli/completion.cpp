// Completion scripts for bash, zsh and fish. A script knows the verbs, their flags, closed lists and names of formats;
// every other word is a file.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "generator/catalogue/registry.hpp"
#include "tools/cli/manual.hpp"

namespace kvjit {
namespace {

// The words that a value can have; empty: files or numbers.
std::vector<std::string> words_of(const Argument& argument) {
  std::vector<std::string> words;
  if (argument.value.find("FORMAT") != std::string::npos)
    if (const auto registry = Registry::load(embedded_files()))
      for (const auto& [name, format] : registry->formats()) words.push_back(name);
  // A value is written in capitals or has a dot, but the words of a closed list stand as they are.
  const bool is_listed =
      argument.value.find('|') != std::string::npos ||
      std::all_of(argument.value.begin(), argument.value.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (!is_listed || argument.value.empty()) return words;
  for (std::size_t begin = 0; begin <= argument.value.size();) {
    const std::size_t end = std::min(argument.value.find('|', begin), argument.value.size());
    const std::string word = argument.value.substr(begin, end - begin);
    if (word.find("FORMAT") == std::string::npos) words.push_back(word);
    begin = end + 1;
  }
  return words;
}

// A path on the disk, by the name of the value: DIR, FILE.kvb, SPEC.toml, IN.bin.
bool is_file(const Argument& argument) {
  return argument.value == "DIR" || argument.value.find('.') != std::string::npos ||
         argument.value.find("FILE") != std::string::npos;
}

// A verb and those above it, with what may follow it.
struct Place {
  std::string verb;  // "cache gc"; "": none yet
  std::vector<const CLI::App*> below;
  std::vector<Argument> arguments;  // its own and those of every verb
};

void collect(const CLI::App& app, const std::string& verb, const std::vector<Argument>& global,
             std::vector<Place>& all) {
  Place place{verb, verbs_of(app), arguments_of(app)};
  if (app.get_parent()) place.arguments.insert(place.arguments.end(), global.begin(), global.end());
  if (verb == "help") {  // its argument is a verb
    std::vector<std::string> verbs;
    for (const CLI::App* other : verbs_of(*app.get_parent())) verbs.push_back(other->get_name());
    for (Argument& argument : place.arguments)
      if (argument.is_positional) argument.value = fmt::format("{}", fmt::join(verbs, "|"));
  }
  all.push_back(place);
  for (const CLI::App* below : place.below)
    collect(*below, verb.empty() ? below->get_name() : verb + " " + below->get_name(), global, all);
}

std::vector<Place> places_of(const CLI::App& app) {
  std::vector<Place> all;
  collect(app, "", arguments_of(app), all);
  return all;
}

std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_script(const CLI::App& app) {
  std::string verbs, words, values, valued;
  for (const Place& place : places_of(app)) {
    std::vector<std::string> next;
    for (const CLI::App* below : place.below) next.push_back(below->get_name());
    if (!next.empty()) verbs += fmt::format("      {}) verbs='{}' ;;\n", in_quotes(place.verb), fmt::join(next, " "));
    std::vector<std::string> flags;
    for (const Argument& argument : place.arguments) {
      const auto listed = words_of(argument);
      if (argument.is_positional) {
        next.insert(next.end(), listed.begin(), listed.end());
        continue;
      }
      flags.insert(flags.end(), argument.names.begin(), argument.names.end());
      if (argument.value.empty()) continue;
      for (const std::string& name : argument.names) {
        valued += fmt::format("|{} {}", place.verb, name);
        if (!listed.empty())
          values += fmt::format("    '{} {}') COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n", place.verb,
                                name, fmt::join(listed, " "));
        else if (!is_file(argument))
          values += fmt::format("    '{} {}') return ;;\n", place.verb, name);
        else
          values += fmt::format("    '{} {}') COMPREPLY=($(compgen -{} -- \"$current\")); return ;;\n", place.verb,
                                name, argument.value == "DIR" ? "d" : "f");
      }
    }
    words += fmt::format("    {}) words='{}' flags='{}' ;;\n", in_quotes(place.verb), fmt::join(next, " "),
                         fmt::join(flags, " "));
  }
  return fmt::format(
      R"(# Completion of kvjit for bash, written by `kvjit completion bash`.
_kvjit() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb=''
  local verbs words word flags i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case $verb in
{}      *) verbs='' ;;
    esac
    word=${{COMP_WORDS[i]}}
    [[ $word != -* && " $verbs " == *" $word "* ]] && verb="${{verb:+$verb }}$word"
  done
  case "$verb $previous" in
{}  esac
  case $verb in
{}  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ -n $verb ]] && COMPREPLY+=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _kvjit kvjit
)",
      verbs, values, words);
}

// Text in the brackets of zsh's _arguments, between single quotes.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out;
}

std::string zsh_value(const Argument& argument) {
  const auto listed = words_of(argument);
  const std::string name = zsh_text(argument.value.empty() ? "word" : argument.value);
  if (!listed.empty()) return fmt::format(":{}:({})", name, fmt::join(listed, " "));
  if (argument.value == "DIR") return fmt::format(":{}:_files -/", name);
  return fmt::format(":{}:{}", name, is_file(argument) ? "_files" : " ");
}

std::string zsh_script(const CLI::App& app) {
  std::string cases;
  for (const Place& place : places_of(app)) {
    std::vector<std::string> next;
    for (const CLI::App* below : place.below)
      next.push_back(in_quotes(zsh_text(below->get_name()) + ":" + zsh_text(below->get_description())));
    cases += fmt::format("    {})\n", in_quotes(place.verb));
    if (!next.empty()) cases += fmt::format("      verbs=({})\n", fmt::join(next, " "));
    cases += "      arguments=(";
    for (const Argument& argument : place.arguments) {
      if (argument.is_positional) {
        cases += fmt::format("\n        '{}{}'", argument.is_repeatable ? "*" : "", zsh_value(argument));
        continue;
      }
      for (const std::string& flag : argument.names)
        cases += fmt::format("\n        '*{}[{}]{}'", flag, zsh_text(argument.what),
                             argument.value.empty() ? "" : zsh_value(argument));
    }
    cases += "\n      )\n      ;;\n";
  }
  return fmt::format(R"(#compdef kvjit
# Completion of kvjit for zsh, written by `kvjit completion zsh`.
_kvjit_place() {{
  verbs=() arguments=()
  case $1 in
{}  esac
}}
_kvjit() {{
  local -a verbs arguments
  local verb='' i at=1
  _kvjit_place ''
  for ((i = 2; i < CURRENT; ++i)); do
    if (( ${{verbs[(I)${{words[i]}}:*]}} )); then
      verb="${{verb:+$verb }}${{words[i]}}" at=$i
      _kvjit_place "$verb"
    fi
  done
  if (( $#verbs )) && [[ ${{words[CURRENT]}} != -* ]]; then
    _describe verb verbs
    return
  fi
  words=(kvjit "${{(@)words[at+1,-1]}}")
  (( CURRENT -= at - 1 ))
  _arguments $arguments
}}
_kvjit "$@"
)",
                     cases);
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# Completion of kvjit for fish, written by `kvjit completion fish`.\n";
  for (const Place& place : places_of(app)) {
    std::string when = place.verb.empty() ? "__fish_use_subcommand" : "";
    for (std::size_t begin = 0; begin < place.verb.size();) {
      const std::size_t end = std::min(place.verb.find(' ', begin), place.verb.size());
      when += fmt::format("{}__fish_seen_subcommand_from {}", when.empty() ? "" : "; and ",
                          place.verb.substr(begin, end - begin));
      begin = end + 1;
    }
    for (const CLI::App* below : place.below)
      text += fmt::format("complete -c kvjit -n {} {}-a {} -d {}\n", in_quotes(when), place.verb.empty() ? "-f " : "",
                          below->get_name(), in_quotes(below->get_description()));
    for (const Argument& argument : place.arguments) {
      const auto listed = words_of(argument);
      const std::string list = listed.empty() ? "" : fmt::format(" -a '{}'", fmt::join(listed, " "));
      if (argument.is_positional) {
        if (!listed.empty()) text += fmt::format("complete -c kvjit -n {}{}\n", in_quotes(when), list);
        continue;
      }
      std::string names;
      for (const std::string& name : argument.names)
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const std::string value = argument.value.empty() ? ""
                                : !listed.empty()      ? " -x" + list
                                : is_file(argument)    ? " -r"
                                                       : " -x";
      text +=
          fmt::format("complete -c kvjit -n {}{}{} -d {}\n", in_quotes(when), names, value, in_quotes(argument.what));
    }
  }
  return text;
}

}  // namespace

std::string completion(const CLI::App& app, const std::string& shell) {
  return shell == "bash" ? bash_script(app) : shell == "zsh" ? zsh_script(app) : fish_script(app);
}

}  // namespace kvjit
