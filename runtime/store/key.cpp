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
  key.fields = {{"cache_format", std::to_string(kCacheFormat)},
                {"kvjit", KVJIT_VERSION},
                {"kind", to_string(kind)},
                {"arch", source.arch},
                {"entry", source.entry},
                {"text", text_field(source.text.str())}};
  for (const auto& option : options) key.fields.emplace_back("option", option);

  key.hex = hex(sha256(delimited(key)));
  return key;
}

std::string text_field(std::string_view text) { return "sha256:" + hex(sha256(text)); }

std::string_view field(const Key& key, std::string_view name) {
  for (const auto& [field_name, value] : key.fields)
    if (field_name == name) return value;
  return {};
}

std::string delimited(const Key& key) {
  std::string bytes;
  const auto add = [&bytes](std::string_view text) {
    for (int i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(std::uint64_t{text.size()} >> (8 * i));
    bytes += text;
  };
  add(kDomain);
  for (const auto& [name, value] : key.fields) {
    add(name);
    add(value);
  }
  return bytes;
}

Result<Key> read_key(std::string_view bytes) {
  Key key;
  key.hex = hex(sha256(bytes));
  std::vector<std::string> fields;
  while (!bytes.empty()) {
    std::uint64_t length = 0;
    if (bytes.size() < kLengthBytes) return fail(Code::integrity, "fields of a key that end in a length");
    for (int i = 0; i < kLengthBytes; ++i) length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    bytes.remove_prefix(kLengthBytes);
    if (length > bytes.size()) return fail(Code::integrity, "a field of a key that is longer than all of it");
    fields.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  if (fields.empty() || fields[0] != kDomain || fields.size() % 2 == 0)
    return fail(Code::integrity, "bytes that are no fields of a key");
  for (std::size_t i = 1; i < fields.size(); i += 2)
    key.fields.emplace_back(std::move(fields[i]), std::move(fields[i + 1]));
  return key;
}

}  // namespace kvjit
