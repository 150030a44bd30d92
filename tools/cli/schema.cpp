// The verb schema: JSON Schemas of the files that kvjit reads, for editors (tools/schema).
// SPDX-License-Identifier: MIT
#include "tools/schema/schema.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tools/cli/cli.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct SchemaArgs {
  std::string kind;    // empty: all kinds
  std::string folder;  // -o; empty: to stdout
};

std::string required_text(const Json& schema) {
  const Json& place = schema.contains("then") ? schema["then"] : schema;
  return place.contains("required")
             ? fmt::format("{}", fmt::join(place["required"].get<std::vector<std::string>>(), " "))
             : "";
}

Result<int> write_all(const Cli& cli, const std::vector<FileSchema>& schemas, const std::string& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) return fail(Code::environment, fmt::format("{}: {}", folder, problem.message()));
  Json files = Json::array();
  std::string text;
  for (const FileSchema& schema : schemas) {
    const std::string file = (fs::path(folder) / (schema.kind + ".json")).string();
    KV_CHECK(write_text(file, schema.schema.dump(1) + "\n"));
    files.push_back(file), text += file + "\n";
  }
  cli.print({{"files", files}}, text);
  return 0;
}

Result<int> print_schemas(const Cli& cli, const SchemaArgs& args) {
  KV_TRY(registry, Registry::load(embedded_files()));  // --specs adds names, and no keys
  KV_TRY(schemas, file_schemas(args.kind, registry));
  if (!args.folder.empty()) return write_all(cli, schemas, args.folder);
  if (!args.kind.empty()) {
    cli.print(schemas[0].schema, schemas[0].schema.dump(1) + "\n");
    return 0;
  }
  Json results = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const FileSchema& each : schemas) {
    results.push_back({{"kind", each.kind}, {"folder", each.folder}, {"schema", each.schema}});
    rows.push_back({each.kind, "specs/" + each.folder, required_text(each.schema)});
  }
  cli.print(results, table_text({"kind", "built-in files", "required keys"}, rows));
  return 0;
}

}  // namespace

void add_schema_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<SchemaArgs>();
  CLI::App* verb = app.add_subcommand("schema", "JSON Schemas of specs and data files, for editors");
  one_of(verb->add_option("KIND", args->kind, "kind of file"),
         {"spec", "format", "rotation", "arch", "calibration", "policy", "tuning"})
      ->default_str("all");
  verb->add_option("-o", args->folder, "write KIND.json into this folder")->type_name("DIR");
  verb->callback([&cli, args] { cli.action = [&cli, args] { return print_schemas(cli, *args); }; });
}

}  // namespace kvjit
