// SHA-256 (FIPS 180-4) over libsodium, and hexadecimal text.
// SPDX-License-Identifier: MIT
#pragma once
#include <sodium/crypto_hash_sha256.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvjit {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::uint8_t> bytes);
  void update(std::string_view text);
  // Hashes the length (8 bytes, little endian), then the bytes. So two lists of strings that join to the same bytes
  // have different digests.
  void update_delimited(std::string_view text);
  Digest finish();

 private:
  crypto_hash_sha256_state state_;
};

Digest sha256(std::string_view text);
std::string hex(std::span<const std::uint8_t> bytes);
std::optional<Digest> read_digest(std::string_view hex);  // 64 digits 0-9 and a-f; else none

}  // namespace kvjit
