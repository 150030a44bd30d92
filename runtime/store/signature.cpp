// Creates and reads keys, signs and verifies: see signature.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/signature.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium/core.h>
#include <sodium/crypto_sign.h>
#include <sodium/randombytes.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/sha256.hpp"

namespace kvjit {
namespace {

static_assert(sizeof(PublicKey) == crypto_sign_PUBLICKEYBYTES && sizeof(Signature) == crypto_sign_BYTES);

Result<std::array<std::uint8_t, 32>> read_hex(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  std::array<std::uint8_t, 32> bytes{};
  if (text.size() != 2 * bytes.size())
    return fail(Code::bad_input,
                fmt::format("{} letters where a key has {} hex digits", text.size(), 2 * bytes.size()));
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return fail(Code::bad_input, fmt::format("'{}' is no hex digit (0-9, a-f) of a key", c));
    bytes[i / 2] = static_cast<std::uint8_t>(bytes[i / 2] << 4 | digit);
  }
  return bytes;
}

}  // namespace

Result<SigningKey> SigningKey::make() {
  if (sodium_init() < 0) return fail(Code::environment, "libsodium found no randomness");
  std::array<std::uint8_t, 32> seed{};
  randombytes_buf(seed.data(), seed.size());
  return read(hex(seed));
}

Result<SigningKey> SigningKey::read(std::string_view text) {
  KV_TRY(seed, read_hex(text));
  SigningKey key;
  key.seed_ = seed;
  crypto_sign_seed_keypair(key.public_.data(), key.secret_.data(), seed.data());
  return key;
}

Result<SigningKey> SigningKey::read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(Code::environment, fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat status {};
  char text[256];
  const bool is_private = ::fstat(fd, &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  const ssize_t got = ::read(fd, text, sizeof text);
  ::close(fd);
  if (!is_private)
    return fail(Code::integrity, fmt::format("{}: others can read this signing key", path), {},
                {fmt::format("chmod 600 {}", path)});
  if (got < 0) return fail(Code::environment, fmt::format("{}: {}", path, std::strerror(errno)));
  auto key = read({text, static_cast<std::size_t>(got)});
  if (!key) key.error().message = path + ": " + key.error().message;
  return key;
}

std::string SigningKey::text() const { return hex(seed_); }

Signature SigningKey::sign(std::span<const std::uint8_t> message) const {
  Signature signature{};
  crypto_sign_detached(signature.data(), nullptr, message.data(), message.size(), secret_.data());
  return signature;
}

Result<PublicKey> read_public_key(std::string_view text) { return read_hex(text); }

bool is_signed(std::span<const std::uint8_t> message, const Signature& signature, const PublicKey& key) {
  return crypto_sign_verify_detached(signature.data(), message.data(), message.size(), key.data()) == 0;
}

}  // namespace kvjit
