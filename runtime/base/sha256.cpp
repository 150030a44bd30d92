// Computes SHA-256 by libsodium, and converts digests to hexadecimal text: see sha256.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/base/sha256.hpp"

namespace kvjit {

Sha256::Sha256() { crypto_hash_sha256_init(&state_); }

void Sha256::update(std::span<const std::uint8_t> bytes) {
  crypto_hash_sha256_update(&state_, bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text) {
  update(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

void Sha256::update_delimited(std::string_view text) {
  std::array<std::uint8_t, 8> length;
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(std::uint64_t{text.size()} >> (8 * i));
  update(length);
  update(text);
}

Digest Sha256::finish() {
  Digest digest;
  crypto_hash_sha256_final(&state_, digest.data());
  return digest;
}

Digest sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const auto byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::optional<Digest> read_digest(std::string_view hex) {
  Digest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    digest[i / 2] = static_cast<std::uint8_t>(digest[i / 2] << 4 | digit);
  }
  return digest;
}

}  // namespace kvjit
