// runtime/store/disk_cache.cpp and entry.cpp: entries are published, looked up, checked, quarantined and swept.
// SPDX-License-Identifier: MIT
#include "runtime/store/disk_cache.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/support/registry.hpp"
#include "tests/support/temp_folder.hpp"

using namespace kvjit;
using kvjit::test::must;
namespace fs = std::filesystem;

namespace {

Key key_of(const std::string& text) {
  Source source;
  source.text = text;
  return make_key(source, ArtefactKind::cubin, {});
}

CacheEntry sample(const Key& key, std::size_t bytes = 1000) {
  CacheEntry entry;
  entry.key = key;
  entry.name = "decode.sample";
  entry.compiler = "fake 1.0";
  entry.artefact.kind = ArtefactKind::ptx;
  for (std::size_t i = 0; i < bytes; ++i) entry.artefact.bytes.push_back(static_cast<std::uint8_t>(i * 7));
  entry.artefact.registers = 40;
  entry.artefact.stack_bytes = 16;
  entry.artefact.spill_store_bytes = 4;
  entry.artefact.spill_load_bytes = 8;
  entry.artefact.compile_ms = 12.5;
  entry.artefact.log = "ptxas info";
  return entry;
}

// A cache over `folder`, and its log messages.
struct Logged {
  explicit Logged(const std::string& folder, std::uint64_t max_bytes = 1 << 30) : cache(options(folder, max_bytes)) {}
  Options options(const std::string& folder, std::uint64_t max_bytes) {
    Options made;
    made.cache_dir = folder;
    made.cache_max_bytes = max_bytes;
    made.log = [this](const std::string& line) { lines.push_back(line); };
    return made;
  }
  std::vector<std::string> lines;
  Cache cache;
};

std::string path_of(const std::string& folder, const Key& key) {
  return folder + "/v2/" + key.hex.substr(0, 2) + "/" + key.hex + ".kvc";
}

void set_age(const std::string& path, long seconds) {
  const std::time_t then = std::time(nullptr) - seconds;
  const timespec times[2] = {{then, 0}, {then, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

}  // namespace

TEST_CASE("an entry reads back as it was written") {
  const Key key = key_of("a");
  const auto bytes = encode_entry(sample(key));
  const auto entry = decode_entry(key.hex, bytes);
  REQUIRE(entry);
  CHECK(entry->name == "decode.sample");
  CHECK(entry->compiler == "fake 1.0");
  CHECK(entry->artefact.kind == ArtefactKind::ptx);
  CHECK(entry->artefact.bytes == sample(key).artefact.bytes);
  CHECK(entry->artefact.registers == 40);
  CHECK(entry->artefact.stack_bytes == 16);
  CHECK(entry->artefact.spill_store_bytes == 4);
  CHECK(entry->artefact.spill_load_bytes == 8);
  CHECK(entry->artefact.compile_ms == 12.5);
  CHECK(entry->artefact.log == "ptxas info");
}

TEST_CASE("every flipped byte and every truncation of an entry is seen") {
  const Key key = key_of("a");
  const auto whole = encode_entry(sample(key, 100));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    auto bytes = whole;
    bytes[i] ^= 1;
    CHECK(!decode_entry(key.hex, bytes));
    CHECK(!decode_entry(key.hex, std::span(whole).first(i)));
  }
  auto longer = whole;
  longer.push_back(0);
  CHECK(!decode_entry(key.hex, longer));
  const auto renamed = decode_entry(key_of("b").hex, whole);
  REQUIRE(!renamed);
  CHECK(renamed.error().message == "damaged cache entry: made for another key");
}

TEST_CASE("publish, then read: from another cache object too") {
  const test::TempFolder folder;
  const Key key = key_of("a");
  Logged first(folder.path);
  CHECK(!first.cache.read(key));
  first.cache.publish(sample(key));
  Logged second(folder.path);
  const auto entry = second.cache.read(key);
  REQUIRE(entry);
  CHECK(entry->artefact.bytes == sample(key).artefact.bytes);
  CHECK(!second.cache.read(key_of("b")));
  CHECK(first.lines.empty());

  struct stat status {};
  REQUIRE(stat(path_of(folder.path, key).c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  REQUIRE(stat((folder.path + "/v2").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
}

TEST_CASE("a damaged entry is a miss, is counted, and goes to quarantine") {
  const test::TempFolder folder;
  const Key key = key_of("a");
  Logged logged(folder.path);
  logged.cache.publish(sample(key));
  const std::string path = path_of(folder.path, key);
  SUBCASE("truncated") { fs::resize_file(path, 300); }
  SUBCASE("empty") { fs::resize_file(path, 0); }
  SUBCASE("flipped") {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(500);
    file.put('\xee');
  }
  SUBCASE("larger than any entry") { fs::resize_file(path, kMaxEntryBytes + 1); }
  CHECK(!logged.cache.read(key));
  CHECK(logged.cache.rebuilt == 1);
  CHECK(!fs::exists(path));
  CHECK(fs::exists(folder.path + "/quarantine/" + key.hex + ".kvc"));
  CHECK(must(read_stats(folder.path)).quarantined == 1);
  logged.cache.publish(sample(key));
  CHECK(logged.cache.read(key));
}

TEST_CASE("what others could have written is skipped, and replaced by our own") {
  const test::TempFolder folder;
  const Key key = key_of("a");
  Logged logged(folder.path);
  logged.cache.publish(sample(key));
  const std::string path = path_of(folder.path, key);
  SUBCASE("writable by the group") { fs::permissions(path, fs::perms::group_write, fs::perm_options::add); }
  SUBCASE("writable by all") { fs::permissions(path, fs::perms::others_write, fs::perm_options::add); }
  SUBCASE("a link") {
    fs::rename(path, folder.path + "/elsewhere");
    fs::create_symlink(folder.path + "/elsewhere", path);
  }
  SUBCASE("a pipe") {
    fs::remove(path);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  }
  SUBCASE("of another owner") {
    if (geteuid() != 0 || chown(path.c_str(), 12345, 12345) != 0) return;
  }
  CHECK(!logged.cache.read(key));
  CHECK(logged.cache.rebuilt == 0);
  REQUIRE(logged.lines.size() == 1);
  CHECK(logged.lines[0].find("skipped") != std::string::npos);
  logged.cache.publish(sample(key));
  CHECK(logged.cache.read(key));
}

TEST_CASE("no usable folder: memory only, and exactly one warning") {
  const test::TempFolder folder;
  std::string base = folder.path + "/base";
  SUBCASE("below a file") { std::ofstream(base) << "a file"; }
  SUBCASE("writable by others") {
    fs::create_directory(base);
    fs::permissions(base, fs::perms::all);
  }
  SUBCASE("relative") { base = "some/where"; }
  SUBCASE("unknown") { base = ""; }
  Logged logged(base);
  const Key key = key_of("a");
  for (int i = 0; i < 3; ++i) {
    const auto lock = logged.cache.lock(key, "a");
    CHECK(!logged.cache.read(key));
    logged.cache.publish(sample(key));
  }
  CHECK(logged.cache.folder().empty());
  REQUIRE(logged.lines.size() == 1);
  CHECK(logged.lines[0].find("memory only") != std::string::npos);
  CHECK(!fs::exists("some/where"));
}

TEST_CASE("\"off\" is memory only and says nothing") {
  Logged logged("off");
  logged.cache.publish(sample(key_of("a")));
  CHECK(!logged.cache.read(key_of("a")));
  CHECK(logged.lines.empty());
}

TEST_CASE("a write that fails is counted and said once; what is there stays readable") {
  const test::TempFolder folder;
  Logged logged(folder.path);
  const Key first = key_of("a"), second = key_of("b");
  logged.cache.publish(sample(first));
  std::ofstream(folder.path + "/v2/" + second.hex.substr(0, 2)) << "in the way";
  logged.cache.publish(sample(second));
  logged.cache.publish(sample(second));
  CHECK(logged.cache.write_failures == 2);
  CHECK(logged.lines.size() == 1);
  CHECK(logged.cache.read(first));
}

TEST_CASE("a lock holds others off until it is gone, and leaves no file") {
  const test::TempFolder folder;
  Logged logged(folder.path), other(folder.path);
  const Key key = key_of("a");
  const std::string file = folder.path + "/v2/locks/" + key.hex;
  {
    const auto lock = logged.cache.lock(key, "a");
    CHECK(fs::exists(file));
    CHECK(!other.cache.lock(key_of("b"), "b").waited());  // locks of other keys do not wait
  }
  CHECK(!fs::exists(file));
  CHECK(!other.cache.lock(key, "a").waited());
}

// A file system may lose who holds a lock, and a holder may hang.
TEST_CASE("after one wait in vain for a lock a process waits for no lock of the folder, and says so once") {
  const test::TempFolder folder;
  Logged holder(folder.path), other(folder.path), third(folder.path);
  const auto a = holder.cache.lock(key_of("a"), "a"), b = holder.cache.lock(key_of("b"), "b");
  other.cache.lock_patience = std::chrono::milliseconds(20);
  CHECK(other.cache.lock(key_of("a"), "a").waited());
  CHECK(!other.cache.lock(key_of("b"), "b").waited());
  CHECK(!third.cache.lock(key_of("a"), "a").waited());  // it would have a minute of patience
  CHECK(other.cache.lock_waits + third.cache.lock_waits == 1);
  REQUIRE(other.lines.size() == 2);
  CHECK(other.lines[1] ==
        "warning: waited 0.02 s for a, compiling it here too; this process waits for no other lock of " + folder.path +
            "/v2/locks");
  CHECK(third.lines.empty());
  const auto c = third.cache.lock(key_of("c"), "c");  // what nobody holds is locked as before
  CHECK(fs::exists(folder.path + "/v2/locks/" + key_of("c").hex));
  const test::TempFolder elsewhere;
  Logged holds(elsewhere.path), waits(elsewhere.path);
  const auto d = holds.cache.lock(key_of("a"), "a");
  waits.cache.lock_patience = std::chrono::milliseconds(20);
  CHECK(waits.cache.lock(key_of("a"), "a").waited());
}

TEST_CASE("the sweep removes the least recently used first, and what dead processes left") {
  const test::TempFolder folder;
  Logged logged(folder.path);
  std::vector<Key> keys;
  for (int i = 0; i < 5; ++i) {
    keys.push_back(key_of(std::to_string(i)));
    logged.cache.publish(sample(keys[i]));
    set_age(path_of(folder.path, keys[i]), 100 * (i == 2 ? 9 : i));  // key 2 is the oldest, then 4, 3, 1, 0
  }
  const auto shard = fs::path(path_of(folder.path, keys[0])).parent_path().string();
  std::ofstream(shard + "/.dead.tmp") << "x";
  std::ofstream(shard + "/.alive.tmp") << "x";
  set_age(shard + "/.dead.tmp", 7200);

  const auto stats = must(read_stats(folder.path));
  CHECK(stats.entries == 5);
  const auto each = stats.bytes / 5;
  CHECK(must(sweep(folder.path, each * 3 + 1)) == each * 2);
  CHECK(!logged.cache.read(keys[2]));
  CHECK(!logged.cache.read(keys[4]));
  for (const int kept : {0, 1, 3}) CHECK(logged.cache.read(keys[kept]));
  CHECK(!fs::exists(shard + "/.dead.tmp"));
  CHECK(fs::exists(shard + "/.alive.tmp"));
}

TEST_CASE("publishing keeps the cache under its cap, at most once an hour") {
  const test::TempFolder folder;
  Logged logged(folder.path, 4000);  // bytes; an entry has 1.2 KB
  for (int i = 0; i < 8; ++i) logged.cache.publish(sample(key_of(std::to_string(i))));
  CHECK(must(read_stats(folder.path)).entries == 8);  // the first publish swept; others do not sweep within the hour
  set_age(folder.path + "/v2/swept", 3700);
  logged.cache.publish(sample(key_of("newest")));
  CHECK(must(read_stats(folder.path)).bytes <= 3200);  // 80 % of the limit
  CHECK(must(read_stats(folder.path)).entries == 2);
  CHECK(logged.cache.read(key_of("newest")));
}

TEST_CASE("a hit marks the entry as used, once a day") {
  const test::TempFolder folder;
  Logged logged(folder.path);
  const Key key = key_of("a");
  logged.cache.publish(sample(key));
  const std::string path = path_of(folder.path, key);
  struct stat before {
  }, after{};
  for (const long age : {3600L, 100000L}) {
    set_age(path, age);
    stat(path.c_str(), &before);
    CHECK(logged.cache.read(key));
    stat(path.c_str(), &after);
    CHECK((after.st_mtime != before.st_mtime) == (age > 86400));
  }
}

TEST_CASE("the list names every entry and checks it") {
  const test::TempFolder folder;
  Logged logged(folder.path);
  logged.cache.publish(sample(key_of("a")));
  logged.cache.publish(sample(key_of("b")));
  fs::resize_file(path_of(folder.path, key_of("b")), 200);
  const auto list = must(list_entries(folder.path));
  REQUIRE(list.size() == 2);
  for (const auto& row : list) {
    const bool is_whole = row.key == key_of("a").hex;
    CHECK(row.damage.empty() == is_whole);
    if (is_whole) {
      CHECK(row.name == "decode.sample");
      CHECK(row.compiler == "fake 1.0");
    }
  }
  CHECK(must(list_entries("/nowhere")).empty());
  CHECK(must(read_stats("/nowhere")).entries == 0);
}

TEST_CASE("clear removes what the cache has made, what lies in its place, and nothing else") {
  const test::TempFolder folder;
  Logged logged(folder.path);
  for (const char* name : {"a", "b", "c"}) logged.cache.publish(sample(key_of(name)));
  fs::resize_file(path_of(folder.path, key_of("b")), 200);
  CHECK(!logged.cache.read(key_of("b")));  // to quarantine
  fs::remove(path_of(folder.path, key_of("c")));
  fs::create_directories(path_of(folder.path, key_of("c")) + "/in place of an entry");
  const auto shard = fs::path(path_of(folder.path, key_of("a"))).parent_path().string();
  std::ofstream(shard + "/.abcdef.tmp") << "x";
  std::ofstream(folder.path + "/v2/locks/" + key_of("d").hex) << "123";
  logged.cache.mark_complete(key_of("list").hex, {key_of("a").hex});
  std::ofstream(shard + "/foreign") << "x";
  std::ofstream(folder.path + "/foreign") << "x";
  const auto held = logged.cache.lock(key_of("held"), "held");
  CHECK(must(clear(folder.path)) > 1000);
  CHECK(must(read_stats(folder.path)).entries == 0);
  CHECK(!fs::exists(folder.path + "/quarantine"));
  CHECK(!fs::exists(folder.path + "/v2/warm"));
  CHECK(fs::exists(folder.path + "/v2/locks/" + key_of("held").hex));
  CHECK(!fs::exists(folder.path + "/v2/locks/" + key_of("d").hex));
  CHECK(fs::exists(shard + "/foreign"));
  CHECK(!fs::exists(shard + "/.abcdef.tmp"));
  CHECK(fs::exists(folder.path + "/foreign"));
  logged.cache.publish(sample(key_of("a")));
  CHECK(logged.cache.read(key_of("a")));
}

TEST_CASE("a folder that cannot be read is an error, not an empty cache") {
  const test::TempFolder folder;
  const std::string file = folder.path + "/file";
  std::ofstream(file) << "x";
  CHECK(read_stats(file).error().code == Code::environment);
  CHECK(list_entries(file).error().code == Code::environment);
  CHECK(find_entry(file, "a").error().code == Code::environment);
  CHECK(entries_named(file, "a").error().code == Code::environment);
  CHECK(sweep(file, 0).error().code == Code::environment);
  CHECK(clear(file).error().message.find("cannot be read: Not a directory") != std::string::npos);
}

TEST_CASE("an entry that cannot be written is said once, and keeps others from nothing") {
  const test::TempFolder folder;
  Logged logged(folder.path);
  const Key key = key_of("a");
  fs::create_directories(path_of(folder.path, key));
  for (int i = 0; i < 2; ++i) {
    CHECK(!logged.cache.read(key));
    logged.cache.publish(sample(key));
  }
  logged.cache.publish(sample(key_of("b")));
  CHECK(logged.cache.read(key_of("b")));
  CHECK(logged.cache.write_failures == 2);
  REQUIRE(logged.lines.size() == 2);  // one of the read, one of the write
  CHECK(logged.lines[0].find("is skipped: not a regular file") != std::string::npos);
  CHECK(logged.lines[1].find("this kernel is cached in memory only") != std::string::npos);
}
