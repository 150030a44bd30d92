// Implements the readers: specs and every other kind of TOML file, hooks, .npy, safetensors, entries of the disk cache,
// bundles, manifests, replies of a server, folders of --specs, and the command line.
// SPDX-License-Identifier: MIT
#include "tests/fuzz/readers.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "generator/catalogue/registry.hpp"
#include "generator/resolve/layers.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/spec/hook_grammar.hpp"
#include "generator/spec/hook_words.hpp"
#include "generator/spec/layers.hpp"
#include "runtime/api/specs_folder.hpp"
#include "runtime/store/bundle.hpp"
#include "runtime/store/entry.hpp"
#include "runtime/store/manifest.hpp"
#include "runtime/store/remote.hpp"
#include "tools/cli/cli.hpp"
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
FileSet few_files() {
  FileSet files;
  for (const auto& [name, text] : embedded_files())
    if (name.starts_with("specs/rotations/") || name.starts_with("templates/features/")) files[name] = text;
  return files;
}
template <const char* (*file)()>
bool read_file_of_specs(std::span<const std::uint8_t> bytes) {
  FileSet files = few_files();
  files[file()] = std::string(text_of(bytes));
  return is_taken(Registry::load(files));
}
const char* format_file() { return "specs/formats/fuzz.toml"; }
const char* rotation_file() { return "specs/rotations/fuzz.toml"; }
const char* calibration_file() { return "specs/calibrations/fuzz.toml"; }
std::vector<Bytes> format_seeds() {
  return {
      bytes_of("title = \"fuzz\"\nblock = 32\n[[fields]]\nfield = \"codes\"\n[[fields]]\nfield = \"scale\"\n"
               "[codes]\nkind = \"table\"\nbits = 3\n[codebook]\nrule = \"lloyd_max\"\n[scale]\n"
               "rule = \"corrected_norm\"\n[accept]\nmax_relative_mse = 0.0355\n")};
}

// Whether the text is tokens of the grammar of hooks, each behind one blank at most. It shares no code with the reader.
bool is_tokens_of_hooks(std::string_view text) {
  const auto starts = [&](auto is_part) {
    std::size_t end = 0;
    while (end < text.size() && is_part(text[end])) ++end;
    return end;
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  while (!text.empty()) {
    if (text[0] == ' ') text.remove_prefix(1);
    if (text.empty()) return false;
    std::size_t length = 0;
    if (is_digit(text[0])) {
      length = starts([&](char c) { return is_digit(c) || c == '.'; });
      if (length < text.size() && text[length] == 'e') {
        length += length + 1 < text.size() && (text[length + 1] == '+' || text[length + 1] == '-') ? 2 : 1;
        while (length < text.size() && is_digit(text[length])) ++length;
      }
      if (length < text.size() && text[length] == 'f') ++length;
      if (length < text.size() && is_letter(text[length])) return false;
    } else if (is_letter(text[0])) {
      length = starts([&](char c) { return is_letter(c) || is_digit(c); });
      const std::string_view word = text.substr(0, length);
      const auto is_it = [&](const auto& one) { return one.name == word; };
      if (!std::ranges::any_of(hook_names(), is_it) && !std::ranges::any_of(hook_functions(), is_it)) return false;
    } else {
      for (const char* symbol : {"<= ", ">= ", "== ", "!= ", "&& ", "|| "})
        if (text.starts_with(symbol)) length = 3;
      if (length == 0 && std::string_view("()+-*/%<>!?:,").find(text[0]) != std::string_view::npos) length = 1;
      for (const char* other : {"--", "++", "//", "/*", "<:", "<%", "%:", "%>", ":>", "->", "<<", ">>", "::"})
        if (length == 1 && text.starts_with(other)) return false;
      if (length == 0) return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

// Aborts unless an accepted hook is printed as tokens of the grammar, and the print parses to itself.
bool read_hook(std::span<const std::uint8_t> bytes) {
  const auto hook = parse_hook(text_of(bytes), "specs/hooks/fuzz.cuh");
  if (!is_taken(hook)) {
    if (hook.error().where.line < 1 || hook.error().where.column < 1) std::abort();
    return false;
  }
  const auto again = hook_expression({hook->expression, "specs/hooks/fuzz.cuh"});
  if (!is_tokens_of_hooks(hook->expression) || !again || *again != hook->expression) std::abort();
  return true;
}
std::vector<Bytes> hook_seeds() {
  std::vector<Bytes> seeds = embedded("specs/hooks/");
  seeds.push_back(bytes_of("// a\nscore * 2.f + (token > 3 || !(head == 1) && query != 2 ? token % 4 : -1e-3)\n"));
  std::string calls = "0";
  for (const HookFunction& one : hook_functions())
    calls += " + " + std::string(one.name) +
             (one.arguments == 1   ? "(score)"
              : one.arguments == 2 ? "(1, head)"
                                   : "(1, .5, 2.)");
  seeds.push_back(bytes_of(calls));
  return seeds;
}

// A folder for --specs, from bytes: a line "== PATH" begins each file. Paths outside the folder, and names that could
// be one, make no file.
bool read_specs_folder(std::span<const std::uint8_t> bytes) {
  namespace fs = std::filesystem;
  static const fs::path folder = [] {
    std::string name = (fs::temp_directory_path() / "kvjit-fuzz-XXXXXX").string();
    if (!mkdtemp(name.data())) std::abort();
    static const struct Remover {
      std::string path;
      ~Remover() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
      }
    } remover{name};
    return fs::path(name);
  }();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder)) fs::remove_all(entry.path(), ignored);
  constexpr std::string_view kMark = "== ";
  std::string_view text = text_of(bytes);
  for (int count = 0; count < 8 && text.starts_with(kMark); ++count) {
    const std::size_t line = std::min(text.find('\n'), text.size());
    const std::string name(text.substr(kMark.size(), line - kMark.size()));
    text.remove_prefix(std::min(line + 1, text.size()));
    const std::size_t next = text.find("\n== ");
    const std::string_view content = text.substr(0, next == std::string_view::npos ? next : next + 1);
    text.remove_prefix(content.size());
    const bool is_path = name.size() < 100 && !name.starts_with('/') && name.find("..") == std::string::npos &&
                         name.find('\0') == std::string::npos;
    if (!is_path) continue;
    fs::create_directories((folder / name).parent_path(), ignored);
    std::ofstream(folder / name, std::ios::binary) << content;
  }
  FileSet files = few_files();
  FileNames shown_as;
  if (!is_taken(add_specs_folder(files, shown_as, folder.string()))) return false;
  // Files beside the subfolders are listed and not read.
  for (const auto& [name, path] : shown_as) {
    const bool is_beside = name.starts_with("specs/") && name.find('/', 6) == std::string::npos;
    if (!name.starts_with("specs/") || (!is_beside && !files.contains(name)) || !path.starts_with(folder.string()))
      std::abort();
  }
  return is_taken(Registry::load(files, shown_as));
}
std::vector<Bytes> specs_folder_seeds() {
  std::string all = "== formats/fuzz.toml\n" + std::string(text_of(format_seeds()[0]));
  std::vector<Bytes> seeds = {bytes_of(all)};
  for (const char* folder : {"specs/rotations/", "specs/hooks/", "specs/calibrations/", "specs/policies/"})
    for (const Bytes& text : embedded(folder)) {
      const bool is_hook = std::string_view(folder) == "specs/hooks/";
      all = std::string("== ") + (folder + 6) + (is_hook ? "x.cuh\n" : "x.toml\n") + std::string(text_of(text));
      if (read_specs_folder(bytes_of(all))) seeds.push_back(bytes_of(all));
    }
  seeds.push_back(bytes_of(std::string(text_of(seeds[0])) + "\n" + all));
  return seeds;
}

// A command line: one word a line. It is parsed, and no verb runs.
bool read_command(std::span<const std::uint8_t> bytes) {
  std::vector<std::string> words;
  for (std::string_view text = text_of(bytes); !text.empty() && words.size() < 64;) {
    const std::string_view word = text.substr(0, text.find_first_of(std::string_view("\n\0", 2)));
    words.emplace_back(word);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  Cli cli;
  const auto parsed = parse_command_line(words, cli);
  if (is_taken(parsed) != static_cast<bool>(cli.action) && parsed) std::abort();
  if (!parsed && parsed.error().code != Code::usage) std::abort();
  return parsed.has_value();
}
std::vector<Bytes> command_seeds() {
  std::vector<Bytes> seeds;
  for (const char* words :
       {"check\ns.toml", "--json\nemit\ns.toml\n--arch\nsm_90a\n--kernel\ndecode", "verify\ns.toml\n--tokens\n64",
        "verify\n--fuzz\n20\n--seed\n1", "run\ns.toml\n--q\nq.npy\n--k\nk.npy\n--v\nv.npy\n-o\no.npy",
        "doctor\n--device\ncpu", "formats\nkv4", "cache\ngc", "help\ncache\ngc", "--version", "pack\ns.toml\n-o\na.kvb",
        "--help"})
    seeds.push_back(bytes_of(words));
  return seeds;
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
      {"hook", read_hook, hook_seeds},
      {"specs_folder", read_specs_folder, specs_folder_seeds},
      {"command", read_command, command_seeds},
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
