// Ed25519 signatures (RFC 8032) over libsodium, which prove who made a bundle. Keys are 32 bytes, written as 64 hex
// digits.
// SPDX-License-Identifier: MIT
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "generator/base/result.hpp"

namespace kvjit {

using PublicKey = std::array<std::uint8_t, 32>;
using Signature = std::array<std::uint8_t, 64>;

class SigningKey {
 public:
  static Result<SigningKey> make();                              // a new key, from the system's randomness
  static Result<SigningKey> read(std::string_view text);         // 64 hex digits: the seed of RFC 8032
  static Result<SigningKey> read_file(const std::string& path);  // refuses a file that others than its owner can read
  std::string text() const;
  const PublicKey& public_key() const { return public_; }
  Signature sign(std::span<const std::uint8_t> message) const;

 private:
  std::array<std::uint8_t, 32> seed_{};
  std::array<std::uint8_t, 64> secret_{};
  PublicKey public_{};
};

Result<PublicKey> read_public_key(std::string_view text);
bool is_signed(std::span<const std::uint8_t> message, const Signature& signature, const PublicKey& key);

}  // namespace kvjit
