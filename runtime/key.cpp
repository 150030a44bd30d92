// The request key: SHA-256 over a domain tag and length-delimited (name, value) pieces.
// SPDX-License-Identifier: MIT
#include "runtime/key.hpp"

#include "runtime/sha256.hpp"

namespace kvjit {

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
                {"text", "sha256:" + hex(sha256(source.text))}};
  for (const auto& option : options) key.pieces.emplace_back("option", option);

  Sha256 hash;
  hash.update_delimited("kvjit request key");
  for (const auto& [name, value] : key.pieces) {
    hash.update_delimited(name);
    hash.update_delimited(value);
  }
  key.hex = hex(hash.finish());
  return key;
}

}  // namespace kvjit
