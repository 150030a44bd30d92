// Bundle: prebuilt kernels in one file, for machines without a compiler. It holds cache entries behind an index that is
// sorted by key:
//
//   header | index | entry ...          all little endian
//
// The header holds the SHA-256 of itself and the index; the index holds those of the entries. So opening reads header
// and index only, and an entry is read and checked on request. A signature covers the header's digest, and thereby the
// whole file. Equal entries give equal bytes.
//
// A bundle may also be a folder: manifest.json (runtime/store/manifest.hpp) and a file of machine code for each kernel.
// Folders cannot be signed.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/base/result.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/options.hpp"
#include "runtime/base/sha256.hpp"
#include "runtime/store/entry.hpp"
#include "runtime/store/entry_source.hpp"
#include "runtime/store/signature.hpp"

namespace kvjit {

// The bytes of a bundle. entries: in any order, each key once. The bundle holds no texts, and neither durations nor
// logs of compiles, which differ from one compile of a text to the next. signer: null for a bundle without signature.
std::vector<std::uint8_t> write_bundle(std::vector<CacheEntry> entries, const SigningKey* signer);

class Bundle {
 public:
  struct Item {
    Digest key;
    std::uint64_t at = 0,  // offset of the entry; in a folder: row of the manifest
        bytes = 0;         // size of the entry; in a folder: of the file
    Digest digest;         // SHA-256 of the entry; in a folder: of the file
    std::string arch;
    ArtefactKind kind = ArtefactKind::cubin;
  };
  // Opens a file or folder that only this user or root can write. Fails with integrity if it is damaged or others could
  // have written it, and with environment if the path does not exist.
  static Result<Bundle> open(const std::string& path);
  // Opens bytes, which must stay in place while the bundle is used. name: for messages.
  static Result<Bundle> open(std::span<const std::uint8_t> bytes, const std::string& name);

  const std::string& name() const { return name_; }
  const std::vector<Item>& items() const { return items_; }
  const std::optional<PublicKey>& signer() const { return signer_; }  // set if the bundle has a valid signature
  const Digest& digest() const { return digest_; }  // of header and index; in a folder: of the manifest
  std::string archs() const;                        // "sm_80, sm_90a"
  const Item* find(const Digest& key) const;        // null if there is none
  // The bytes of an entry, checked against the index. Fails with integrity if they do not match.
  Result<std::vector<std::uint8_t>> read(const Item& item) const { return reader_(item); }

 private:
  using Bytes = std::function<bool(std::uint64_t at, std::span<std::uint8_t> to)>;
  static Result<Bundle> open(Bytes bytes, std::uint64_t size, const std::string& name);
  static Result<Bundle> open_folder(std::shared_ptr<const File> folder, const std::string& name);
  std::string name_;
  std::function<Result<std::vector<std::uint8_t>>(const Item&)> reader_;
  std::vector<Item> items_;
  std::optional<PublicKey> signer_;
  Digest digest_{};
};

// The bundles of options as layers of the store. A bundle that cannot be used is reported to the log and left out, or
// fails if the options say so. With trusted keys, a bundle that none of them has signed fails with integrity.
Result<std::vector<std::unique_ptr<Layer>>> open_bundles(const Options& options);

}  // namespace kvjit
