// Validators and usage errors: see usage.hpp.
// SPDX-License-Identifier: MIT
#include "tools/cli/usage.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace kvjit {
namespace {

template <class T>
bool reads_as(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end;
}

template <class T>
CLI::Option* in_range(CLI::Option* option, const char* unit, const char* kind, T lowest, T highest) {
  const std::string range = fmt::format("{} to {}", lowest, highest);
  const auto check = [kind, lowest, highest, range](const std::string& text) {
    T value;
    const bool is_fine = reads_as(text, value) && value >= lowest && value <= highest;  // NaN is not
    return is_fine ? std::string() : fmt::format("{} is not a {} from {}", text, kind, range);
  };
  return option->type_name(unit)->check(CLI::Validator(check, std::string(kRangeMark).substr(1) + range));
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  return names;
}

// The deepest app that the arguments chose.
const CLI::App& chosen(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen(*parsed.back());
}

// The flags of an app and of those above it, in both spellings.
std::vector<std::string> flags_of(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app; app = app->get_parent())
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group().empty()) continue;
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
  return names;
}

std::string help_hint(const CLI::App& app) {
  const std::string verb = chosen_verb(app);
  return verb.empty() ? "`kvjit --help` lists the verbs" : fmt::format("`kvjit {} --help` lists what it takes", verb);
}

// Adds the nearest candidate. For a flag of one letter that is the only long flag that begins with the letter.
void guess(Error& error, const std::string& name, const std::vector<std::string>& candidates) {
  std::string nearest = closest(name, candidates);
  if (name.size() == 2 && name[0] == '-') {
    const auto begins = [&name](const std::string& flag) { return flag.starts_with("-" + name); };
    const bool is_only = std::count_if(candidates.begin(), candidates.end(), begins) == 1;
    nearest = is_only ? *std::find_if(candidates.begin(), candidates.end(), begins) : "";
  }
  if (!nearest.empty()) error.notes.insert(error.notes.begin(), fmt::format("did you mean '{}'?", nearest));
}

template <class Kind>
bool is(const CLI::ParseError& failure) {
  return dynamic_cast<const Kind*>(&failure) != nullptr;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace

CLI::Option* whole_number(CLI::Option* option, const char* unit, long long lowest, long long highest) {
  return in_range(option, unit, "whole number", lowest, highest);
}

CLI::Option* decimal_number(CLI::Option* option, const char* unit, double lowest, double highest) {
  return in_range(option, unit, "number", lowest, highest);
}

CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& words) {
  const auto check = [words](const std::string& text) {
    for (const std::string& word : words)
      if (word == text) return std::string();
    const std::string nearest = closest(CLI::detail::to_lower(text), words);
    return fmt::format("{} is not one of {}{}", text, fmt::join(words, ", "),
                       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  };
  return option->type_name(fmt::format("{}", fmt::join(words, "|")))->check(CLI::Validator(check, ""));
}

void text_options(CLI::App& verb, Options& options) {
  verb.add_option("--arch", options.arch,
                  "GPU architecture whose kernels run, instead of the spec's and the device's (also KVJIT_ARCH)")
      ->type_name("A");
  verb.add_flag("--as-ptx", options.as_ptx,
                "run the text for an older --arch on this GPU: as PTX, which the driver compiles (also KVJIT_AS_PTX)");
}

CLI::Option* kernel_option(CLI::App& verb, ManyRows& many_rows, const char* help) {
  const auto choose = [&many_rows](const std::string& kernel) {
    many_rows = kernel == "decode"     ? ManyRows::decode
                : kernel == "prefill"  ? ManyRows::prefill
                : kernel == "two-pass" ? ManyRows::two_pass
                                       : ManyRows::chosen;
  };
  return one_of(verb.add_option_function<std::string>("--kernel", choose, help),
                {"chosen", "decode", "prefill", "two-pass"})
      ->default_str("chosen");
}

std::string chosen_verb(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) return "";
  const std::string below = chosen_verb(*parsed.back());
  return parsed.back()->get_name() + (below.empty() ? "" : " " + below);
}

std::string line_with(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& flags) {
  std::string line = "kvjit";
  const auto add = [&line](const std::string& word) {
    const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             std::string_view("_./,:=@%+-").find(static_cast<char>(c)) != std::string_view::npos;
    });
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += " " + (is_plain ? word : quoted + "'");
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    bool is_replaced = false;
    for (const auto& [flag, value] : flags) {
      if (words[i] == flag) ++i, is_replaced = true;
      if (i < words.size() && words[i].starts_with(flag + "=")) is_replaced = true;
      if (is_replaced) break;
    }
    if (!is_replaced) add(words[i]);
  }
  for (const auto& [flag, value] : flags) add(flag), add(value);
  return line;
}

Error unknown_verb(const CLI::App& app, const std::string& name) {
  const std::string above = app.get_parent() ? app.get_name() + " " : "";
  Error error{Code::usage, fmt::format("there is no verb '{}{}'", above, name)};
  const std::vector<std::string> names = verb_names(app);
  error.notes.push_back(fmt::format("there are: {}", fmt::join(names, ", ")));
  guess(error, name, names);
  return error;
}

Error usage_error(const CLI::App& app, const CLI::ParseError& failure) {
  const CLI::App& verb = chosen(app);
  const bool takes_verb = !verb_names(verb).empty();
  const std::vector<std::string> unplaced = app.remaining(true);
  Error error{Code::usage, failure.what(), {}, {help_hint(app)}};
  // A word that nobody knows is the cause; that something else is missing may follow from it.
  for (const std::string& word : unplaced) {
    const bool is_flag = word.size() > 1 && word[0] == '-';
    if (!is_flag && takes_verb) return unknown_verb(verb, word);
    if (!is_flag) continue;
    const std::string flag = word.substr(0, word.find('='));
    error.message =
        fmt::format("there is no flag {}{}", flag, takes_verb && !verb.get_parent() ? "" : " of " + chosen_verb(app));
    guess(error, flag, flags_of(&verb));
    return error;
  }
  if (takes_verb && is<CLI::RequiredError>(failure)) {
    error.message = verb.get_parent() ? fmt::format("{}: a verb is missing", verb.get_name()) : "a verb is missing";
    error.notes.insert(error.notes.begin(), fmt::format("there are: {}", fmt::join(verb_names(verb), ", ")));
  } else if (is<CLI::ExtrasError>(failure)) {
    error.message = fmt::format("{} takes no further word: {}", chosen_verb(app), fmt::join(unplaced, " "));
  } else if (is<CLI::ExcludesError>(failure)) {
    error.message = replaced(error.message, " excludes ", " does not go together with ");
  } else if (is<CLI::RequiresError>(failure)) {
    error.message = replaced(error.message, " requires ", " needs ");
  } else if (is<CLI::ArgumentMismatch>(failure) && error.message.ends_with(" missing")) {
    error.message = error.message.substr(0, error.message.find(':')) + ": its value is missing";
  } else if (is<CLI::ArgumentMismatch>(failure) && error.message.ends_with(" flag override")) {
    const std::string name = error.message.substr(0, error.message.find(' '));
    error.message = fmt::format("{}{} takes no value", name.size() > 1 ? "--" : "-", name);
  } else if (is<CLI::ArgumentMismatch>(failure)) {
    const std::string flag = error.message.substr(0, error.message.find(':'));
    error.message = fmt::format("{}: is given more than once", flag);
  }
  return error;
}

}  // namespace kvjit
