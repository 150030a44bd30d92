// TOML text -> Node tree, and the checks behind schema.hpp.
// SPDX-License-Identifier: MIT
#include "generator/schema.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

// The packaged shared library is built with exceptions; ours compiles the header-only form without them.
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
// Some broken texts break the parser's own assertions, which would end the process.
#undef NDEBUG
#include <stdexcept>
namespace {
[[noreturn]] void broken_assertion(const char* condition) { throw std::logic_error(condition); }
}  // namespace
#define TOML_ASSERT(condition) ((condition) ? void() : broken_assertion(#condition))
#include <fmt/format.h>
#include <toml++/toml.h>

namespace kvjit::schema {
namespace {

class Importer {
 public:
  Importer(std::string_view text, std::string file) : file_(std::move(file)) {
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line = text.substr(at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      lines_.push_back(line);
      at = end + 1;
    }
  }

  Where where(const toml::source_region& region) const {
    Where where{file_, int(region.begin.line), int(region.begin.column), {}};
    if (where.line >= 1 && std::size_t(where.line) <= lines_.size()) where.excerpt = lines_[where.line - 1];
    return where;
  }

  Node import(const toml::node& from) const {
    Node node;
    node.where = where(from.source());
    switch (from.type()) {
      case toml::node_type::table:
        node.kind = Node::Kind::table;
        for (const auto& [key, value] : *from.as_table()) {
          Node& item = node.items.emplace_back(import(value));
          item.key = key.str();
          item.key_where = where(key.source());
        }
        std::sort(node.items.begin(), node.items.end(), [](const Node& a, const Node& b) {
          return std::pair(a.key_where.line, a.key_where.column) < std::pair(b.key_where.line, b.key_where.column);
        });
        break;
      case toml::node_type::array:
        node.kind = Node::Kind::list;
        for (const toml::node& value : *from.as_array()) node.items.push_back(import(value));
        break;
      case toml::node_type::string:
        node.kind = Node::Kind::text;
        node.text = from.as_string()->get();
        break;
      case toml::node_type::integer:
        node.kind = Node::Kind::integer;
        node.integer = from.as_integer()->get();
        node.real = double(node.integer);
        break;
      case toml::node_type::floating_point:
        node.kind = Node::Kind::real;
        node.real = from.as_floating_point()->get();
        break;
      case toml::node_type::boolean:
        node.kind = Node::Kind::boolean;
        node.boolean = from.as_boolean()->get();
        break;
      default:
        node.kind = Node::Kind::date;
        break;
    }
    return node;
  }

 private:
  std::string file_;
  std::vector<std::string_view> lines_;
};

// In the order of Node::Kind.
constexpr const char* kKindNames[] = {"a string", "an integer", "a number", "true or false",
                                      "a list",   "a table",    "a date"};

}  // namespace

const Node* Node::find(std::string_view name) const {
  for (const Node& item : items)
    if (item.key == name) return &item;
  return nullptr;
}

Result<Node> parse(std::string_view toml_text, const std::string& file) {
  const Importer importer(toml_text, file);
  try {
    const toml::parse_result result = toml::parse(toml_text, file);
    if (!result)
      return fail(Code::bad_input, std::string(result.error().description()), importer.where(result.error().source()));
    return importer.import(result.table());
  } catch (const std::logic_error&) {  // of TOML_ASSERT
    return fail(Code::bad_input, "this is no TOML", {file},
                {"the parser gives no line: look for a key or a [table] without a name"});
  }
}

std::string join(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::vector<std::string> suggestions(std::string_view name, const std::string& what,
                                     const std::vector<std::string>& known) {
  std::vector<std::string> notes;
  if (const std::string guess = closest(name, known); !guess.empty())
    notes.push_back(fmt::format("did you mean '{}'?", guess));
  if (!known.empty()) notes.push_back(what + ": " + join(known));
  return notes;
}

Table::Table(const Node* node, std::string name, Where where)
    : node_(node), name_(std::move(name)), where_(std::move(where)) {
  if (node_ && !expect(*node_, Node::Kind::table, "")) node_ = nullptr;
}

const Node* Table::find(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  return node_ ? node_->find(key) : nullptr;
}

Table Table::table(std::string_view key) {
  const Node* node = find(key);
  return Table(node, fmt::format("[{}]", key), node ? node->where : where_);
}

Where Table::where(std::string_view key) {
  const Node* node = find(key);
  return node ? node->where : where_;
}

bool Table::expect(const Node& node, Node::Kind kind, std::string_view key) {
  const bool is_number = kind == Node::Kind::real && node.kind == Node::Kind::integer;
  std::string problem;
  if (node.kind != kind && !is_number)
    problem = fmt::format("{}, not {}", kKindNames[int(kind)], kKindNames[int(node.kind)]);
  else if (kind == Node::Kind::real && !std::isfinite(node.real))
    problem = "finite";
  else if (kind == Node::Kind::text && node.text.find_first_of("\r\n") != std::string::npos)
    problem = "one line";  // titles and sources end up in one-line comments of emitted code
  bad_ = !problem.empty();
  if (bad_) complain(node.where, fmt::format("{} must be {}", key.empty() ? name_ : std::string(key), problem));
  return !bad_;
}

bool Table::in_range(const Node& node, std::string_view key, Range range) {
  bad_ = node.integer < range.low || node.integer > range.high;
  if (bad_) complain(node.where, fmt::format("{} must be {}..{}", key, range.low, range.high));
  return !bad_;
}

void Table::read(std::string_view key, std::string& out) {
  const Node* node = find(key);
  if (node && expect(*node, Node::Kind::text, key)) out = node->text;
}

void Table::read(std::string_view key, int& out, Range range) {
  const Node* node = find(key);
  if (node && expect(*node, Node::Kind::integer, key) && in_range(*node, key, range)) out = int(node->integer);
}

void Table::read(std::string_view key, double& out) {
  const Node* node = find(key);
  if (node && expect(*node, Node::Kind::real, key)) out = node->real;
}

void Table::read(std::string_view key, bool& out) {
  const Node* node = find(key);
  if (node && expect(*node, Node::Kind::boolean, key)) out = node->boolean;
}

const Node* Table::list(std::string_view key, Node::Kind item_kind) {
  const Node* node = find(key);
  if (!node || !expect(*node, Node::Kind::list, key)) return nullptr;
  for (const Node& item : node->items)
    if (!expect(item, item_kind, fmt::format("each item of {}", key))) return nullptr;
  return node;
}

void Table::read(std::string_view key, std::vector<std::string>& out) {
  const Node* node = list(key, Node::Kind::text);
  if (!node) return;
  out.clear();
  for (const Node& item : node->items) out.push_back(item.text);
}

void Table::read(std::string_view key, std::vector<double>& out) {
  const Node* node = list(key, Node::Kind::real);
  if (!node) return;
  out.clear();
  for (const Node& item : node->items) out.push_back(item.real);
}

void Table::read(std::string_view key, std::vector<int>& out, Range range) {
  const Node* node = list(key, Node::Kind::integer);
  if (!node) return;
  out.clear();
  for (const Node& item : node->items)
    if (in_range(item, fmt::format("each item of {}", key), range)) out.push_back(int(item.integer));
}

void Table::read(std::string_view key, std::optional<int>& out, Range range) {
  int value = 0;
  read(key, value, range);
  if (find(key) && !bad_) out = value;
}

void Table::read(std::string_view key, std::optional<std::string>& out) {
  std::string value;
  read(key, value);
  if (find(key) && !bad_) out = value;
}

void Table::require(std::string_view key, std::string_view or_key) {
  if (find(key) || (!or_key.empty() && find(or_key)) || missing_) return;
  const std::string also = or_key.empty() ? "" : fmt::format(" or '{}'", or_key);
  missing_ = Error{Code::bad_input, fmt::format("{} needs the key '{}'{}", name_, key, also), where_, {}};
}

void Table::complain(const Where& where, std::string message, std::vector<std::string> notes, Code code) {
  if (first_ && std::pair(first_->where.line, first_->where.column) <= std::pair(where.line, where.column)) return;
  first_ = Error{code, std::move(message), where, std::move(notes)};
}

void Table::complain_choice(std::string_view key, const std::string& text, const std::vector<std::string>& known) {
  complain(where(key), fmt::format("{} '{}' is not known", key, text), suggestions(text, "possible", known));
}

Result<void> Table::done() {
  if (node_)
    for (const Node& item : node_->items)
      if (std::find(known_.begin(), known_.end(), item.key) == known_.end())
        complain(item.key_where, fmt::format("unknown key '{}' in {}", item.key, name_),
                 suggestions(item.key, "known keys", known_));
  if (first_) return tl::unexpected(*first_);
  if (missing_) return tl::unexpected(*missing_);
  return {};
}

}  // namespace kvjit::schema
