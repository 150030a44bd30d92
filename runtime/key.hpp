// Key: the name of an artefact in the cache, made from what is asked for and never from who compiles it, so
// that a hit needs no compiler. Every input is a printable piece: `explain` shows them, and two keys can be
// compared piece by piece.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "generator/source.hpp"
#include "runtime/artefact.hpp"

namespace kvjit {

constexpr int kCacheFormat = 1;  // of keys and entries; also in the folder's name ("v1")

struct Key {
  std::string hex;                                          // 64 digits: SHA-256 over the delimited pieces
  std::vector<std::pair<std::string, std::string>> pieces;  // name, value; the text stands as its own SHA-256
};

// options: all that changes the artefact beyond the text. No paths, no times, no host names.
Key make_key(const Source& source, ArtefactKind kind, const std::vector<std::string>& options);

const char* to_string(ArtefactKind kind);

}  // namespace kvjit
