// The verbs of the folder of compiled kernels (cache stats, list, verify, inspect, gc and clear), and
// `kvjit explain --key`, which prints where kernels would be found.
// SPDX-License-Identifier: MIT
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "runtime/base/temporary.hpp"
#include "runtime/store/disk_cache.hpp"
#include "tools/cli/cli.hpp"
#include "tools/io/report.hpp"

namespace kvjit {
namespace {

Result<std::string> folder_of(const Cli& cli) {
  const std::string folder = cache_folder(cli.options);
  if (folder.empty()) return fail(Code::environment, "kernels are cached in memory only: there is no folder");
  return folder;
}

Result<int> cache_stats(const Cli& cli) {
  const std::string folder = cache_folder(cli.options);
  if (folder.empty()) {
    cli.print({{"folder", nullptr}, {"entries", 0}, {"bytes", 0}}, "memory only: no cache folder\n");
    return 0;
  }
  KV_TRY(stats, read_stats(folder));
  cli.print({{"folder", folder},
             {"entries", stats.entries},
             {"bytes", stats.bytes},
             {"max_bytes", cli.options.cache_max_bytes},
             {"quarantined", stats.quarantined}},
            info_text({{"folder", folder},
                       {"entries", std::to_string(stats.entries)},
                       {"size", fmt::format("{} of at most {}", byte_count(static_cast<double>(stats.bytes)),
                                            byte_count(static_cast<double>(cli.options.cache_max_bytes)))},
                       {"quarantined", std::to_string(stats.quarantined)}}));
  return 0;
}

Json to_json(const CacheListing& row) {
  Json json = {{"key", row.key},           {"name", row.name},
               {"compiler", row.compiler}, {"kind", to_string(row.kind)},
               {"bytes", row.bytes},       {"last_used", static_cast<long long>(row.last_used)}};
  if (!row.damage.empty()) json["damage"] = row.damage;
  return json;
}

bool is_any_unreadable(const std::vector<CacheListing>& list) {
  return std::any_of(list.begin(), list.end(), [](const CacheListing& row) { return row.is_unreadable; });
}

Result<int> cache_list(const Cli& cli) {
  KV_TRY(folder, folder_of(cli));
  Json data = Json::array();
  std::vector<std::vector<std::string>> rows;
  KV_TRY(list, list_entries(folder));
  for (const CacheListing& row : list) {
    data.push_back(to_json(row));
    rows.push_back({row.key.substr(0, 12),
                    row.damage.empty()  ? row.name
                    : row.is_unreadable ? "unreadable: " + row.damage
                                        : "damaged: " + row.damage,
                    to_string(row.kind), std::to_string(row.bytes),
                    fmt::format("{:%Y-%m-%d}", fmt::gmtime(row.last_used))});
  }
  cli.print(data, table_text({"key", "kernel", "kind", "bytes", "used"}, rows));
  return is_any_unreadable(list) ? static_cast<int>(Code::environment) : 0;
}

Result<int> cache_verify(const Cli& cli) {
  KV_TRY(folder, folder_of(cli));
  Json data = Json::array();
  std::string text;
  KV_TRY(list, list_entries(folder));
  for (const CacheListing& row : list)
    if (!row.damage.empty()) {
      data.push_back(to_json(row));
      text += fmt::format("{}: {}\n", row.key, row.damage);
    }
  const auto unreadable =
      std::count_if(list.begin(), list.end(), [](const CacheListing& row) { return row.is_unreadable; });
  text += fmt::format("{} entries, {} damaged{}\n", list.size(), data.size() - static_cast<std::size_t>(unreadable),
                      unreadable ? fmt::format(", {} cannot be read", unreadable) : "");
  cli.print(data, text);
  if (unreadable) return static_cast<int>(Code::environment);
  return data.empty() ? 0 : static_cast<int>(Code::integrity);
}

Result<int> cache_inspect(const Cli& cli, const std::string& prefix) {
  KV_TRY(folder, folder_of(cli));
  KV_TRY(entry, find_entry(folder, prefix));
  const Artefact& artefact = entry.artefact;
  Json fields = Json::array();
  std::vector<std::pair<std::string, std::string>> lines = {{"key", entry.key.hex}, {"kernel", entry.name}};
  for (const auto& [name, value] : entry.key.fields) {
    fields.push_back({{"name", name}, {"value", value}});
    lines.emplace_back("  " + name, value);
  }
  const std::pair<const char*, long long> numbers[] = {
      {"bytes", std::ssize(artefact.bytes)},
      {"registers", artefact.registers},
      {"stack bytes", artefact.stack_bytes},
      {"spill bytes", artefact.spill_store_bytes + artefact.spill_load_bytes}};
  lines.emplace_back("compiler", entry.compiler);
  lines.emplace_back("compile time", fmt::format("{:.0f} ms", artefact.compile_ms));
  for (const auto& [name, value] : numbers) lines.emplace_back(name, std::to_string(value));
  cli.print({{"key", entry.key.hex},
             {"name", entry.name},
             {"pieces", fields},
             {"compiler", entry.compiler},
             {"compile_ms", artefact.compile_ms},
             {"bytes", artefact.bytes.size()},
             {"registers", artefact.registers},
             {"stack_bytes", artefact.stack_bytes},
             {"spill_bytes", artefact.spill_store_bytes + artefact.spill_load_bytes},
             {"log", artefact.log},
             {"text", entry.text}},
            info_text(lines) + "\n" + entry.text);
  return 0;
}

Result<int> cache_gc(const Cli& cli) {
  KV_TRY(folder, folder_of(cli));
  KV_TRY(removed, sweep(folder, cli.options.cache_max_bytes));
  const std::size_t leftovers = sweep_temporary_folders();
  cli.print({{"folder", folder}, {"removed_bytes", removed}, {"removed_temporary_folders", leftovers}},
            fmt::format("{}: {} removed{}\n", folder, byte_count(static_cast<double>(removed)),
                        leftovers ? fmt::format(", and {} temporary folders of dead processes", leftovers) : ""));
  return 0;
}

Result<int> cache_clear(const Cli& cli) {
  KV_TRY(folder, folder_of(cli));
  KV_TRY(removed, clear(folder));
  cli.print({{"folder", folder}, {"removed_bytes", removed}},
            fmt::format("{}: {} removed\n", folder, byte_count(static_cast<double>(removed))));
  return 0;
}

// The fields in which two keys differ, a line for each. Fields of one name (options) are compared in order.
std::vector<std::string> differences(const Key& requested, const Key& found) {
  std::vector<std::string> lines;
  const std::size_t count = std::max(requested.fields.size(), found.fields.size());
  const std::pair<std::string, std::string> none;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& a = i < requested.fields.size() ? requested.fields[i] : none;
    const auto& b = i < found.fields.size() ? found.fields[i] : none;
    if (a != b)
      lines.push_back(fmt::format("{}: requested {}, there is {}", a.first.empty() ? b.first : a.first,
                                  a.second.empty() ? "none" : a.second, b.second.empty() ? "none" : b.second));
  }
  return lines;
}

struct Whereabouts {
  std::string where;                 // "bundle x.kvb", "on disk" or "missing"
  std::vector<std::string> reasons;  // why it is missing
};

Result<Whereabouts> find(Store& store, const Source& source, const Key& key) {
  const Key request = store.request_key(source);
  for (const auto& bundle : store.bundles())
    if (bundle->read(request)) return Whereabouts{bundle->name(), {}};
  if (store.is_on_disk(key)) return Whereabouts{"on disk", {}};
  Whereabouts missing{"missing", {}};
  KV_TRY(entries, entries_named(store.folder(), source.name));
  if (entries.empty()) missing.reasons.push_back("no entry on disk is of a kernel of this name");
  const CacheEntry* nearest = nullptr;
  std::vector<std::string> fewest;
  for (const CacheEntry& entry : entries)
    if (auto lines = differences(key, entry.key); !nearest || lines.size() < fewest.size())
      nearest = &entry, fewest = std::move(lines);
  if (nearest) {
    missing.reasons.push_back(fmt::format("nearest entry {}:", nearest->key.hex.substr(0, 12)));
    missing.reasons.insert(missing.reasons.end(), fewest.begin(), fewest.end());
  }
  return missing;
}

}  // namespace

Result<int> explain_keys(const Cli& cli, const std::vector<ProgramSource>& programs) {
  const bool is_for_gpu = cli.options.device != DeviceKind::cpu;
  KV_TRY(store, Store::open(cli.options, is_for_gpu ? nvrtc_toolchain(cli.options) : host_toolchain(cli.options)));
  Json data = Json::array();
  std::string text;
  for (const ProgramSource& program : programs)
    for (const auto& [role, source] : program.kernels) {
      KV_TRY(key, store->key(source));
      KV_TRY(found, find(*store, source, key));
      Json fields = Json::array();
      text += fmt::format("{} {}\n  key      {}\n  found    {}\n", to_string(role), source.name, key.hex, found.where);
      for (const std::string& reason : found.reasons) text += fmt::format("           {}\n", reason);
      for (const auto& [name, value] : key.fields) {
        fields.push_back({{"name", name}, {"value", value}});
        text += fmt::format("  {:<12} {}\n", name, value);
      }
      data.push_back({{"role", to_string(role)},
                      {"name", source.name},
                      {"key", key.hex},
                      {"found", found.where},
                      {"reasons", found.reasons},
                      {"pieces", fields}});
    }
  cli.print(data, text);
  return 0;
}

void add_cache_verbs(CLI::App& app, Cli& cli) {
  CLI::App* cache = app.add_subcommand("cache", "the folder of compiled kernels");
  cache->require_subcommand(1);
  const auto verb = [&](const char* name, const char* help, std::function<Result<int>()> run) {
    CLI::App* sub = cache->add_subcommand(name, help);
    sub->fallthrough();
    sub->callback([&cli, run] { cli.action = run; });
    return sub;
  };
  verb("stats", "how much it holds", [&cli] { return cache_stats(cli); });
  verb("list", "every entry, checked", [&cli] { return cache_list(cli); });
  verb("verify", "check every entry; exit code 8 if one is damaged", [&cli] { return cache_verify(cli); });
  const auto key = std::make_shared<std::string>();
  verb("inspect", "what an entry was made from: the fields of its key, and the text",
       [&cli, key] { return cache_inspect(cli, *key); })
      ->add_option("KEY", *key, "the key, or how it begins")
      ->required();
  verb("gc", "remove the least recently used down to the cap, and what dead processes left",
       [&cli] { return cache_gc(cli); });
  verb("clear", "remove every entry, quarantined ones and leftovers", [&cli] { return cache_clear(cli); });
}

}  // namespace kvjit
