// Promises about the tree: folders are small enough to be read, documents are short, lines are narrow, and includes go
// one way.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/project_files.hpp"

namespace kvjit::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFiles = 30;         // in a folder
constexpr int kMostWords = 1500;       // of a README
constexpr int kMostReadmeLines = 160;  // of the README of the project
constexpr std::size_t kMostColumns = 120;

// Folders that hold data, one file for each entry of a catalogue or each case of a test. They grow with the catalogue.
const std::map<std::string, std::string> kDataFolders = {
    {"specs/archs", "one file a GPU architecture"},
    {"specs/attention", "one file a set of attention problems"},
    {"specs/formats", "one file a format"},
    {"specs/hooks", "one file a hook"},
    {"specs/rotations", "one file a rotation"},
    {"specs/tuning", "one file a GPU architecture"},
    {"tests/data", "one file a tensor"},
    {"tests/golden", "one file an emitted kernel"},
    {"tests/specs/fail", "two files a diagnostic"},
    {"tests/specs/pass", "one file a group of specs"},
};

TEST_CASE("a folder has at most 30 files, unless it holds data") {
  std::map<std::string, int> counts;
  for (const std::string& file : all_project_files())
    // Build files in the root are no part of the tree, so the root is not counted.
    if (const fs::path folder = fs::path(file).parent_path(); !folder.empty()) ++counts[folder.string()];
  for (const auto& [folder, count] : counts)
    if (count > kMostFiles && kDataFolders.count(folder) == 0)
      FAIL_CHECK(fmt::format("{}: {} files, more than {}", folder, count, kMostFiles));
  for (const auto& [folder, reason] : kDataFolders)
    CHECK_MESSAGE(fs::is_directory(project_root() / folder), folder, " is excepted (", reason, ") and does not exist");
}

// The words of a document. Bars and dashes of tables, bullets and arrows are none.
int words_of(const std::string& text) {
  std::stringstream stream(text);
  int words = 0;
  for (std::string word; stream >> word;)
    words += std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c); });
  return words;
}

TEST_CASE("a README is read in minutes") {
  CHECK(words_of("# a title\n\n| a | b-c |\n|---|---|\n- d <- `e`\n") == 6);
  int readmes = 0;
  for (const std::string& file : all_project_files()) {
    if (fs::path(file).filename() != "README.md") continue;
    ++readmes;
    const std::string text = text_of(project_root() / file);
    if (const int words = words_of(text); words > kMostWords)
      FAIL_CHECK(fmt::format("{}: {} words, more than {}", file, words, kMostWords));
    if (const auto lines = lines_of(text).size(); file == "README.md" && lines > kMostReadmeLines)
      FAIL_CHECK(fmt::format("{}: {} lines, more than {}", file, lines, kMostReadmeLines));
  }
  CHECK(readmes > 10);
}

// Columns of a line of UTF-8: its code points.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

bool is_script(const std::string& file) {
  return fs::path(file).extension().empty() && text_of(project_root() / file).starts_with("#!");
}

// Whether people write the lines of a file. Expected diagnostics are written by the program.
bool has_narrow_lines(const std::string& file) {
  static const std::set<std::string> extensions = {".c",  ".cpp", ".cuh",  ".h",   ".hpp",
                                                   ".md", ".py",  ".toml", ".txt", ".cmake"};
  if (file.starts_with("tests/specs/fail/") && file.ends_with(".txt")) return false;
  return extensions.count(fs::path(file).extension().string()) != 0 || is_script(file);
}

// Rows of Markdown tables, URLs and sources of formats (one TOML string each) cannot be broken.
bool may_be_wide(const std::string& file, const std::string& line) {
  if (file.ends_with(".md")) return line.starts_with("|") || line.find("://") != std::string::npos;
  return file.ends_with(".toml") && line.starts_with("source = ");
}

TEST_CASE("a line has at most 120 columns") {
  CHECK(columns("\xc2\xb5s \xe2\x86\x92") == 4);
  CHECK(has_narrow_lines("tests/golden/emitted"));
  CHECK(has_narrow_lines("tools/setup"));
  CHECK_FALSE(has_narrow_lines("tests/golden/q4_f16_rows.cu"));
  int searched = 0;
  for (const std::string& file : all_project_files()) {
    if (!has_narrow_lines(file)) continue;
    ++searched;
    int number = 0;
    for (const std::string& line : lines_of(text_of(project_root() / file)))
      if (++number; columns(line) > kMostColumns && !may_be_wide(file, line))
        FAIL_CHECK(fmt::format("{}:{}: {} columns, more than {}", file, number, columns(line), kMostColumns));
  }
  CHECK(searched > 500);
}

struct Include {
  std::string file;  // that includes
  int line;
  std::string header;  // as it is written: "runtime/base/file.hpp", "args/slots.cuh"
};

std::vector<Include> includes_of(const std::string& folder) {
  const std::string start = "#include \"";
  std::vector<Include> all;
  for (const std::string& file : project_files({folder.c_str()})) {
    if (!file.ends_with(".cpp") && !file.ends_with(".hpp") && !file.ends_with(".h")) continue;
    int number = 0;
    for (const std::string& line : lines_of(text_of(project_root() / file)))
      if (++number; line.starts_with(start))
        all.push_back({file, number, line.substr(start.size(), line.find('"', start.size()) - start.size())});
  }
  return all;
}

// The folder below `top` that holds a file, or the stem of a file directly in `top`: generator/spec/spec.hpp is spec,
// generator/program.cpp is program.
std::string stage_of(const std::string& file, const std::string& top) {
  const fs::path below = fs::path(file).lexically_relative(top);
  return below.has_parent_path() ? below.begin()->string() : below.stem().string();
}

// The stages that a file of a stage may include besides its own.
using Stages = std::map<std::string, std::set<std::string>>;

// Returns why a file of the generator must not include this header; empty: it may.
std::string generator_objection(const std::string& file, const std::string& header) {
  static const std::vector<std::string> stages = {"base",    "formats", "spec",    "catalogue",
                                                  "resolve", "emit",    "kernels", "program"};
  const auto rank = [&](const std::string& stage) { return std::find(stages.begin(), stages.end(), stage); };
  if (header.starts_with("args/")) return "";
  if (!header.starts_with("generator/")) return "the generator includes its own files and args/";
  const std::string from = stage_of(file, "generator"), to = stage_of(header, "generator");
  if (from == "source") {
    const bool may = to == "base" || to == "spec" || header == "generator/catalogue/timing.hpp";
    return may ? "" : "source.hpp includes base, spec, catalogue/timing and args/";
  }
  if (rank(from) == stages.end()) return "a stage that the list of the generator lacks";
  if (to == "source") return rank(from) >= rank("emit") ? "" : "source.hpp is for stages from emit on";
  return rank(to) <= rank(from) ? "" : fmt::format("{} stands before {}", from, to);
}

// Returns why a file of the runtime must not include this header; empty: it may.
std::string runtime_objection(const std::string& file, const std::string& header) {
  static const Stages stages = {{"base", {}},
                                {"compile", {"base"}},
                                {"device", {"base"}},
                                {"store", {"base", "compile"}},
                                {"jit", {"base", "compile", "device", "store"}},
                                {"launch", {"base", "compile", "device", "store", "jit"}},
                                {"api", {"base", "compile", "device", "store", "jit", "launch", "kvjit"}},
                                {"kvjit", {}}};
  // The headers of the generator that every folder may include, and those of one folder or file.
  static const std::set<std::string> generator = {"generator/source.hpp", "generator/base/result.hpp"};
  static const std::map<std::string, std::set<std::string>> more = {
      {"runtime/api/",
       {"generator/spec/spec.hpp", "generator/catalogue/registry.hpp", "generator/resolve/problem.hpp",
        "generator/resolve/layers.hpp", "generator/program.hpp", "generator/kernels/operations/operations.hpp",
        "generator/base/display.hpp"}},
      {"runtime/compile/host_compiler.cpp", {"generator/catalogue/registry.hpp"}},
      {"runtime/device/cpu/", {"device/cpu.hpp"}}};
  if (header.starts_with("args/") || generator.count(header) != 0) return "";
  for (const auto& [start, headers] : more)
    if (file.starts_with(start) && headers.count(header) != 0) return "";
  if (file == "runtime/kvjit.hpp" && header == "kvjit.h") return "";
  if (!header.starts_with("runtime/")) return "a header from outside that runtime/README.md does not name";
  const std::string from = stage_of(file, "runtime"), to = stage_of(header, "runtime");
  if (from == to) return "";
  if (from == "device" && header == "runtime/compile/artefact.hpp") return "";
  const auto stage = stages.find(from);
  if (stage == stages.end()) return "a folder that the list of the runtime lacks";
  return stage->second.count(to) != 0 ? "" : fmt::format("{} does not include {}", from, to);
}

TEST_CASE("includes go one way, and the documents say which") {
  const std::string generator = text_of(project_root() / "generator/README.md"),
                    runtime = text_of(project_root() / "runtime/README.md");
  CHECK(generator.find("`base <- formats <- spec <- catalogue <- resolve <- emit <- kernels <- program`") !=
        std::string::npos);
  CHECK(runtime.find("`base <- compile <- device, store <- jit <- launch <- api`") != std::string::npos);
  for (const char* name : {"`source.hpp`", "`base/result.hpp`", "`spec/spec`", "`catalogue/registry`",
                           "`resolve/problem`", "`resolve/layers`", "`program`", "`kernels/operations/operations`",
                           "`base/display`", "`compile/host_compiler`", "`templates/device/cpu.hpp`"})
    CHECK_MESSAGE(runtime.find(name) != std::string::npos, "runtime/README.md does not name ", name);

  const auto check = [](const std::string& folder, int least, const auto& objection) {
    const std::vector<Include> includes = includes_of(folder);
    CHECK(static_cast<int>(includes.size()) > least);
    for (const Include& one : includes)
      if (const std::string reason = objection(one.file, one.header); !reason.empty())
        FAIL_CHECK(fmt::format("{}:{}: includes {}: {}", one.file, one.line, one.header, reason));
  };
  check("generator", 150, generator_objection);
  check("runtime", 150, runtime_objection);
}

TEST_CASE("includes that run up are noticed") {
  const auto generator = [](const char* file, const char* header) { return generator_objection(file, header).empty(); };
  CHECK(generator("generator/emit/writer.hpp", "generator/spec/spec.hpp"));
  CHECK(generator("generator/emit/writer.hpp", "generator/source.hpp"));
  CHECK_FALSE(generator("generator/spec/spec.hpp", "generator/catalogue/arch.hpp"));
  CHECK_FALSE(generator("generator/resolve/problem.cpp", "generator/source.hpp"));
  CHECK_FALSE(generator("generator/kernels/decode/plan.cpp", "generator/program.hpp"));
  CHECK_FALSE(generator("generator/source.hpp", "generator/resolve/problem.hpp"));
  CHECK_FALSE(generator("generator/base/text.cpp", "runtime/base/file.hpp"));
  const auto runtime = [](const char* file, const char* header) { return runtime_objection(file, header).empty(); };
  CHECK(runtime("runtime/device/cpu/lane.hpp", "device/cpu.hpp"));
  CHECK(runtime("runtime/device/backend.hpp", "runtime/compile/artefact.hpp"));
  CHECK_FALSE(runtime("runtime/device/backend.hpp", "runtime/compile/compiler.hpp"));
  CHECK_FALSE(runtime("runtime/store/store.hpp", "runtime/device/backend.hpp"));
  CHECK_FALSE(runtime("runtime/base/file.cpp", "runtime/compile/artefact.hpp"));
  CHECK_FALSE(runtime("runtime/launch/codec.cpp", "generator/catalogue/registry.hpp"));
  CHECK_FALSE(runtime("runtime/api/context.cpp", "generator/formats/format.hpp"));
  CHECK_FALSE(runtime("runtime/launch/codec.cpp", "tools/io/npy.hpp"));
}

// Types that a header defines at the outermost level, as namespace::name. Two definitions of one name make the linker
// keep one destructor for both.
std::vector<std::string> types_of(const std::string& header) {
  static const std::regex opens(R"(^namespace ([\w:]+) \{)"),
      defines(R"(^(?:struct|class|enum class) (\w+)(?: final)?(?: : [^;]*)? \{.*)");
  std::vector<std::string> types;
  std::string space;
  for (const std::string& line : lines_of(header)) {
    std::smatch match;
    if (std::regex_search(line, match, opens)) space = match[1];
    if (std::regex_match(line, match, defines)) types.push_back(space + "::" + match[1].str());
  }
  return types;
}

TEST_CASE("a type of a header has a name of its own") {
  CHECK(types_of("namespace a::b {\nstruct One {\nclass Two;\nclass Three final : Four {\n") ==
        std::vector<std::string>{"a::b::One", "a::b::Three"});
  std::map<std::string, std::string> defined;
  for (const std::string& file : all_project_files()) {
    if (fs::path(file).extension() != ".hpp") continue;
    for (const std::string& type : types_of(text_of(project_root() / file))) {
      const auto [first, is_new] = defined.emplace(type, file);
      if (!is_new) FAIL_CHECK(fmt::format("{}: {} is defined in {} too", file, type, first->second));
    }
  }
  CHECK(defined.size() > 100);
}

}  // namespace
}  // namespace kvjit::test
