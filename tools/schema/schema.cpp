// Writes what explore has recorded as JSON Schema.
// SPDX-License-Identifier: MIT
#include "tools/schema/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "tools/schema/descriptions.hpp"
#include "tools/schema/explore.hpp"

namespace kvjit {
namespace {

using Json = nlohmann::ordered_json;
using schema::KeyRecord;
using schema::Node;
using schema::TableRecord;
using schema::Visit;
using Names = std::set<std::string>;

Names intersection(const Names& a, const Names& b) {
  Names both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

Names difference(const Names& a, const Names& b) {
  Names rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(rest, rest.end()));
  return rest;
}

// The keys that are required in all visits that satisfy a condition; nullopt if there is no such visit.
std::optional<Names> required_where(const TableRecord& record, const std::function<bool(const Visit&)>& condition) {
  std::optional<Names> required;
  for (const Visit& visit : record.visits)
    if (visit.is_complete && condition(visit))
      required = required ? intersection(*required, visit.required) : visit.required;
  return required;
}

// Which keys a table needs: always, with a word of another key, without another key.
Json requirements(const TableRecord& record) {
  Json out = Json::object(), all = Json::array();
  const Names always = required_where(record, [](const Visit&) { return true; }).value_or(Names{});
  if (!always.empty()) out["required"] = always;
  std::optional<std::set<std::pair<std::string, std::string>>> either;
  for (const Visit& visit : record.visits) {
    if (!visit.is_complete) continue;
    if (!either) either = visit.either;
    std::erase_if(*either, [&](const auto& pair) { return visit.either.count(pair) == 0; });
  }
  for (const auto& [one, other] : either.value_or(std::set<std::pair<std::string, std::string>>{}))
    all.push_back({{"anyOf", {{{"required", {one}}}, {{"required", {other}}}}}});
  for (const std::string& key : record.order) {
    for (const std::string& word : record.keys.at(key).words) {
      const auto has_word = [&](const Visit& visit) {
        const auto found = visit.texts.find(key);
        return found != visit.texts.end() && found->second == word;
      };
      const Names more = difference(required_where(record, has_word).value_or(Names{}), always);
      if (more.empty()) continue;
      const Json condition = {{"required", {key}}, {"properties", {{key, {{"const", word}}}}}};
      all.push_back({{"if", condition}, {"then", {{"required", more}}}});
    }
    const auto lacks = [&](const Visit& visit) { return visit.present.count(key) == 0; };
    const Names more = difference(required_where(record, lacks).value_or(Names{}), always);
    if (!more.empty() && more.count(key) == 0 && always.count(key) == 0)
      all.push_back({{"if", {{"not", {{"required", {key}}}}}}, {"then", {{"required", more}}}});
  }
  if (!all.empty()) out["allOf"] = all;
  return out;
}

// The requirements of a table and of the tables in it, apart from its keys.
Json nested_requirements(const TableRecord& record) {
  Json out = requirements(record);
  for (const std::string& key : record.order) {
    const KeyRecord& entry = record.keys.at(key);
    if (!entry.table || entry.kinds.count(Node::Kind::list)) continue;
    if (Json nested = nested_requirements(*entry.table); !nested.empty()) out["properties"][key] = nested;
  }
  return out;
}

class Writer {
 public:
  // is_swept: the requirements are stated apart, because [matrix] may supply the keys.
  explicit Writer(bool is_swept) : is_swept_(is_swept) {}

  // Names for error messages: keys that no description is about, and the descriptions that were used.
  const Names& missing() const { return missing_; }
  const Names& used() const { return used_; }

  std::string describe(const std::string& path) {
    const auto& all = key_descriptions();
    const auto found = all.find(path);
    if (found == all.end()) return missing_.insert(path), "";
    used_.insert(path);
    return found->second;
  }

  Json table(const TableRecord& record, const std::string& path) {
    Json properties = Json::object();
    for (const std::string& key : record.order) properties[key] = value(key, record.keys.at(key), path);
    Json out = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
    if (!is_swept_) out.update(requirements(record));
    return out;
  }

 private:
  // The path under which the keys of a table are described.
  static std::string table_path(const TableRecord& table, const std::string& path) {
    if (table.keys.count("calibration")) return "side";
    if (table.keys.count("fraction")) return "extent";
    if (table.keys.count("when")) return "rule";
    if (table.keys.count("steps_per_sigma")) return "format.codebook";
    if (path == "format.segments.codes") return "format.codes";
    if (path == "format.segments.fields") return "format.fields";
    if (path == "format.segments.codebook") return "format.codebook";
    if (path == "format.segments.scale") return "format.scale";
    return path;
  }

  Json of_kind(Node::Kind kind, const KeyRecord& record, const std::string& path) {
    Json out = Json::object();
    const auto words = [&] {
      if (record.words.empty())
        out["pattern"] = "^[^\\r\\n]*$";
      else
        out["enum"] = record.words;
    };
    switch (kind) {
      case Node::Kind::text:
        out["type"] = "string";
        words();
        break;
      case Node::Kind::integer:
        out["type"] = "integer";
        if (record.range) out["minimum"] = record.range->first, out["maximum"] = record.range->second;
        break;
      case Node::Kind::real:
        out["type"] = "number";
        break;
      case Node::Kind::boolean:
        out["type"] = "boolean";
        break;
      case Node::Kind::list: {
        Json items = Json::array();
        for (const Node::Kind item : record.item_kinds) items.push_back(of_kind(item, record, path));
        out["type"] = "array";
        out["items"] = items.size() == 1 ? items[0] : Json{{"anyOf", items}};
        break;
      }
      case Node::Kind::table:
        if (record.table) {
          // Tables of one description are alike: the first one has been seen with the most changes.
          const std::string below = table_path(*record.table, path);
          const TableRecord* alike = first_.try_emplace(below, record.table.get()).first->second;
          return table(*alike, below);
        }
        out["type"] = "object";
        break;
      case Node::Kind::date:
        break;
    }
    return out;
  }

  Json value(const std::string& key, const KeyRecord& record, const std::string& path) {
    const std::string here = path + "." + key;
    Json out = {{"description", describe(here)}}, kinds = Json::array();
    for (const Node::Kind kind : record.kinds) kinds.push_back(of_kind(kind, record, here));
    if (kinds.size() == 1)
      out.update(kinds[0]);
    else
      out["anyOf"] = kinds;
    return out;
  }

  bool is_swept_;
  std::map<std::string, const TableRecord*> first_;  // by path of descriptions
  Names missing_, used_;
};

}  // namespace

Result<std::vector<FileSchema>> file_schemas(const std::string& kind, const Registry& registry) {
  std::vector<FileSchema> schemas;
  std::vector<std::string> names;
  Names missing, used;
  for (const FileKind& file_kind : file_kinds()) {
    names.push_back(file_kind.name);
    if (!kind.empty() && file_kind.name != kind) continue;
    schema::Recording recording;
    explore(file_kind, registry, recording);
    const TableRecord& top = recording.top();
    const bool is_swept = file_kind.name == "spec";
    Writer writer(is_swept);
    Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                   {"title", "kvjit " + file_kind.name},
                   {"description", writer.describe(file_kind.name)}};
    schema.update(writer.table(top, file_kind.name));
    if (is_swept) {
      schema["if"] = {{"not", {{"required", {"matrix"}}}}};
      schema["then"] = nested_requirements(top);
    }
    const std::string folder = file_kind.folder.substr(6, file_kind.folder.size() - 7);  // without "specs/" and "/"
    schemas.push_back({file_kind.name, folder, schema});
    missing.insert(writer.missing().begin(), writer.missing().end());
    used.insert(writer.used().begin(), writer.used().end());
  }
  if (schemas.empty())
    return fail(Code::usage, fmt::format("kind '{}' is not known", kind), {},
                schema::suggestions(kind, "kinds", names));
  if (kind.empty())
    for (const auto& [path, text] : key_descriptions())
      if (used.count(path) == 0) missing.insert(path + " (is no key)");
  if (!missing.empty())
    return fail(Code::internal, fmt::format("keys without a description in tools/schema: {}",
                                            schema::join(std::vector<std::string>(missing.begin(), missing.end()))));
  return schemas;
}

}  // namespace kvjit
