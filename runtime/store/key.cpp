// Computes keys: SHA-256 over a domain tag and length-delimited (name, value) fields. See key.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/key.hpp"

#include "runtime/base/sha256.hpp"

namespace kvjit {
namespace {

constexpr std::string_view kDomain = "kvjit request key";
constexpr int kLengthBytes = 8;  // little endian

}  // namespace

const char* to_string(ArtefactKind kind) {
  switch (kind) {
    case ArtefactKind::cubin:
      return "cubin";
    case ArtefactKind::ptx:
      return "ptx";
    case ArtefactKind::host_object:
      return "host_object";
  }
  return "unknown";
}

Key make_key(const Source& source, ArtefactKind kind, const std::vector<std::string>& options) {
  Key key;
  key.pieces = {{"cache_format", std::to_string(kCacheFormat)},
                {"kvjit", KVJIT_VERSION},
                {"kind", to_string(kind)},
                {"arch", source.arch},
                {"entry", source.entry},
                {"text", text_piece(source.text.str())}};
  for (const auto& option : options) key.pieces.emplace_back("option", option);

  key.hex = hex(sha256(delimited(key)));
  return key;
}

std::string text_piece(std::string_view text) { return "sha256:" + hex(sha256(text)); }

std::string_view piece(const Key& key, std::string_view name) {
  for (const auto& [known, value] : key.pieces)
    if (known == name) return value;
  return {};
}

std::string delimited(const Key& key) {
  std::string bytes;
  const auto add = [&bytes](std::string_view piece) {
    for (int i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(std::uint64_t{piece.size()} >> (8 * i));
    bytes += piece;
  };
  add(kDomain);
  for (const auto& [name, value] : key.pieces) {
    add(name);
    add(value);
  }
  return bytes;
}

Result<Key> read_key(std::string_view bytes) {
  Key key;
  key.hex = hex(sha256(bytes));
  std::vector<std::string> pieces;
  while (!bytes.empty()) {
    std::uint64_t length = 0;
    if (bytes.size() < kLengthBytes) return fail(Code::integrity, "pieces of a key that end in a length");
    for (int i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    bytes.remove_prefix(kLengthBytes);
    if (length > bytes.size()) return fail(Code::integrity, "a piece of a key that is longer than all of it");
    pieces.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  if (pieces.empty() || pieces[0] != kDomain || pieces.size() % 2 == 0)
    return fail(Code::integrity, "bytes that are no pieces of a key");
  for (std::size_t i = 1; i < pieces.size(); i += 2)
    key.pieces.emplace_back(std::move(pieces[i]), std::move(pieces[i + 1]));
  return key;
}

}  // namespace kvjit
