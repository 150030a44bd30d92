// Opens bundles that are folders. The manifest is checked before a file of it is opened or memory is allocated for one,
// and each file is checked against the manifest before it is used.
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/store/bundle.hpp"
#include "runtime/store/manifest.hpp"

namespace kvjit {
namespace {

// Reads a regular file of the folder that nobody else can write. Links are not followed, and a file of more than `most`
// bytes is not read.
Result<std::vector<std::uint8_t>> read_file(const File& folder, const std::string& file, std::uint64_t most) {
  const File opened(::openat(folder.fd(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!opened) return fail(Code::integrity, fmt::format("{}: {}", file, std::strerror(errno)));
  struct stat status {};
  if (::fstat(opened.fd(), &status) != 0 || !S_ISREG(status.st_mode) || !is_only_ours(status))
    return fail(Code::integrity, file + ": not a regular file that only this user or root can write");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > most) return fail(Code::integrity, fmt::format("{}: {} bytes, expected {} at most", file, size, most));
  std::vector<std::uint8_t> bytes(size);
  if (!read_at(opened, 0, bytes)) return fail(Code::integrity, file + ": cannot be read");
  return bytes;
}

std::string_view text_of(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<Bundle> Bundle::open_folder(std::shared_ptr<const File> folder, const std::string& name) {
  const auto named = [&name](const Error& error) {
    return fail(Code::integrity, fmt::format("{}: {}", name, error.message));
  };
  const auto text = read_file(*folder, "manifest.json", kMaxManifestBytes);
  if (!text) return named(text.error());
  auto read = read_manifest(text_of(*text));
  if (!read) return named(read.error());
  const auto rows = std::make_shared<const std::vector<ManifestRow>>(std::move(*read));

  Bundle bundle;
  bundle.name_ = name;
  bundle.digest_ = sha256(text_of(*text));
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const ManifestRow& row = (*rows)[i];
    const Key& key = row.entry.key;
    bundle.items_.push_back(
        {sha256(delimited(key)), i, row.bytes, row.sha256, std::string(field(key, "arch")), row.entry.artefact.kind});
  }
  std::sort(bundle.items_.begin(), bundle.items_.end(), [](const Item& a, const Item& b) { return a.key < b.key; });
  bundle.reader_ = [folder, rows, name](const Item& item) -> Result<std::vector<std::uint8_t>> {
    const ManifestRow& row = (*rows)[item.at];
    auto bytes = read_file(*folder, row.file, row.bytes);
    if (!bytes) return fail(Code::integrity, fmt::format("{}: {}", name, bytes.error().message));
    if (bytes->size() != row.bytes || sha256(text_of(*bytes)) != item.digest)
      return fail(Code::integrity, fmt::format("{}: damaged entry {}", name, row.file));
    CacheEntry entry = row.entry;
    entry.artefact.bytes = std::move(*bytes);
    return encode_entry(entry);
  };
  return bundle;
}

}  // namespace kvjit
