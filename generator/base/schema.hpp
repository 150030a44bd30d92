// Reading TOML with diagnostics. A reader asks a Table for each key it knows; whatever is left over is an
// unknown key, so the list of known keys is never stated twice. Every complaint carries its place; the first
// one in the file is reported. Internal to generator/. schema.cpp is the only file that knows the TOML
// library.
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

struct Node {
  enum class Kind { text, integer, real, boolean, list, table, date };
  Kind kind = Kind::table;
  std::string key;  // member of a table: its name and the place of the name
  Where key_where;
  Where where;  // of the value
  std::string text;
  long long integer = 0;
  double real = 0;  // also set for integers
  bool boolean = false;
  std::vector<Node> items;  // of a list; members of a table, in the order written

  const Node* find(std::string_view name) const;
};

Result<Node> parse(std::string_view toml_text, const std::string& file);

struct Range {
  int low, high;
};
constexpr Range kBits{1, 8};
constexpr Range kBlock{16, 1024};  // of inline formats, and a power of two

constexpr bool is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

// "a, b, c"
std::string join(const std::vector<std::string>& names);
// "did you mean 'x'?" if something is close, then `what`: a, b, c.
std::vector<std::string> suggestions(std::string_view name, const std::string& what,
                                     const std::vector<std::string>& known);

// What an enumerator is called in TOML. The order of the table is the order of the diagnostics.
template <class E>
using Names = std::initializer_list<std::pair<E, const char*>>;

class Table {
 public:
  // node: null for an absent table, whose keys are all absent. name: "[k]", or what the file is, for
  // messages.
  Table(const Node* node, std::string name, Where where);

  bool exists() const { return node_ != nullptr; }
  const Where& where() const { return where_; }
  const Node* find(std::string_view key);  // marks the key as known; null if absent
  Table table(std::string_view key);       // a sub-table
  Where where(std::string_view key);       // of the key's value, else of the table

  // An absent key leaves `out` as it is. A value of the wrong type or outside its range is a complaint.
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
    std::string text;
    read(key, text);
    if (!find(key) || bad_) return;
    std::vector<std::string> known;
    for (const auto& [value, name] : names) {
      if (text == name) return void(out = value);
      known.emplace_back(name);
    }
    complain_choice(key, text, known);
  }
  // Complains if the key (and the other one that would do) is absent, unless something else is wrong.
  void require(std::string_view key, std::string_view or_key = {});

  void complain(const Where& where, std::string message, std::vector<std::string> notes = {},
                Code code = Code::bad_input);
  void complain_choice(std::string_view key, const std::string& text, const std::vector<std::string>& known);

  // The complaint that stands first in the file; unknown keys are among them.
  Result<void> done();

 private:
  bool expect(const Node& node, Node::Kind kind, std::string_view key);
  const Node* list(std::string_view key, Node::Kind item_kind);
  bool in_range(const Node& node, std::string_view key, Range range);

  const Node* node_;
  std::string name_;
  Where where_;
  std::vector<std::string> known_;
  std::optional<Error> first_, missing_;
  bool bad_ = false;  // the latest read complained
};

}  // namespace kvjit::schema
