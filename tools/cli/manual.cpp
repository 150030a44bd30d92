// Writes the help and the manual page: see manual.hpp.
// SPDX-License-Identifier: MIT
#include "tools/cli/manual.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tools/cli/usage.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

constexpr std::size_t kColumns = 100;  // of a line of help
constexpr std::size_t kIndent = 26;    // column at which the texts of flags begin

using Described = std::pair<const char*, const char*>;

constexpr Described kExitCodes[] = {
    {"0", "ok"},
    {"1", "internal: a bug of kvjit"},
    {"2", "usage: a mistake on the command line"},
    {"3", "bad spec or input"},
    {"4", "unsupported: understood, but no kernel serves it"},
    {"5", "the compiler refused a kernel"},
    {"6", "results differ by more than the promised error"},
    {"7", "environment: no GPU, no NVRTC, no memory, a full disk"},
    {"8", "integrity: a damaged or foreign artefact, a bundle that no trusted key has signed"},
    {"9", "cancelled, as by Ctrl-C"},
};

constexpr Described kVariables[] = {
    {"KVJIT_DEVICE", "default of --device"},
    {"KVJIT_DEVICE_ORDINAL", "number of the GPU"},
    {"KVJIT_ARCH", "default of --arch of run and verify; other verbs and engines run kernels for it, too"},
    {"KVJIT_AS_PTX", "1: default of --as-ptx"},
    {"KVJIT_CACHE_DIR", "default of --cache-dir"},
    {"KVJIT_CACHE_MAX_BYTES", "size down to which the cache folder is swept"},
    {"KVJIT_NVRTC, KVJIT_CUDA", "files of libnvrtc and libcuda; if set, no other file is tried"},
    {"KVJIT_CXX", "host compiler of the CPU back-end"},
    {"KVJIT_BUNDLES", "prebuilt kernels, a list with ':'"},
    {"KVJIT_TRUSTED_KEYS", "public keys, one of which must have signed a bundle, a list with ':'"},
    {"KVJIT_REMOTE", "address of a server of kernels"},
    {"KVJIT_REMOTE_WRITES", "1: kernels that are compiled here are stored there"},
};

constexpr const char* kDocuments =
    "README.md of the sources leads to the documents: specs/docs (specs, formats, features), runtime/docs (engines, "
    "caches), tools/docs (this command, bench, quality).";

const std::map<std::string, std::vector<Example>>& examples() {
  static const std::map<std::string, std::vector<Example>> all = {
      {"",
       {{"kvjit check sample.toml", "is the spec right?"},
        {"kvjit run sample.toml --q q.npy --k k.npy --v v.npy", "attend, and measure the errors"},
        {"kvjit formats", "the formats that K and V can have"}}},
      {"check", {{"kvjit check sample.toml --arch sm_90a,sm_89", "plan the spec for two archs"}}},
      {"emit",
       {{"kvjit emit sample.toml --arch sm_90a --kernel decode", "print one kernel"},
        {"kvjit emit sample.toml --arch sm_90a -o kernels", "write every kernel to kernels/NAME.cu"}}},
      {"explain",
       {{"kvjit explain sample.toml --arch sm_90a", "every decision with its reason"},
        {"kvjit explain sample.toml --key", "would a kernel come from the cache, and if not, why"}}},
      {"build", {{"kvjit build sample.toml --arch sm_90a -j 4", "registers and spills of every kernel"}}},
      {"warm", {{"kvjit warm sample.toml --arch sm_90a", "fill the cache before a deploy"}}},
      {"run", {{"kvjit run sample.toml --q q.npy --k k.npy --v v.npy -o out.npy", "attend over arrays of NumPy"}}},
      {"verify",
       {{"kvjit verify sample.toml --device cpu", "judge the kernels of a spec without a GPU"},
        {"kvjit verify --matrix ggml --sample 200", "200 of ggml's cases"},
        {"kvjit verify --fuzz 20 --seed 7", "20 random specs, from seed 7 on"},
        {"kvjit verify sample.toml --arch sm_80 --as-ptx", "judge the text for sm_80 on a newer GPU"}}},
      {"bench",
       {{"kvjit bench sample.toml --tokens 4096,131072 --html bench.html", "time attention on a GPU"},
        {"kvjit bench --tune sample.toml -o mine", "measure block shapes into mine/tuning"}}},
      {"pack",
       {{"kvjit pack sample.toml --arch sm_90a,sm_89 -o engine.kvb", "kernels for machines without a compiler"},
        {"kvjit pack --list engine.kvb", "what a bundle holds"}}},
      {"quantize", {{"kvjit quantize --format q4_0 k.npy k.bin", "numbers to stored bytes"}}},
      {"dequantize", {{"kvjit dequantize --format q4_0 --shape 960,128 k.bin k.npy", "stored bytes to numbers"}}},
      {"requantize",
       {{"kvjit requantize --from q8_0 --to q4_0 --head-dim 128 a.bin b.bin", "bytes of one format to another's"}}},
      {"formats", {{"kvjit formats", "every format"}, {"kvjit formats q4_0", "one format in detail"}}},
      {"quality",
       {{"kvjit quality --formats q4_0,kv4 --causal", "what two formats cost on generated numbers"},
        {"kvjit quality --formats all --k k.npy --v v.npy --q q.npy --html q.html", "on your numbers"}}},
      {"rotate-weights",
       {{"kvjit rotate-weights in.safetensors out.safetensors --rotation wht_signed:128 --tensor v_proj.weight --side "
         "v",
         "values leave the projection rotated"}}},
      {"cache", {{"kvjit cache stats", "how much the folder holds"}, {"kvjit cache gc", "sweep it"}}},
      {"schema", {{"kvjit schema spec", "JSON Schema of the spec, for an editor"}}},
      {"doctor", {{"kvjit doctor", "which driver, compilers and cache are found"}}},
      {"help", {{"kvjit help verify", "the help of a verb"}}},
      {"version", {{"kvjit version", "the version"}}},
      {"man", {{"kvjit man > kvjit.1", "the manual page, as roff"}}},
      {"completion", {{"kvjit completion bash > kvjit.bash", "to be sourced by bash"}}},
  };
  return all;
}

// "kvjit" or "kvjit cache gc".
std::string full_name(const CLI::App& app) {
  return app.get_parent() ? full_name(*app.get_parent()) + " " + app.get_name() : app.get_name();
}

// Words of `text` in lines that end before kColumns; all but the first are indented.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent) {
  std::string out;
  std::size_t begin = 0;
  bool is_first = true;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (!is_first && column + 1 + (end - begin) > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!is_first) {
      out += " ", ++column;
    }
    out += text.substr(begin, end - begin);
    column += end - begin, begin = end + 1, is_first = false;
  }
  return out + "\n";
}

std::string row_text(const std::string& head, const std::string& text) {
  const std::string start = "  " + head;
  if (start.size() + 2 > kIndent) return start + "\n" + std::string(kIndent, ' ') + wrapped(text, kIndent, kIndent);
  return fmt::format("{:<{}}", start, kIndent) + wrapped(text, kIndent, kIndent);
}

std::string head_of(const Argument& argument) {
  return fmt::format("{}{}{}", fmt::join(argument.names, ", "), argument.value.empty() ? "" : " ", argument.value);
}

std::string text_of(const Argument& argument) {
  std::string text = argument.what;
  if (argument.is_positional && argument.value.find('|') != std::string::npos) text += "; " + argument.value;
  if (!argument.range.empty()) text += fmt::format("; {}", argument.range);
  if (!argument.preset.empty()) text += fmt::format(" (default: {})", argument.preset);
  if (argument.is_required && !argument.is_positional) text += " (required)";
  return text;
}

std::string usage_of(const CLI::App& app) {
  std::string line = full_name(app);
  if (!verbs_of(app).empty()) line += " VERB";
  for (const Argument& argument : arguments_of(app)) {
    if (argument.is_positional) {
      const std::string name = argument.names[0] + (argument.is_repeatable ? "..." : "");
      line += argument.is_required ? " " + name : fmt::format(" [{}]", name);
    } else if (argument.is_required) {
      line += " " + head_of(argument);
    }
  }
  return line + " [FLAGS]";
}

std::string table(const char* title, const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string text;
  for (const auto& [head, what] : rows) text += row_text(head, what);
  return text.empty() ? "" : fmt::format("\n{}\n{}", title, text);
}

template <class Rows>
std::vector<std::pair<std::string, std::string>> pairs(const Rows& rows) {
  return {std::begin(rows), std::end(rows)};
}

const CLI::App& root_of(const CLI::App& app) { return app.get_parent() ? root_of(*app.get_parent()) : app; }

// Text for roff: a backslash, a leading dot and a hyphen would be commands or other signs.
std::string roff(const std::string& text) {
  const std::string out =
      with_replaced(text, {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'"', "\\(dq"}, {'`', "\\(ga"}});
  return out.starts_with(".") ? "\\&" + out : out;
}

std::string man_rows(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string text;
  for (const auto& [head, what] : rows) text += fmt::format(".TP\n.B {}\n{}\n", roff(head), roff(what));
  return text;
}

std::vector<std::pair<std::string, std::string>> rows_of(const CLI::App& app) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Argument& argument : arguments_of(app))
    if (!argument.what.empty())
      rows.emplace_back(argument.is_positional ? argument.names[0] : head_of(argument), text_of(argument));
  return rows;
}

std::string man_verb(const CLI::App& verb) {
  std::string text =
      fmt::format(".SS {}\n{}.\n.PP\n.B {}\n", roff(full_name(verb).substr(std::string("kvjit ").size())),
                  roff(verb.get_description()), roff(usage_of(verb)));
  text += man_rows(rows_of(verb));
  for (const Example& example : examples_of(verb.get_parent()->get_parent() ? "-" : verb.get_name()))
    text += fmt::format(".PP\nExample, {}:\n.PP\n.EX\n{}\n.EE\n", roff(example.what), roff(example.command));
  for (const CLI::App* below : verbs_of(verb)) text += man_verb(*below);
  return text;
}

}  // namespace

std::vector<Argument> arguments_of(const CLI::App& app) {
  std::vector<Argument> all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    Argument argument;
    argument.is_positional = option->get_positional();
    if (argument.is_positional) argument.names.push_back(option->get_name(true, false));
    for (const std::string& name : option->get_snames()) argument.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) argument.names.push_back("--" + name);
    if (option->get_items_expected_max() > 0) {
      const std::string type = option->get_type_name();
      const std::size_t mark = type.find(kRangeMark);
      argument.value = type.substr(0, mark);
      if (argument.value.ends_with(":")) argument.value.pop_back();  // of a validator without a range
      if (mark != std::string::npos) argument.range = type.substr(mark + std::string(kRangeMark).size());
      argument.preset = option->get_default_str();
    }
    argument.what = option->get_description();
    argument.is_required = option->get_required();
    argument.is_repeatable = argument.is_positional && option->get_items_expected_max() > 1;
    all.push_back(std::move(argument));
  }
  return all;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<Example> examples_of(const std::string& verb) {
  const auto found = examples().find(verb);
  return found == examples().end() ? std::vector<Example>() : found->second;
}

std::string help_text(const CLI::App& app) {
  const bool is_command = !app.get_parent();
  std::string text =
      is_command ? app.get_description() + "\n" : fmt::format("{}: {}\n", full_name(app), app.get_description());
  text += fmt::format("\nUsage\n  {}\n", usage_of(app));
  std::vector<std::pair<std::string, std::string>> verbs, positionals, flags, lines;
  for (const CLI::App* verb : verbs_of(app)) verbs.emplace_back(verb->get_name(), verb->get_description());
  text += table("Verbs", verbs);
  for (const Argument& argument : arguments_of(app))
    if (argument.is_positional)
      positionals.emplace_back(argument.names[0], text_of(argument));
    else
      flags.emplace_back(head_of(argument), text_of(argument));
  text += table("Words", positionals);
  text += table(is_command ? "Flags, also after the verb" : "Flags", flags);
  for (const Example& example : examples_of(is_command ? "" : full_name(app).substr(std::string("kvjit ").size())))
    lines.emplace_back(example.command, example.what);
  text += table("Examples", lines);
  if (!is_command) {
    std::vector<std::string> names;
    for (const Argument& argument : arguments_of(root_of(app)))
      if (argument.names.back().starts_with("--")) names.push_back(argument.names.back());
    return text + "\n" +
           wrapped(fmt::format("Flags of every verb: {}. `kvjit --help` describes them, the exit codes and the "
                               "environment variables.",
                               fmt::join(names, ", ")),
                   0, 0);
  }
  text += table("Exit codes", pairs(kExitCodes));
  text += table("Environment; flags override it", pairs(kVariables));
  return text + "\n" + wrapped(fmt::format("`kvjit VERB --help` describes a verb. {}", kDocuments), 0, 0);
}

std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(".TH KVJIT 1 \"\" \"kvjit {}\" \"User Commands\"\n", KVJIT_VERSION);
  const std::string about = app.get_description();
  text += fmt::format(".SH NAME\nkvjit \\- {}\n", roff(about.substr(about.find(": ") + 2)));
  text += ".SH SYNOPSIS\n.B kvjit\n.I VERB\n[FLAGS]\n";
  text +=
      ".SH DESCRIPTION\nA TOML spec states what the cache holds and the GPU. kvjit writes one CUDA kernel for it,\n"
      "compiles it, caches it and runs it. Data goes to stdout, messages go to stderr.\n";
  text += ".SH FLAGS\nThese stand before or after the verb.\n" + man_rows(rows_of(app)) + ".SH VERBS\n";
  for (const CLI::App* verb : verbs_of(app)) text += man_verb(*verb);
  text += ".SH EXIT STATUS\n" + man_rows(pairs(kExitCodes));
  text += ".SH ENVIRONMENT\nFlags override variables.\n" + man_rows(pairs(kVariables));
  text += ".SH EXAMPLES\n";
  for (const Example& example : examples_of(""))
    text += fmt::format(".TP\n.B {}\n{}\n", roff(example.command), roff(example.what));
  return text + ".SH SEE ALSO\n" + roff(kDocuments) + "\n";
}

}  // namespace kvjit
