// Bundle: prebuilt kernels in one file, for machines without a compiler. Entries of the cache behind an index that is
// sorted by key:
//
//   header | index | entry ...          all little endian
//
// The header holds the SHA-256 of itself and the index, the index those of the entries: opening reads header and index
// only, an entry is read and checked when it is asked for. A signature covers that one digest, and so everything. The
// same entries give the same bytes.
//
// Or a folder: manifest.json (runtime/store/manifest.hpp), and each kernel's machine code as a file of its own. It is
// not signed.
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

// Entries in any order, each key once. What differs from one compile of a text to the next (its time, the log) is left
// out, and so is the text. signer: may be null.
std::vector<std::uint8_t> write_bundle(std::vector<CacheEntry> entries, const SigningKey* signer);

class Bundle {
 public:
  struct Item {
    Digest key;
    std::uint64_t at = 0, bytes = 0;  // of a folder: which row of the manifest, and the bytes of its file
    Digest digest;                    // of the entry; of a folder: of that file
    std::string arch;
    ArtefactKind kind = ArtefactKind::cubin;
  };
  // A file or folder that only this user or root can write. Fails with integrity (damaged, foreign) or environment (not
  // there).
  static Result<Bundle> open(const std::string& path);
  // Bytes that stay where they are for as long as the bundle is used.
  static Result<Bundle> open(std::span<const std::uint8_t> bytes, const std::string& name);

  const std::string& name() const { return name_; }
  const std::vector<Item>& items() const { return items_; }
  const std::optional<PublicKey>& signer() const { return signer_; }  // its signature holds
  const Digest& digest() const { return digest_; }  // of header and index; of a folder: of its manifest
  std::string archs() const;                        // "sm_80, sm_90a"
  const Item* find(const Digest& key) const;
  // The bytes of an entry, checked against the index. Fails with integrity.
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

// The bundles of options as layers. One that cannot be used is said and left out; with trusted keys, one that none of
// them has signed fails with integrity.
Result<std::vector<std::unique_ptr<Layer>>> open_bundles(const Options& options);

}  // namespace kvjit
