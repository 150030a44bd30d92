// Writes, opens and searches bundles in one file or in memory: see bundle.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>
#include <type_traits>

namespace kvjit {
namespace {

static_assert(std::endian::native == std::endian::little, "bundles are written as little-endian structs");

constexpr char kMagic[8] = {'k', 'v', 'j', 'i', 't', 'k', 'v', 'b'};
constexpr std::uint32_t kBundleFormat = 1;
constexpr std::uint64_t kMostEntries = 1 << 20;

struct Header {
  char magic[8];
  std::uint32_t format, entries;
  std::uint64_t file_bytes;
  std::uint8_t digest[32];     // SHA-256 of the fields above and the index
  std::uint8_t signer[32];     // all zero: not signed
  std::uint8_t signature[64];  // over the digest, behind a domain tag
};
constexpr std::size_t kDigestedBytes = offsetof(Header, digest);
struct IndexRow {
  std::uint8_t key[32];
  std::uint64_t at, bytes;
  std::uint8_t digest[32];  // SHA-256 of the entry
  char arch[12];            // "sm_90a", padded with zeros
  std::uint32_t kind;
};
static_assert(sizeof(Header) == 152 && sizeof(IndexRow) == 96 && std::is_trivially_copyable_v<IndexRow>,
              "no padding: this is a file format");

void append(std::vector<std::uint8_t>& to, std::span<const std::uint8_t> bytes) {
  const std::size_t at = to.size();
  to.resize(at + bytes.size());
  if (!bytes.empty()) std::memcpy(to.data() + at, bytes.data(), bytes.size());
}

template <class Struct>
std::span<const std::uint8_t> bytes_of(const Struct& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
}

Digest digest_of(const Header& header, std::span<const std::uint8_t> index) {
  Sha256 hash;
  hash.update_delimited("kvjit bundle");
  hash.update(bytes_of(header).first(kDigestedBytes));
  hash.update(index);
  return hash.finish();
}

std::vector<std::uint8_t> signed_message(const Digest& digest) {
  constexpr std::string_view kDomain = "kvjit bundle signature ";
  std::vector<std::uint8_t> message(kDomain.begin(), kDomain.end());
  append(message, digest);
  return message;
}

Digest digest_of(std::span<const std::uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

}  // namespace

std::vector<std::uint8_t> write_bundle(std::vector<CacheEntry> entries, const SigningKey* signer) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.key.hex < b.key.hex; });
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format = kBundleFormat;
  header.entries = static_cast<std::uint32_t>(entries.size());
  std::vector<IndexRow> rows(entries.size());
  std::vector<std::uint8_t> body;
  const std::uint64_t body_at = sizeof header + entries.size() * sizeof(IndexRow);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    CacheEntry& entry = entries[i];
    entry.text.clear();
    entry.artefact.log.clear();
    entry.artefact.compile_ms = 0;
    const auto bytes = encode_entry(entry);
    IndexRow& row = rows[i];
    const Digest key = sha256(delimited(entry.key)), digest = digest_of(bytes);
    std::memcpy(row.key, key.data(), key.size());
    std::memcpy(row.digest, digest.data(), digest.size());
    const std::string_view arch = field(entry.key, "arch");
    std::memcpy(row.arch, arch.data(), std::min(arch.size(), sizeof row.arch - 1));
    row.kind = static_cast<std::uint32_t>(entry.artefact.kind);
    row.at = body_at + body.size();
    row.bytes = bytes.size();
    append(body, bytes);
  }
  header.file_bytes = body_at + body.size();
  const std::span index(reinterpret_cast<const std::uint8_t*>(rows.data()), rows.size() * sizeof(IndexRow));
  const Digest digest = digest_of(header, index);
  std::memcpy(header.digest, digest.data(), digest.size());
  if (signer) {
    const Signature signature = signer->sign(signed_message(digest));
    std::memcpy(header.signer, signer->public_key().data(), sizeof header.signer);
    std::memcpy(header.signature, signature.data(), sizeof header.signature);
  }
  std::vector<std::uint8_t> file;
  for (const auto bytes : {bytes_of(header), index, std::span<const std::uint8_t>(body)}) append(file, bytes);
  return file;
}

Result<Bundle> Bundle::open(const std::string& path) {
  const std::string name = "bundle " + path;
  const auto file = std::make_shared<const File>(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!*file) return fail(Code::environment, fmt::format("{}: {}", name, std::strerror(errno)));
  struct stat status {};
  const bool is_known = ::fstat(file->fd(), &status) == 0 && is_only_ours(status);
  if (!is_known || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
    return fail(Code::integrity, name + ": not a regular file or folder that only this user or root can write");
  if (S_ISDIR(status.st_mode)) return open_folder(file, name);
  return open([file](std::uint64_t at, std::span<std::uint8_t> to) { return read_at(*file, at, to); },
              static_cast<std::uint64_t>(status.st_size), name);
}

Result<Bundle> Bundle::open(std::span<const std::uint8_t> bytes, const std::string& name) {
  return open(
      [bytes](std::uint64_t at, std::span<std::uint8_t> to) {
        if (at > bytes.size() || to.size() > bytes.size() - at) return false;
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
        return true;
      },
      bytes.size(), name);
}

Result<Bundle> Bundle::open(Bytes reader, std::uint64_t size, const std::string& name) {
  const auto damaged = [&name](const std::string& why) {
    return fail(Code::integrity, fmt::format("{}: damaged: {}", name, why));
  };
  Header header{};
  if (size < sizeof header || !reader(0, {reinterpret_cast<std::uint8_t*>(&header), sizeof header}))
    return damaged("shorter than its header");
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return damaged("not a bundle of kernels");
  if (header.format != kBundleFormat)
    return damaged(fmt::format("format {}; this version reads {}", header.format, kBundleFormat));
  if (header.file_bytes != size) return damaged(fmt::format("{} of {} bytes", size, header.file_bytes));
  const std::uint64_t body_at = sizeof header + header.entries * std::uint64_t{sizeof(IndexRow)};
  if (header.entries > kMostEntries || body_at > size) return damaged("an index that is larger than the file");
  std::vector<std::uint8_t> index(body_at - sizeof header);
  if (!reader(sizeof header, index)) return damaged("an index that cannot be read");

  Bundle bundle;
  bundle.name_ = name;
  bundle.digest_ = digest_of(header, index);
  if (std::memcmp(bundle.digest_.data(), header.digest, sizeof header.digest) != 0) return damaged("checksum");
  const auto is_set = [](std::span<const std::uint8_t> bytes) {
    return std::any_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte != 0; });
  };
  if (is_set(header.signer) || is_set(header.signature)) {
    PublicKey signer;
    Signature signature;
    std::memcpy(signer.data(), header.signer, signer.size());
    std::memcpy(signature.data(), header.signature, signature.size());
    if (!is_signed(signed_message(bundle.digest_), signature, signer)) return damaged("signature");
    bundle.signer_ = signer;
  }
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    IndexRow row;
    std::memcpy(&row, index.data() + i * sizeof row, sizeof row);
    if (row.at < body_at || row.at > size || row.bytes > size - row.at || row.bytes > kMaxEntryBytes)
      return damaged(fmt::format("entry {} lies outside", i));
    Item item{{}, row.at, row.bytes, {}, {}, static_cast<ArtefactKind>(row.kind)};
    std::memcpy(item.key.data(), row.key, item.key.size());
    std::memcpy(item.digest.data(), row.digest, item.digest.size());
    item.arch.assign(row.arch, strnlen(row.arch, sizeof row.arch));
    if (i > 0 && !(bundle.items_.back().key < item.key)) return damaged("an index out of order");
    bundle.items_.push_back(std::move(item));
  }
  bundle.reader_ = [reader = std::move(reader), name](const Item& item) -> Result<std::vector<std::uint8_t>> {
    std::vector<std::uint8_t> bytes(item.bytes);
    if (!reader(item.at, bytes)) return fail(Code::integrity, fmt::format("{}: an entry cannot be read", name));
    if (digest_of(bytes) != item.digest) return fail(Code::integrity, fmt::format("{}: damaged entry", name));
    return bytes;
  };
  return bundle;
}

std::string Bundle::archs() const {
  std::set<std::string> archs;
  for (const Item& item : items_) archs.insert(item.arch);
  return fmt::format("{}", fmt::join(archs, ", "));
}

const Bundle::Item* Bundle::find(const Digest& key) const {
  const auto at = std::lower_bound(items_.begin(), items_.end(), key,
                                   [](const Item& item, const Digest& k) { return item.key < k; });
  return at != items_.end() && at->key == key ? &*at : nullptr;
}

}  // namespace kvjit
