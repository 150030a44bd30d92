// Finds the record of each table by the address of its node: Table::find notes whose value a node is.
// SPDX-License-Identifier: MIT
#include "generator/base/recording.hpp"

namespace kvjit::schema {
namespace {

thread_local Recording* current_recording = nullptr;

}  // namespace

KeyRecord& TableRecord::key(std::string_view name) {
  const auto [found, is_new] = keys.try_emplace(std::string(name));
  if (is_new) order.emplace_back(name);
  return found->second;
}

Recording::Recording() : outer_(current_recording) { current_recording = this; }
Recording::~Recording() { current_recording = outer_; }
Recording* Recording::current() { return current_recording; }
Recording::Pause::Pause() : paused_(current_recording) { current_recording = nullptr; }
Recording::Pause::~Pause() { current_recording = paused_; }

TableRecord& Recording::record_of(const Node* node) {
  const auto found = owners_.find(node);
  if (found == owners_.end()) return top_;
  std::unique_ptr<TableRecord>& table = found->second->table;
  if (!table) table = std::make_unique<TableRecord>();
  return *table;
}

void Recording::note_value(TableRecord& record, std::string_view key, const Node& value) {
  KeyRecord& owner = record.key(key);
  owners_[&value] = &owner;
  if (value.kind == Node::Kind::list)
    for (const Node& item : value.items) owners_[&item] = &owner;
}

}  // namespace kvjit::schema
