// Writes and checks the manifest of a folder of kernels: see manifest.hpp. The reader is strict, because an unknown
// member means another format.
// SPDX-License-Identifier: MIT
#include "runtime/store/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace kvjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kManifestFormat = 1;

constexpr ArtefactKind kKinds[] = {ArtefactKind::cubin, ArtefactKind::ptx, ArtefactKind::host_object};

const char* extension(ArtefactKind kind) {
  switch (kind) {
    case ArtefactKind::cubin:
      return ".cubin";
    case ArtefactKind::ptx:
      return ".ptx";
    case ArtefactKind::host_object:
      return ".so";
  }
  return ".bin";
}

tl::unexpected<Error> damaged(const std::string& why) { return fail(Code::integrity, "manifest: " + why); }

// Whether a name is no path and no hidden file.
bool is_file_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find_first_not_of(kAllowed) == std::string::npos;
}

// Takes members of an object one by one and stores a message about the first that is missing or wrong.
class Members {
 public:
  Members(const Json& object, std::string what) : object_(object), what_(std::move(what)) {
    if (!object.is_object()) complain("no object");
  }

  std::string text(const char* name) {
    const Json* value = find(name);
    if (value && !value->is_string()) complain(fmt::format("'{}' is no text", name)), value = nullptr;
    return value ? value->get<std::string>() : "";
  }
  std::uint64_t number(const char* name, std::uint64_t most) {
    const Json* value = find(name);
    if (value && (!value->is_number_unsigned() || value->get<std::uint64_t>() > most))
      complain(fmt::format("'{}' is no whole number from 0 to {}", name, most)), value = nullptr;
    return value ? value->get<std::uint64_t>() : 0;
  }
  int count(const char* name) { return static_cast<int>(number(name, std::numeric_limits<int>::max())); }
  const Json* list(const char* name) {
    const Json* value = find(name);
    if (value && !value->is_array()) complain(fmt::format("'{}' is no list", name)), value = nullptr;
    return value;
  }
  void complain(const std::string& why) {
    if (why_.empty()) why_ = fmt::format("{}: {}", what_, why);
  }
  bool is_fine() const { return why_.empty(); }
  // Call this after the last member. Fails if a member was missing or wrong, or if the object has further members.
  Result<void> end() {
    if (object_.is_object() && object_.size() > taken_) complain("has members that this version does not know");
    if (!why_.empty()) return damaged(why_);
    return {};
  }

 private:
  const Json* find(const char* name) {
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(name);
    if (at == object_.end()) return complain(fmt::format("has no '{}'", name)), nullptr;
    ++taken_;
    return &*at;
  }
  const Json& object_;
  std::string what_, why_;
  std::size_t taken_ = 0;
};

Result<Json> parse(std::string_view text) {
  // A duplicate member is refused: this parser takes the last of the two, and another reader might take the first.
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto look = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  Json json = Json::parse(text, look, false);
  if (json.is_discarded()) return damaged("no JSON");
  if (!twice.empty()) return damaged(fmt::format("member '{}' is there twice", twice.substr(0, 64)));
  return json;
}

Result<Key> read_fields(const Json& list) {
  Key key;
  for (const Json& field : list) {
    if (!field.is_array() || field.size() != 2 || !field[0].is_string() || !field[1].is_string())
      return damaged("a piece of a key that is no pair of texts");
    key.fields.emplace_back(field[0].get<std::string>(), field[1].get<std::string>());
  }
  key.hex = hex(sha256(delimited(key)));
  return key;
}

Result<ManifestRow> read_row(const Json& object, std::size_t number) {
  ManifestRow row;
  Members members(object, fmt::format("kernel {}", number));
  row.file = members.text("file");
  row.entry.name = members.text("name");
  const std::string key_hex = members.text("key"), arch = members.text("arch"), entry = members.text("entry"),
                    kind = members.text("kind");
  row.entry.compiler = members.text("compiler");
  row.bytes = members.number("bytes", kMaxEntryBytes);
  const auto digest = read_digest(members.text("sha256"));
  const Json* fields = members.list("pieces");
  Artefact& artefact = row.entry.artefact;
  artefact.registers = members.count("registers");
  artefact.stack_bytes = members.count("stack_bytes");
  artefact.spill_store_bytes = members.count("spill_store_bytes");
  artefact.spill_load_bytes = members.count("spill_load_bytes");
  KV_CHECK(members.end());
  if (!is_file_name(row.file)) return damaged(fmt::format("kernel {}: 'file' is no name of a file beside it", number));
  if (!digest) return damaged(fmt::format("kernel {}: 'sha256' is no digest", number));
  row.sha256 = *digest;
  KV_TRY(key, read_fields(*fields));
  if (key.hex != key_hex) return damaged(fmt::format("{}: another key than its pieces have", row.file));
  const auto found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](ArtefactKind one) { return kind == to_string(one); });
  if (found == std::end(kKinds)) return damaged(fmt::format("{}: no such kind of kernel", row.file));
  if (field(key, "kind") != kind || field(key, "arch") != arch || field(key, "entry") != entry)
    return damaged(fmt::format("{}: 'kind', 'arch' or 'entry' is not that of its key", row.file));
  artefact.kind = *found;
  row.entry.key = std::move(key);
  return row;
}

}  // namespace

std::string file_name(const CacheEntry& entry) {
  return fmt::format("{}.{}{}", entry.name, entry.key.hex.substr(0, 12), extension(entry.artefact.kind));
}

std::string write_manifest(const std::vector<CacheEntry>& entries) {
  Json kernels = Json::array();
  for (const CacheEntry& entry : entries) {
    const Artefact& artefact = entry.artefact;
    Json fields = Json::array();
    for (const auto& [name, value] : entry.key.fields) fields.push_back({name, value});
    kernels.push_back(
        {{"file", file_name(entry)},
         {"name", entry.name},
         {"key", entry.key.hex},
         {"arch", field(entry.key, "arch")},
         {"entry", field(entry.key, "entry")},
         {"kind", to_string(artefact.kind)},
         {"compiler", entry.compiler},
         {"bytes", artefact.bytes.size()},
         {"sha256", hex(sha256({reinterpret_cast<const char*>(artefact.bytes.data()), artefact.bytes.size()}))},
         {"registers", artefact.registers},
         {"stack_bytes", artefact.stack_bytes},
         {"spill_store_bytes", artefact.spill_store_bytes},
         {"spill_load_bytes", artefact.spill_load_bytes},
         {"pieces", fields}});
  }
  return Json{{"kvjit", KVJIT_VERSION}, {"format", kManifestFormat}, {"kernels", kernels}}.dump(2) + "\n";
}

Result<std::vector<ManifestRow>> read_manifest(std::string_view text) {
  KV_TRY(json, parse(text));
  Members members(json, "the whole");
  members.text("kvjit");  // version of the writer; it must be there, but its value is not checked
  const std::uint64_t format = members.number("format", std::numeric_limits<std::uint32_t>::max());
  const Json* kernels = members.list("kernels");
  if (members.is_fine() && format != kManifestFormat)
    return damaged(fmt::format("format {}; this version reads {}", format, kManifestFormat));
  KV_CHECK(members.end());
  std::vector<ManifestRow> rows;
  std::set<std::string> files, keys;
  for (const Json& kernel : *kernels) {
    KV_TRY(row, read_row(kernel, rows.size()));
    if (!files.insert(row.file).second) return damaged(fmt::format("file {} is there twice", row.file));
    if (!keys.insert(row.entry.key.hex).second) return damaged(fmt::format("the key of {} is there twice", row.file));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kvjit
