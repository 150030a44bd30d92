// Writes and checks the bytes of a cache entry: see entry.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/entry.hpp"

#include <unistd.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "runtime/base/sha256.hpp"
#include "runtime/store/key.hpp"

namespace kvjit {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are written as little-endian structs");

struct Header {
  char magic[8];
  std::uint32_t format, kind;
  std::int32_t registers, stack_bytes, spill_store_bytes, spill_load_bytes;
  double compile_ms;
  std::uint32_t name_bytes, compiler_bytes;
  std::uint64_t fields_bytes, text_bytes, log_bytes, payload_bytes;
};
static_assert(sizeof(Header) == 80 && std::is_trivially_copyable_v<Header>, "no padding: this is a file format");

constexpr char kMagic[8] = {'k', 'v', 'j', 'i', 't', 'k', 'v', 'c'};
constexpr std::size_t kDigestBytes = sizeof(Digest);

Digest checksum(std::span<const std::uint8_t> bytes) {
  Sha256 hash;
  hash.update_delimited("kvjit cache entry");
  hash.update(bytes);
  return hash.finish();
}

tl::unexpected<Error> damaged(const std::string& why) { return fail(Code::integrity, "damaged cache entry: " + why); }

}  // namespace

bool is_only_ours(const struct stat& status) {
  return (status.st_uid == ::geteuid() || status.st_uid == 0) && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::vector<std::uint8_t> encode_entry(const CacheEntry& entry) {
  const Artefact& artefact = entry.artefact;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format = kCacheFormat;
  header.kind = static_cast<std::uint32_t>(artefact.kind);
  header.registers = artefact.registers;
  header.stack_bytes = artefact.stack_bytes;
  header.spill_store_bytes = artefact.spill_store_bytes;
  header.spill_load_bytes = artefact.spill_load_bytes;
  header.compile_ms = artefact.compile_ms;
  header.name_bytes = static_cast<std::uint32_t>(entry.name.size());
  header.compiler_bytes = static_cast<std::uint32_t>(entry.compiler.size());
  const std::string fields = delimited(entry.key);
  header.fields_bytes = fields.size();
  header.text_bytes = entry.text.size();
  header.log_bytes = artefact.log.size();
  header.payload_bytes = artefact.bytes.size();

  std::vector<std::uint8_t> bytes;
  bytes.reserve(sizeof header + entry.name.size() + entry.compiler.size() + fields.size() + entry.text.size() +
                artefact.log.size() + artefact.bytes.size() + kDigestBytes);
  const auto append = [&bytes](const void* from, std::size_t count) {
    const auto* begin = static_cast<const std::uint8_t*>(from);
    bytes.insert(bytes.end(), begin, begin + count);
  };
  append(&header, sizeof header);
  append(entry.name.data(), entry.name.size());
  append(entry.compiler.data(), entry.compiler.size());
  append(fields.data(), fields.size());
  append(entry.text.data(), entry.text.size());
  append(artefact.log.data(), artefact.log.size());
  append(artefact.bytes.data(), artefact.bytes.size());
  const Digest digest = checksum(bytes);
  append(digest.data(), digest.size());
  return bytes;
}

Result<CacheEntry> decode_entry(std::string_view key_hex, std::span<const std::uint8_t> bytes) {
  Header header;
  if (bytes.size() < sizeof header + kDigestBytes) return damaged("shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return damaged("not an entry of this cache");
  if (header.format != kCacheFormat) return damaged("format " + std::to_string(header.format));

  const auto body = bytes.first(bytes.size() - kDigestBytes);
  const Digest digest = checksum(body);
  if (std::memcmp(digest.data(), bytes.data() + body.size(), kDigestBytes) != 0) return damaged("checksum");

  // Each length is compared with the bytes left, even after a valid checksum, because the sum of all could wrap around.
  std::uint64_t left = body.size() - sizeof header;
  for (const std::uint64_t size : {std::uint64_t{header.name_bytes}, std::uint64_t{header.compiler_bytes},
                                   header.fields_bytes, header.text_bytes, header.log_bytes, header.payload_bytes}) {
    if (size > left) return damaged("lengths exceed the file");
    left -= size;
  }
  if (left != 0) return damaged("bytes left over");

  const std::uint8_t* at = bytes.data() + sizeof header;
  const auto take = [&at](std::uint64_t count) {
    const auto* begin = reinterpret_cast<const char*>(at);
    at += count;
    return std::string(begin, count);
  };
  CacheEntry entry;
  entry.name = take(header.name_bytes);
  entry.compiler = take(header.compiler_bytes);
  auto key = read_key(take(header.fields_bytes));
  if (!key) return damaged(key.error().message);
  if (key->hex != key_hex) return damaged("made for another key");
  entry.key = std::move(*key);
  entry.text = take(header.text_bytes);
  if (!entry.text.empty() && field(entry.key, "text") != text_field(entry.text)) return damaged("of another text");
  Artefact& artefact = entry.artefact;
  artefact.log = take(header.log_bytes);
  artefact.bytes.assign(at, at + header.payload_bytes);
  artefact.kind = static_cast<ArtefactKind>(header.kind);
  artefact.registers = header.registers;
  artefact.stack_bytes = header.stack_bytes;
  artefact.spill_store_bytes = header.spill_store_bytes;
  artefact.spill_load_bytes = header.spill_load_bytes;
  artefact.compile_ms = header.compile_ms;
  return entry;
}

}  // namespace kvjit
