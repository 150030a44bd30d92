// runtime/store/bundle.cpp and signature.cpp: bundles of entries in one file, which are looked up by key, checked, and
// signed with Ed25519.
// SPDX-License-Identifier: MIT
#include "runtime/store/bundle.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/runtime/store/fake_world.hpp"

using namespace kvjit;
using namespace kvjit::test;

namespace {

CacheEntry entry_of(const Source& source) {
  CacheEntry entry;
  entry.name = source.name;
  entry.compiler = "fake 1.0";
  entry.key = make_key(source, ArtefactKind::cubin, {"-fake"});
  entry.text = source.text.str();
  entry.artefact.bytes.assign(source.text.str().begin(), source.text.str().end());
  entry.artefact.registers = 33;
  entry.artefact.log = "compile time 12 ms";
  entry.artefact.compile_ms = 12;
  return entry;
}

std::vector<CacheEntry> entries(int count) {
  std::vector<CacheEntry> all;
  for (int i = 0; i < count; ++i) all.push_back(entry_of(sample("text " + std::to_string(i))));
  return all;
}

struct Bundled : StoreFixture {
  std::string file = folder + "/kernels.kvb";
  void write(const std::vector<std::uint8_t>& bytes) {
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  }
  Bundled() { options.bundles = {file}; }
};

}  // namespace

TEST_CASE("the same entries in any order give the same bytes, whatever their compile took") {
  auto all = entries(5);
  const auto first = write_bundle(all, nullptr);
  std::swap(all[0], all[3]);
  all[1].artefact.compile_ms = 99;
  all[1].artefact.log = "compile time 99 ms";
  CHECK(write_bundle(all, nullptr) == first);
  all[1].artefact.bytes[0] ^= 1;
  CHECK(write_bundle(all, nullptr) != first);
}

TEST_CASE("every entry is found by its key, and none by another") {
  for (const int count : {0, 1, 2, 7}) {
    const auto bytes = write_bundle(entries(count), nullptr);
    const auto bundle = Bundle::open(bytes, "test");
    REQUIRE(bundle);
    CHECK(bundle->items().size() == static_cast<std::size_t>(count));
    CHECK(!bundle->signer());
    for (const CacheEntry& entry : entries(count)) {
      const Bundle::Item* item = bundle->find(sha256(delimited(entry.key)));
      REQUIRE(item);
      CHECK(item->arch == "sm_90a");
      const auto found = decode_entry(entry.key.hex, *bundle->read(*item));
      REQUIRE(found);
      CHECK(found->artefact.bytes == entry.artefact.bytes);
      CHECK(found->artefact.registers == 33);
    }
    CHECK(!bundle->find(sha256("nobody's")));
  }
}

TEST_CASE("every flipped byte and every truncation of a bundle is seen, at the latest when the entry is read") {
  const SigningKey signer = *SigningKey::make();
  const auto whole = write_bundle(entries(2), &signer);
  const auto is_whole = [](std::span<const std::uint8_t> bytes) {
    const auto bundle = Bundle::open(bytes, "test");
    if (!bundle || bundle->items().size() != 2 || !bundle->signer()) return false;
    for (const Bundle::Item& item : bundle->items())
      if (!bundle->read(item)) return false;
    return true;
  };
  REQUIRE(is_whole(whole));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    auto bytes = whole;
    bytes[i] ^= 1;
    CHECK_MESSAGE(!is_whole(bytes), i);
    CHECK(!is_whole(std::span(whole).first(i)));
  }
}

TEST_CASE("Ed25519: a vector of RFC 8032, and keys that others can read are refused") {
  // RFC 8032, section 7.1, test 2.
  const auto key = SigningKey::read("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
  REQUIRE(key);
  CHECK(hex(key->public_key()) == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  const std::uint8_t message[] = {0x72};
  const Signature signature = key->sign(message);
  CHECK(hex(signature) ==
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
  CHECK(is_signed(message, signature, key->public_key()));
  const std::uint8_t other[] = {0x73};
  CHECK(!is_signed(other, signature, key->public_key()));
  CHECK(SigningKey::read("4ccd").error().code == Code::bad_input);
  CHECK(SigningKey::read(std::string(64, 'x')).error().code == Code::bad_input);

  const StoreFixture fixture;
  const std::string file = fixture.folder + "/key";
  std::ofstream(file) << key->text() << "\n";
  fs::permissions(file, fs::perms::owner_read);
  CHECK(SigningKey::read_file(file)->text() == key->text());
  fs::permissions(file, fs::perms::others_read, fs::perm_options::add);
  CHECK(SigningKey::read_file(file).error().code == Code::integrity);
}

TEST_CASE_FIXTURE(Bundled, "a context is served from a bundle without a compiler and without touching its folder") {
  write(write_bundle({entry_of(sample())}, nullptr));
  for (const bool options_are_known : {true, false}) {  // the bundle key of a host object leaves out its compiler
    const auto served = context(options_are_known);
    const auto record = served->get(sample());
    REQUIRE(record);
    CHECK(record->origin == Origin::bundle);
    CHECK(text_of(*record) == "kernel text");
    CHECK(record->registers == 33);
    CHECK(served->counters().bundle_hits == 1);
    CHECK(served->counters().misses == 0);
  }
  CHECK(world.opened == 0);
  CHECK(only_entry().empty());
  CHECK(lines.empty());
  CHECK(context()->get(sample("another text"))->origin == Origin::compiled);
}

TEST_CASE_FIXTURE(Bundled, "bytes in memory are a bundle too") {
  const auto bytes = write_bundle({entry_of(sample())}, nullptr);
  options.bundles.clear();
  options.bundle_bytes = {bytes};
  CHECK(context()->get(sample())->origin == Origin::bundle);
}

TEST_CASE_FIXTURE(Bundled, "what is wrong with a bundle is said once, and is a miss") {
  auto bytes = write_bundle({entry_of(sample())}, nullptr);
  std::string said;
  SUBCASE("truncated") { bytes.resize(bytes.size() - 5), said = "damaged"; }
  SUBCASE("header flipped") { bytes[9] ^= 1, said = "damaged"; }
  SUBCASE("entry flipped") { bytes[bytes.size() - 40] ^= 1, said = "damaged entry"; }
  SUBCASE("empty") { bytes.clear(), said = "damaged"; }
  SUBCASE("no bundle at all") { bytes.assign(1000, 'x'), said = "not a bundle"; }
  SUBCASE("made for another arch") {
    Source other = sample();
    other.arch = "sm_80";
    bytes = write_bundle({entry_of(other)}, nullptr);
    said = "has kernels for sm_80, none for sm_90a";
  }
  write(bytes);
  SUBCASE("writable by others") {
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
    said = "only this user or root can write";
  }
  SUBCASE("of another owner") {
    if (geteuid() != 0 || chown(file.c_str(), 12345, 12345) != 0) return;
    said = "only this user or root can write";
  }
  SUBCASE("not there") { fs::remove(file), said = "No such file"; }
  const auto used = context();
  CHECK(used->get(sample())->origin == Origin::compiled);
  CHECK(used->get(sample("b"))->origin == Origin::compiled);
  CHECK(lines_with("warning") == 1);
  CHECK(lines_with(said) == 1);
}

TEST_CASE_FIXTURE(Bundled, "with trusted keys, a bundle must be signed by one of them") {
  const SigningKey ours = *SigningKey::make(), theirs = *SigningKey::make();
  const auto open = [&] {
    Toolchain toolchain;
    toolchain.options = [](const Source&) { return std::vector<std::string>{"-fake"}; };
    toolchain.open = [this]() -> Result<std::shared_ptr<Compiler>> { return std::make_shared<FakeCompiler>(world); };
    return make_context(options, std::make_shared<SharedDevice>(std::make_shared<FakeBackend>()), toolchain);
  };
  options.trusted_keys = {hex(theirs.public_key()), hex(ours.public_key())};
  write(write_bundle({entry_of(sample())}, &ours));
  const auto trusting = open();
  REQUIRE(trusting);
  CHECK((*trusting)->get(sample())->origin == Origin::bundle);

  options.trusted_keys = {hex(theirs.public_key())};
  CHECK(open().error().code == Code::integrity);
  write(write_bundle({entry_of(sample())}, nullptr));
  CHECK(open().error().code == Code::integrity);
  auto forged = write_bundle({entry_of(sample())}, &theirs);
  forged[100] ^= 1;  // a byte of the signature
  write(forged);
  CHECK(open().error().code == Code::integrity);
  options.trusted_keys = {"not a key"};
  CHECK(open().error().code == Code::usage);
}

TEST_CASE_FIXTURE(StoreFixture, "random damage to a bundle in memory never goes unseen, or further") {
  const auto whole = write_bundle(entries(3), nullptr);
  std::uint64_t state = 7;
  const auto random = [&state] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 33; };
  for (int round = 0; round < 3000; ++round) {
    auto bytes = whole;
    for (std::uint64_t i = 0, count = 1 + random() % 8; i < count; ++i)
      bytes[random() % (round % 2 ? bytes.size() : 440)] = static_cast<std::uint8_t>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (bytes == whole) continue;
    const auto bundle = Bundle::open(bytes, "test");
    bool is_whole = bundle.has_value();
    if (bundle)
      for (const Bundle::Item& item : bundle->items()) is_whole = bundle->read(item).has_value() && is_whole;
    CHECK(!is_whole);
  }
}
