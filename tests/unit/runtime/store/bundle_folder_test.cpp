// runtime/store/bundle_folder.cpp: bundles that are folders. Entries are read through the manifest, and damaged folders
// are refused.
// SPDX-License-Identifier: MIT
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/store/bundle.hpp"
#include "runtime/store/manifest.hpp"
#include "tests/unit/runtime/store/fake_world.hpp"

using namespace kvjit;
using namespace kvjit::test;

namespace {

CacheEntry entry_of(const Source& source) {
  CacheEntry entry{source.name, "fake 1.0", make_key(source, ArtefactKind::cubin, {"-fake"}), {}, {}};
  entry.artefact.bytes.assign(source.text.str().begin(), source.text.str().end());
  entry.artefact.registers = 21;
  return entry;
}

struct Folder : StoreFixture {
  Folder() : packed(folder + "/packed") {
    fs::create_directory(packed);
    fs::permissions(packed, fs::perms::owner_all);
    options.bundles = {packed};
    options.cache_dir = "off";
    write({entry_of(sample()), entry_of(sample("b"))});
  }
  void write(const std::vector<CacheEntry>& entries) {
    for (const CacheEntry& entry : entries)
      put(file_name(entry), {entry.artefact.bytes.begin(), entry.artefact.bytes.end()});
    put("manifest.json", write_manifest(entries));
  }
  void put(const std::string& name, const std::string& bytes) {
    std::ofstream(packed + "/" + name, std::ios::binary) << bytes;
    fs::permissions(packed + "/" + name, fs::perms::owner_read | fs::perms::owner_write);
  }
  std::string file() const { return packed + "/" + file_name(entry_of(sample())); }
  std::string packed;
};

}  // namespace

TEST_CASE_FIXTURE(Folder, "a folder serves its kernels, and what the compiler said of them") {
  put("unknown to the manifest", "x");
  const auto used = context();
  const auto record = used->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::bundle);
  CHECK(record->registers == 21);
  CHECK(text_of(*record) == "kernel text");
  CHECK(used->get(sample("b"))->origin == Origin::bundle);
  CHECK(used->get(sample("c"))->origin == Origin::compiled);
  CHECK(world.compiled == 1);
  CHECK(lines_with("warning") == 0);
}

TEST_CASE_FIXTURE(Folder, "what is wrong with a folder is said once, and is a miss") {
  std::string said;
  bool is_all_lost = true;  // false: only the kernel of one file is lost
  const std::string manifest = packed + "/manifest.json";
  SUBCASE("no manifest") { fs::remove(manifest), said = "manifest.json: No such file"; }
  SUBCASE("a damaged manifest") { fs::resize_file(manifest, 100), said = "manifest: no JSON"; }
  SUBCASE("a manifest that is too large") {
    fs::resize_file(manifest, kMaxManifestBytes + 1), said = "expected 67108864 at most";
  }
  SUBCASE("a manifest that others can write") {
    fs::permissions(manifest, fs::perms::group_write, fs::perm_options::add);
    said = "only this user or root can write";
  }
  SUBCASE("a manifest that is a link") {
    fs::rename(manifest, packed + "/other"), fs::create_symlink("other", manifest);
    said = "manifest.json: Too many levels of symbolic links";
  }
  SUBCASE("a folder that others can write") {
    fs::permissions(packed, fs::perms::others_write, fs::perm_options::add);
    said = "only this user or root can write";
  }
  SUBCASE("another version's") {
    put("manifest.json", "{\"kvjit\":\"9\",\"format\":2,\"kernels\":[]}"), said = "format 2; this version reads 1";
  }
  SUBCASE("a file that is gone") { fs::remove(file()), said = "No such file", is_all_lost = false; }
  SUBCASE("a shorter file") { fs::resize_file(file(), 5), said = "damaged entry", is_all_lost = false; }
  SUBCASE("a longer file") { fs::resize_file(file(), 12), said = "expected 11 at most", is_all_lost = false; }
  SUBCASE("a changed file") {
    put(fs::path(file()).filename(), "kernel tex2"), said = "damaged entry", is_all_lost = false;
  }
  SUBCASE("a file that is a link") {
    fs::rename(file(), packed + "/other"), fs::create_symlink("other", file());
    said = "Too many levels of symbolic links", is_all_lost = false;
  }
  SUBCASE("a file that is a pipe") {
    fs::remove(file());
    REQUIRE(mkfifo(file().c_str(), 0600) == 0);
    said = "not a regular file", is_all_lost = false;
  }
  SUBCASE("a file that others can write") {
    fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
    said = "only this user or root can write", is_all_lost = false;
  }
  const auto used = context();
  CHECK(used->get(sample())->origin == Origin::compiled);
  CHECK(used->get(sample("b"))->origin == (is_all_lost ? Origin::compiled : Origin::bundle));
  CHECK(lines_with("warning") == 1);
  CHECK_MESSAGE(lines_with(said) == 1, (lines.empty() ? "nothing said" : lines[0]));
}

TEST_CASE_FIXTURE(Folder, "with trusted keys a folder is refused: it cannot be signed") {
  options.trusted_keys = {hex(SigningKey::make()->public_key())};
  const auto opened = open_bundles(options);
  REQUIRE(!opened);
  CHECK(opened.error().code == Code::integrity);
  CHECK(opened.error().message == "bundle " + packed + ": not signed");
}
