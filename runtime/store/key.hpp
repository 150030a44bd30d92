// Key: the name of an artefact in the cache. make_key computes it from a source, the artefact's kind and options. For
// GPUs the options do not depend on the compiler, so a hit needs no compiler. Every input is a printable (name, value)
// field. `explain` shows them, and two keys can be compared field by field.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/base/result.hpp"
#include "generator/source.hpp"
#include "runtime/compile/artefact.hpp"

namespace kvjit {

// Version of keys and entries; the folder's name holds it too ("v2").
constexpr int kCacheFormat = 2;

struct Key {
  std::string hex;                                          // 64 digits: SHA-256 of delimited()
  std::vector<std::pair<std::string, std::string>> fields;  // name and value; the value of the text is its SHA-256
};

// options: everything besides the text that changes the artefact, free of paths, times and host names.
Key make_key(const Source& source, ArtefactKind kind, const std::vector<std::string>& options);

// The bytes that are hashed: a domain tag, then names and values, each behind its length. An entry carries them, and
// they prove its key.
std::string delimited(const Key& key);
// The key whose delimited() is `bytes`. Fails with integrity if there is no such key.
Result<Key> read_key(std::string_view bytes);

std::string text_field(std::string_view text);                  // the value of the field "text"
std::string_view field(const Key& key, std::string_view name);  // the value of the first such field; "" if none

const char* to_string(ArtefactKind kind);

}  // namespace kvjit
