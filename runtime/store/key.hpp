// Key: the name of an artefact in the cache, made from what is asked for and never from who compiles it, so
// that a hit needs no compiler. Every input is a printable piece: `explain` shows them, and two keys can be
// compared piece by piece.
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

constexpr int kCacheFormat = 2;  // of keys and entries; also in the folder's name ("v2")

struct Key {
  std::string hex;                                          // 64 digits: SHA-256 over the delimited pieces
  std::vector<std::pair<std::string, std::string>> pieces;  // name, value; the text stands as its own SHA-256
};

// options: all that changes the artefact beyond the text. No paths, no times, no host names.
Key make_key(const Source& source, ArtefactKind kind, const std::vector<std::string>& options);

// What is hashed: the pieces, each with its length, behind a domain tag. An entry carries these bytes, so that they
// prove its key.
std::string delimited(const Key& key);
// The key whose delimited() these bytes are. Fails with integrity.
Result<Key> read_key(std::string_view bytes);

std::string text_piece(std::string_view text);                  // how a text stands among the pieces
std::string_view piece(const Key& key, std::string_view name);  // the first of that name; "" if there is none

const char* to_string(ArtefactKind kind);

}  // namespace kvjit
