// A reader asks for some keys only if another key has a certain word: the `seed` of signs only if their generator draws
// them. So each built-in file is read as it is, and then with one change: another word of a key, one key less, or one
// table more. Each change is read like any file, and whether it is refused does not matter.
// SPDX-License-Identifier: MIT
#include "tools/schema/explore.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/catalogue/arch.hpp"
#include "generator/catalogue/tuning.hpp"
#include "generator/spec/spec.hpp"

namespace kvjit {
namespace {

using schema::KeyRecord;
using schema::Node;
using schema::TableRecord;

// Quotes a text for TOML. The texts of built-in files have no control characters.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string value_text(const Node& node);

std::string members_text(const Node& table, const char* between) {
  std::string text;
  for (const Node& item : table.items)
    text += fmt::format("{}{} = {}", text.empty() ? "" : between, quoted(item.key), value_text(item));
  return text;
}

std::string value_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::text:
      return quoted(node.text);
    case Node::Kind::integer:
      return std::to_string(node.integer);
    case Node::Kind::real: {
      const std::string text = fmt::format("{}", node.real);
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    case Node::Kind::boolean:
      return node.boolean ? "true" : "false";
    case Node::Kind::list: {
      std::string text;
      for (const Node& item : node.items) text += (text.empty() ? "" : ", ") + value_text(item);
      return "[" + text + "]";
    }
    case Node::Kind::table:
      return "{ " + members_text(node, ", ") + " }";
    case Node::Kind::date:
      break;
  }
  return "1970-01-01";  // No reader takes a date.
}

Node text_node(const std::string& key, const std::string& text) {
  Node node;
  node.kind = Node::Kind::text, node.key = key, node.text = text;
  return node;
}

// Makes all changes of a file, one after the other.
class Changes {
 public:
  explicit Changes(std::function<void()> read) : read_(std::move(read)) {}

  void table(Node& table, const TableRecord& record) {
    // Reading adds keys to the record; those are explored from another file or in the next round.
    const std::vector<std::string> keys = record.order;
    for (const std::string& key : keys) this->key(table, key, record.keys.at(key));
  }

 private:
  static Node* member(Node& table, const std::string& key) {
    for (Node& item : table.items)
      if (item.key == key) return &item;
    return nullptr;
  }

  void with(Node& table, const std::string& key, const Node* value) {
    const std::vector<Node> before = table.items;
    std::erase_if(table.items, [&](const Node& item) { return item.key == key; });
    if (value) table.items.push_back(*value), table.items.back().key = key;
    read_();
    table.items = before;
  }

  void key(Node& table, const std::string& key, const KeyRecord& record) {
    const bool is_list = record.kinds.count(Node::Kind::list) != 0;
    const std::vector<std::string> words = record.words;
    for (const std::string& word : words)
      if (record.kinds.count(Node::Kind::text)) {
        const Node value = text_node(key, word);
        with(table, key, &value);
      }
    if (Node* present = member(table, key)) {
      if (record.table && present->kind == Node::Kind::table) this->table(*present, *record.table);
      if (record.table && present->kind == Node::Kind::list)
        for (Node& item : present->items)
          if (item.kind == Node::Kind::table) this->table(item, *record.table);
      const bool has_tables = present->kind == Node::Kind::table || present->kind == Node::Kind::list;
      with(table, key, nullptr);
      if (has_tables) return;
    }
    if (record.kinds.count(Node::Kind::table)) with_table(table, key, record, Node{});
    if (is_list && record.item_kinds.count(Node::Kind::table)) {
      Node list;
      list.kind = Node::Kind::list;
      list.items.emplace_back();
      with_table(table, key, record, list);
    }
  }

  // Adds an empty table, or a list of one, and makes the changes in it.
  void with_table(Node& table, const std::string& key, const KeyRecord& record, const Node& value) {
    with(table, key, &value);
    if (!record.table) return;
    const std::vector<Node> before = table.items;
    std::erase_if(table.items, [&](const Node& item) { return item.key == key; });
    Node& added = table.items.emplace_back(value);
    added.key = key;
    this->table(value.kind == Node::Kind::list ? added.items[0] : added, *record.table);
    table.items = before;
  }

  std::function<void()> read_;
};

}  // namespace

const std::vector<FileKind>& file_kinds() {
  static const std::vector<FileKind> kinds = {
      {"spec", "specs/attention/",
       [](std::string_view text, const std::string& file, const Registry&) { (void)parse_specs(text, file); }},
      {"format", "specs/formats/",
       [](std::string_view text, const std::string& file, const Registry& registry) {
         (void)parse_format(text, file, registry);
       }},
      {"rotation", "specs/rotations/",
       [](std::string_view text, const std::string& file, const Registry&) { (void)parse_rotation(text, file); }},
      {"arch", "specs/archs/",
       [](std::string_view text, const std::string& file, const Registry& registry) {
         (void)parse_arch(text, file, registry);
       }},
      {"calibration", "specs/calibrations/",
       [](std::string_view text, const std::string& file, const Registry&) { (void)parse_calibration(text, file); }},
      {"policy", "specs/policies/",
       [](std::string_view text, const std::string& file, const Registry&) { (void)parse_policy(text, file); }},
      {"tuning", "specs/tuning/", [](std::string_view text, const std::string& file, const Registry& registry) {
         (void)parse_tuning(text, file, registry);
       }}};
  return kinds;
}

std::string toml_text(const Node& top) { return members_text(top, "\n") + "\n"; }

void explore(const FileKind& kind, const Registry& registry, schema::Recording& recording) {
  constexpr std::size_t kMostItems = 8;  // of a list of tables: further ones are read like these
  for (const auto& [name, text] : embedded_files()) {
    if (!name.starts_with(kind.folder)) continue;
    kind.read(text, name, registry);
    Result<Node> top = schema::parse(text, name);
    if (!top) continue;
    for (Node& item : top->items)
      if (item.kind == Node::Kind::list && !item.items.empty() && item.items[0].kind == Node::Kind::table)
        item.items.resize(std::min(item.items.size(), kMostItems));
    const auto read = [&, &file = name] { kind.read(toml_text(*top), file, registry); };
    Changes(read).table(*top, recording.top());
  }
}

}  // namespace kvjit
