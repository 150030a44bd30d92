// The C interface of contexts: their options and their counters.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "runtime/api/specs_folder.hpp"
#include "runtime/api/support.hpp"
#include "runtime/base/sha256.hpp"

using namespace kvjit::c_api;
using kvjit::Code;
using kvjit::fail;
using kvjit::Result;

namespace {

constexpr std::size_t kMostLogColumns = 1024;  // of a line that `log` gets; the middle of a longer one is left out

Result<void> append(std::vector<std::string>& to, const char* const* texts, int count, const char* name) {
  if (count < 0 || (count > 0 && !texts)) return fail(Code::usage, fmt::format("{} of {} entries", name, count));
  for (int i = 0; i < count; ++i) {
    if (!texts[i]) return fail(Code::usage, fmt::format("{}[{}] is NULL", name, i));
    to.emplace_back(texts[i]);
  }
  return {};
}

kvjit::EntryCallbacks callbacks(const kvjit_context_options& caller_options) {
  kvjit::EntryCallbacks entry_callbacks;
  if (caller_options.cache_get)
    entry_callbacks.get = [get = caller_options.cache_get, user = caller_options.cache_user](const std::string& key) {
      std::optional<std::vector<std::uint8_t>> entry;
      const auto give = [](void* to, const void* bytes, size_t count) {
        const auto* begin = static_cast<const std::uint8_t*>(bytes);
        static_cast<std::optional<std::vector<std::uint8_t>>*>(to)->emplace(begin, begin + count);
      };
      get(user, key.c_str(), give, &entry);
      return entry;
    };
  if (caller_options.cache_put)
    entry_callbacks.put = [put = caller_options.cache_put, user = caller_options.cache_user](
                              const std::string& key, std::span<const std::uint8_t> entry) {
      put(user, key.c_str(), entry.data(), entry.size());
    };
  return entry_callbacks;
}

Result<kvjit::Options> chosen_options(const kvjit_context_options* options) {
  kvjit::Options chosen = kvjit::Options::from_environment();
  if (!options) return chosen;
  KV_TRY(caller_options, read_struct(options, "options"));
  if (caller_options.device == KVJIT_DEVICE_GPU)
    chosen.device = kvjit::DeviceKind::gpu;
  else if (caller_options.device == KVJIT_DEVICE_CPU)
    chosen.device = kvjit::DeviceKind::cpu;
  else if (caller_options.device != KVJIT_DEVICE_AUTOMATIC)
    return fail(Code::usage, fmt::format("device {}; KVJIT_DEVICE_AUTOMATIC (0), _GPU (1) and _CPU (2) are possible",
                                         caller_options.device));
  if (caller_options.ordinal != 0) chosen.device_ordinal = caller_options.ordinal;
  if (caller_options.arch) chosen.arch = caller_options.arch;
  if (caller_options.as_ptx) chosen.as_ptx = true;
  if (caller_options.cache_dir) chosen.cache_dir = caller_options.cache_dir;
  if (caller_options.log)
    chosen.log = [log = caller_options.log, user = caller_options.log_user](const std::string& message) {
      log(user, kvjit::displayed_lines(message, kMostLogColumns).c_str());
    };
  KV_CHECK(append(chosen.bundles, caller_options.bundles, caller_options.bundle_count, "bundles"));
  KV_CHECK(append(chosen.trusted_keys, caller_options.trusted_keys, caller_options.trusted_key_count, "trusted_keys"));
  if (caller_options.bundle_bytes_count < 0 ||
      (caller_options.bundle_bytes_count > 0 && (!caller_options.bundle_bytes || !caller_options.bundle_sizes)))
    return fail(Code::usage, fmt::format("bundle_bytes of {} entries", caller_options.bundle_bytes_count));
  for (int i = 0; i < caller_options.bundle_bytes_count; ++i) {
    KV_CHECK(need(caller_options.bundle_bytes[i], fmt::format("bundle_bytes[{}]", i).c_str()));
    chosen.bundle_bytes.emplace_back(static_cast<const std::uint8_t*>(caller_options.bundle_bytes[i]),
                                     caller_options.bundle_sizes[i]);
  }
  if (caller_options.remote) chosen.remote = caller_options.remote;
  if (caller_options.remote_writes) chosen.remote_writes = true;
  chosen.callbacks = callbacks(caller_options);
  return chosen;
}

Result<void> add_own_specs(const kvjit_context_options* options, kvjit_context& handle) {
  if (!options) return {};
  KV_TRY(caller_options, read_struct(options, "options"));
  std::vector<std::string> folders;
  KV_CHECK(append(folders, caller_options.specs_dirs, caller_options.specs_dir_count, "specs_dirs"));
  if (folders.empty()) return {};
  kvjit::FileSet files = kvjit::embedded_files();
  kvjit::FileNames shown_as;
  for (const std::string& folder : folders) KV_CHECK(kvjit::add_specs_folder(files, shown_as, folder));
  KV_TRY(loaded, load_registry(files, shown_as));
  handle.own_registry = std::move(loaded);
  kvjit::Sha256 hash;
  for (const auto& [name, text] : files) hash.update_delimited(name), hash.update_delimited(text);
  handle.own_specs = kvjit::hex(hash.finish());
  return {};
}

Result<kvjit::Store*> store_of(kvjit_context* context) {
  KV_CHECK(need(context, "context"));
  if (kvjit::Store* store = context->context->store()) return store;
  return fail(Code::internal, "a context without a store");
}

}  // namespace

kvjit_status kvjit_context_create(const kvjit_context_options* options, kvjit_context** context, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_TRY(chosen, chosen_options(options));
    auto handle = std::make_unique<kvjit_context>();
    KV_CHECK(add_own_specs(options, *handle));
    KV_TRY(opened, kvjit::Context::open(chosen));
    handle->context = std::move(opened);
    *context = handle.release();
    return {};
  });
}

void kvjit_context_destroy(kvjit_context* context) {
  guarded([&] { delete context; });
}

kvjit_status kvjit_context_device(const kvjit_context* context, kvjit_device_info* info, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(check_output(info, "info"));
    const kvjit::DeviceInfo& device = context->context->backend()->info();
    write_struct(info, {0, device.name.c_str(), device.arch.c_str(), device.is_gpu, device.multiprocessors,
                        device.driver_version, device.memory_bytes, device.own_arch.c_str(), device.runs_ptx});
    return {};
  });
}

kvjit_status kvjit_seal(kvjit_context* context, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_TRY(store, store_of(context));
    store->seal();
    return {};
  });
}

kvjit_status kvjit_context_stats(kvjit_context* context, kvjit_stats* stats, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(check_output(stats, "stats"));
    const kvjit::CacheCounters c = context->context->counters();
    const kvjit::ContextMemory memory = context->context->memory();
    const auto number = [](std::uint64_t value) { return static_cast<kvjit_index>(value); };
    write_struct(stats,
                 {0, number(c.memory_hits), number(c.disk_hits), number(c.bundle_hits), number(c.callback_hits),
                  number(c.remote_hits), number(c.misses), number(c.compiles), number(c.rebuilt), number(c.lock_waits),
                  number(c.write_failures), number(memory.own.kernels), number(memory.own.bytes),
                  number(memory.shared_kernels), number(memory.device.kernels), number(memory.device.bytes)});
    return {};
  });
}
