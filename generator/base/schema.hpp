// Reads TOML with diagnostics. parse turns a text into a tree of Nodes. A reader wraps each table of the tree in a
// Table and asks it for every key that it knows. Keys that nobody asked for are unknown keys, so the list of known keys
// is never stated twice. Every complaint has a place, and the first one in the file is reported. The header is internal
// to generator/. schema.cpp is the only file that includes the TOML library.
// SPDX-License-Identifier: MIT
#pragma once
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit::schema {

// A value of a TOML file, with its place. `kind` says which of the members holds it.
struct Node {
  enum class Kind { text, integer, real, boolean, list, table, date };
  Kind kind = Kind::table;
  std::string key;          // member of a table: its name
  Where key_where;          // member of a table: the place of its name
  Where where;              // the place of the value
  std::string text;         // kind text
  long long integer = 0;    // kind integer
  double real = 0;          // kinds real and integer
  bool boolean = false;     // kind boolean
  std::vector<Node> items;  // the items of a list; the members of a table, in the order of the file

  const Node* find(std::string_view name) const;  // a member of a table, or null
};

// The table at the top of a TOML text. `file` is its name in diagnostics.
Result<Node> parse(std::string_view toml_text, const std::string& file);

// The integers that a key may have; both ends are included.
struct Range {
  int low, high;
};
constexpr Range kBits{1, 8};
constexpr Range kBlock{16, 1024};  // blocks of inline formats, which are powers of two

constexpr bool is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

// The names as text: "a, b, c".
std::string join(const std::vector<std::string>& names);
// The notes of an unknown name: "did you mean 'x'?" if a known name is close, then "what: a, b, c".
std::vector<std::string> suggestions(std::string_view name, const std::string& what,
                                     const std::vector<std::string>& names);

// The names of enumerators in TOML. Diagnostics list them in this order.
template <class E>
using Names = std::initializer_list<std::pair<E, const char*>>;

struct TableRecord;  // what readers ask of tables: recording.hpp
struct Visit;

class Table {
 public:
  // A null node is an absent table, and then all keys are absent. name is for messages: "[k]", or "a format" for the
  // top of a file.
  Table(const Node* node, std::string name, Where where);

  bool exists() const { return node_ != nullptr; }
  const Where& where() const { return where_; }
  const Node* find(std::string_view key);  // the value of a key, which is known from now on; null if absent
  Table table(std::string_view key);       // a table inside this one
  Where where(std::string_view key);       // the place of the key's value; if the key is absent, of the table

  // Each read marks its key as known. An absent key leaves `out` as it is. A value of the wrong type, or outside its
  // range, is a complaint.
  void read(std::string_view key, std::string& out);
  void read(std::string_view key, int& out, Range range);
  void read(std::string_view key, double& out);
  void read(std::string_view key, bool& out);
  void read(std::string_view key, std::vector<std::string>& out);
  void read(std::string_view key, std::vector<double>& out);
  void read(std::string_view key, std::vector<int>& out, Range range);
  void read(std::string_view key, std::optional<int>& out, Range range);
  void read(std::string_view key, std::optional<std::string>& out);
  template <class E>
  void read(std::string_view key, E& out, Names<E> names) {
    std::vector<std::string> possible;
    for (const auto& [value, name] : names) possible.emplace_back(name);
    takes(key, Node::Kind::text, possible);
    std::string text;
    read(key, text);
    if (!find(key) || bad_) return;
    for (const auto& [value, name] : names)
      if (text == name) return void(out = value);
    complain_choice(key, text, possible);
  }
  // Says what a key takes, for readers that look at the value themselves. It is needed for records only: reads say it,
  // too.
  void takes(std::string_view key, Node::Kind kind, const std::vector<std::string>& words = {});
  void takes_items(std::string_view key, Node::Kind kind, const std::vector<std::string>& words = {});
  void takes_range(std::string_view key, long long low, long long high);
  // Requires the key, or or_key in its place. The complaint is reported only if nothing else is wrong.
  void require(std::string_view key, std::string_view or_key = {});

  void complain(const Where& where, std::string message, std::vector<std::string> notes = {},
                Code code = Code::bad_input);
  void complain_choice(std::string_view key, const std::string& text, const std::vector<std::string>& names);

  // Ends the reading: complains about unknown keys, and returns the complaint that stands first in the file.
  Result<void> done();

 private:
  bool expect(const Node& node, Node::Kind kind, std::string_view key);
  const Node* list(std::string_view key, Node::Kind item_kind);
  bool in_range(const Node& node, std::string_view key, Range range);

  const Node* node_;                     // null: the table is absent
  std::string name_;                     // in messages
  Where where_;                          // of the table
  std::vector<std::string> known_keys_;  // the keys that were asked for
  std::optional<Error> first_,           // the complaint that stands first in the file
      missing_;                          // the first required key that is absent
  bool bad_ = false;                     // the latest read complained
  TableRecord* record_ = nullptr;        // while readers are recorded: the record of this table,
  Visit* visit_ = nullptr;               // and what it says of this text; null if the table is absent
};

}  // namespace kvjit::schema
