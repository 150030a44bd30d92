// Implements the readers: specs and every other kind of TOML file, hooks, .npy, safetensors, entries of the disk cache,
// bundles, manifests, replies of a server.
// SPDX-License-Identifier: MIT
#include "tests/fuzz/readers.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/layers.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/spec/layers.hpp"
#include "runtime/store/bundle.hpp"
#include "runtime/store/entry.hpp"
#include "runtime/store/manifest.hpp"
#include "runtime/store/remote.hpp"
#include "tools/io/npy.hpp"
#include "tools/io/safetensors.hpp"

namespace kvjit::test {
namespace {

const Registry& registry() {
  static const Registry loaded = Registry::load(embedded_files()).value();
  return loaded;
}

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

// Returns whether the input was accepted. Aborts if a refusal has no message.
template <class T>
bool is_taken(const Result<T>& result) {
  if (result) return true;
  if (result.error().message.empty()) {
    std::fputs("refused without a word\n", stderr);
    std::abort();
  }
  return false;
}

bool read_spec(std::span<const std::uint8_t> bytes) {
  const auto specs = parse_all(text_of(bytes), "fuzz.toml", registry());
  if (!is_taken(specs)) return false;
  for (const Spec& spec : *specs) (void)is_taken(resolve(spec, registry(), "sm_90a"));
  return true;
}
std::vector<Bytes> embedded(const std::string& folder) {
  std::vector<Bytes> seeds;
  for (const auto& [file, text] : embedded_files())
    if (file.starts_with(folder) && text.size() < 4096) seeds.push_back(bytes_of(text));
  return seeds;
}

// Reads a file of a caller's folder (--specs). The registry has only the built-in files that such a file may name,
// because loading all of them takes long.
template <const char* (*file)()>
bool read_file_of_specs(std::span<const std::uint8_t> bytes) {
  FileSet files;
  for (const auto& [name, text] : embedded_files())
    if (name.starts_with("specs/rotations/") || name.starts_with("templates/features/")) files[name] = text;
  files[file()] = std::string(text_of(bytes));
  return is_taken(Registry::load(files));
}
const char* format_file() { return "specs/formats/fuzz.toml"; }
const char* rotation_file() { return "specs/rotations/fuzz.toml"; }
const char* calibration_file() { return "specs/calibrations/fuzz.toml"; }
const char* hook_file() { return "specs/hooks/fuzz.cuh"; }
std::vector<Bytes> format_seeds() {
  return {
      bytes_of("title = \"fuzz\"\nblock = 32\n[[fields]]\nfield = \"codes\"\n[[fields]]\nfield = \"scale\"\n"
               "[codes]\nkind = \"table\"\nbits = 3\n[codebook]\nrule = \"lloyd_max\"\n[scale]\n"
               "rule = \"corrected_norm\"\n[accept]\nmax_relative_mse = 0.0355\n")};
}

bool read_npy_file(std::span<const std::uint8_t> bytes) {
  const auto npy = parse_npy({bytes.begin(), bytes.end()}, "fuzz.npy");
  if (!is_taken(npy)) return false;
  if (static_cast<long long>(npy->floats().size()) != npy->count()) std::abort();
  return true;
}
std::vector<Bytes> npy_seeds() {
  const Bytes elements(48, 1);
  return {npy_bytes(NpyType::f16, {2, 3, 4}, elements), npy_bytes(NpyType::f32, {12}, elements),
          npy_bytes(NpyType::f64, {6, 1}, elements), npy_bytes(NpyType::i8, {48}, elements)};
}

// Reads safetensors from a file in memory, because the reader takes a path.
bool read_safetensors(std::span<const std::uint8_t> bytes) {
  const int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  const auto opened = open_safetensors("/proc/self/fd/" + std::to_string(file));
  bool taken = is_taken(opened);
  if (taken)
    for (const auto& [name, tensor] : opened->tensors) taken &= is_taken(read_tensor(*opened, tensor));
  close(file);
  return taken;
}
std::vector<Bytes> safetensors_seeds() {
  const std::string header = R"({"__metadata__":{"x":"y"},"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}})";
  Bytes file(8);
  file[0] = static_cast<std::uint8_t>(header.size());
  file.insert(file.end(), header.begin(), header.end());
  file.resize(file.size() + 8);
  return {file};
}

CacheEntry sample_entry(const std::string& text) {
  CacheEntry entry;
  Source source;
  source.name = "decode.sample", source.entry = "decode", source.arch = "sm_90a", source.text = text;
  entry.name = source.name;
  entry.compiler = "sample 1.0";
  entry.key = make_key(source, ArtefactKind::cubin, {"-x"});
  entry.text = text;
  entry.artefact.bytes = bytes_of("machine code of " + text);
  return entry;
}
bool read_entry(std::span<const std::uint8_t> bytes) {
  static const std::string key = sample_entry("text").key.hex;
  return is_taken(decode_entry(key, bytes));
}
// Random mutations never produce a valid checksum, but an attacker can compute one. Sealed readers correct the checksum
// first, so that mutations reach the code behind it.
Digest digest_of(std::string_view domain, std::span<const std::uint8_t> first,
                 std::span<const std::uint8_t> second = {}) {
  Sha256 hash;
  hash.update_delimited(domain);
  hash.update(first);
  hash.update(second);
  return hash.finish();
}
bool read_sealed_entry(std::span<const std::uint8_t> bytes) {
  Bytes entry(bytes.begin(), bytes.end());
  if (entry.size() < sizeof(Digest)) return false;
  const std::size_t end = entry.size() - sizeof(Digest);
  std::ranges::copy(digest_of("kvjit cache entry", bytes.first(end)), entry.begin() + std::ptrdiff_t(end));
  return read_entry(entry);
}
std::vector<Bytes> entry_seeds() { return {encode_entry(sample_entry("text"))}; }

bool read_bundle(std::span<const std::uint8_t> bytes) {
  const auto bundle = Bundle::open(bytes, "fuzz.kvb");
  if (!is_taken(bundle)) return false;
  bool taken = true;
  for (const Bundle::Item& item : bundle->items()) taken &= is_taken(bundle->read(item));
  return taken;
}
bool read_sealed_bundle(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kEntriesAt = 12, kDigestAt = 24, kHeaderBytes = 152, kRowBytes = 96;
  Bytes bundle(bytes.begin(), bytes.end());
  if (bundle.size() < kHeaderBytes) return false;
  std::uint32_t entries = 0;
  std::memcpy(&entries, &bundle[kEntriesAt], sizeof entries);
  const auto index = std::span(bundle).subspan(kHeaderBytes);
  const auto rows = index.first(std::min<std::size_t>(index.size(), std::size_t{entries} * kRowBytes));
  std::ranges::copy(digest_of("kvjit bundle", std::span(bundle).first(kDigestAt), rows), bundle.begin() + kDigestAt);
  return read_bundle(bundle);
}
std::vector<Bytes> bundle_seeds() {
  return {write_bundle({sample_entry("a"), sample_entry("b")}, nullptr), write_bundle({}, nullptr)};
}

bool read_manifest_file(std::span<const std::uint8_t> bytes) {
  const auto rows = read_manifest(text_of(bytes));
  if (!is_taken(rows)) return false;
  for (const ManifestRow& row : *rows)
    if (row.file.find('/') != std::string::npos || !decode_entry(row.entry.key.hex, encode_entry(row.entry)))
      std::abort();
  return true;
}
std::vector<Bytes> manifest_seeds() {
  return {bytes_of(write_manifest({sample_entry("a"), sample_entry("b")})), bytes_of(write_manifest({}))};
}

bool read_reply(std::span<const std::uint8_t> bytes) {
  const auto action = decode_action(bytes);
  if (action && action->sha256.size() != 64) std::abort();
  return action.has_value();
}
std::vector<Bytes> reply_seeds() { return {encode_action({std::string(64, 'a'), 123456})}; }

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = {
      {"spec", read_spec, [] { return embedded("specs/attention/"); }},
      {"format", read_file_of_specs<format_file>, format_seeds},
      {"rotation", read_file_of_specs<rotation_file>, [] { return embedded("specs/rotations/"); }},
      {"calibration", read_file_of_specs<calibration_file>, [] { return embedded("specs/calibrations/"); }},
      {"hook", read_file_of_specs<hook_file>, [] { return embedded("specs/hooks/"); }},
      {"npy", read_npy_file, npy_seeds},
      {"safetensors", read_safetensors, safetensors_seeds},
      {"entry", read_entry, entry_seeds},
      {"sealed_entry", read_sealed_entry, entry_seeds},
      {"bundle", read_bundle, bundle_seeds},
      {"sealed_bundle", read_sealed_bundle, bundle_seeds},
      {"manifest", read_manifest_file, manifest_seeds},
      {"reply", read_reply, reply_seeds}};
  return all;
}

}  // namespace kvjit::test
