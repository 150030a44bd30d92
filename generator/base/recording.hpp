// Recording: what readers ask of the tables that they read. While a Recording exists on a thread, each schema::Table of
// the thread notes in it every key that is asked for, with its type, range and words, and the keys that are required.
// tools/schema makes JSON Schemas from it, so the list of keys exists only in the readers.
// SPDX-License-Identifier: MIT
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "generator/base/schema.hpp"

namespace kvjit::schema {

struct TableRecord;

// The values that readers take for one key.
struct KeyRecord {
  std::set<Node::Kind> kinds;                            // of the value
  std::set<Node::Kind> item_kinds;                       // of the items, if the value may be a list
  std::vector<std::string> words;                        // the possible texts of the value or of its items; empty: any
  std::optional<std::pair<long long, long long>> range;  // of integers, also of the items; the widest that was asked
  std::unique_ptr<TableRecord> table;                    // what is read of a table, or of the tables of a list
};

// One table of a text that was read.
struct Visit {
  bool is_complete = false;                              // the reader has asked for all keys
  std::set<std::string> present;                         // its keys
  std::map<std::string, std::string> texts;              // the keys that are texts
  std::set<std::string> required;                        // the keys that the reader required
  std::set<std::pair<std::string, std::string>> either;  // pairs of keys of which the reader required one
};

// All tables of one place: the top of a kind of file, or the value of one key.
struct TableRecord {
  std::vector<std::string> order;  // the keys as they were first asked for
  std::map<std::string, KeyRecord> keys;
  std::deque<Visit> visits;

  KeyRecord& key(std::string_view name);
};

class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  static Recording* current();  // of this thread, or null
  // While a Pause exists on a thread, nothing is recorded: a reader of one kind of file reads another kind.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Recording* paused_;
  };

  const TableRecord& top() const { return top_; }  // of the files that were read
  // The record of a table: that of the key whose value the node is, else that of the top.
  TableRecord& record_of(const Node* node);
  void note_value(TableRecord& record, std::string_view key, const Node& value);  // Nodes below `key` belong to it.

 private:
  TableRecord top_;
  std::map<const Node*, KeyRecord*> owners_;
  Recording* outer_;  // the Recording that was current before this one
};

}  // namespace kvjit::schema
