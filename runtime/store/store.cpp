// Searches the layers of the store in their order and compiles on a miss: see store.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/store.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "runtime/store/bundle.hpp"
#include "runtime/store/remote.hpp"

namespace kvjit {
namespace {

class CallbackLayer final : public Layer {
 public:
  explicit CallbackLayer(EntryCallbacks callbacks) : callbacks_(std::move(callbacks)) {}
  Origin origin() const override { return Origin::callback; }
  std::string name() const override { return "the engine's store"; }
  std::optional<std::vector<std::uint8_t>> read(const Key& key) override {
    return callbacks_.get ? callbacks_.get(key.hex) : std::nullopt;
  }
  void publish(const Key& key, std::span<const std::uint8_t> entry) override {
    if (callbacks_.put) callbacks_.put(key.hex, entry);
  }

 private:
  EntryCallbacks callbacks_;
};

}  // namespace

const char* to_string(Origin origin) {
  constexpr std::array kNames = {"memory", "disk", "compiled", "bundle", "callback", "remote"};
  return kNames[static_cast<std::size_t>(origin)];
}

Toolchain nvrtc_toolchain(const Options& options, ArtefactKind kind) {
  Toolchain nvrtc;
  nvrtc.kind = kind;
  nvrtc.open = [options, kind] { return open_nvrtc(options, kind); };
  nvrtc.options = [kind](const Source& source) { return nvrtc_options(source, kind); };
  nvrtc.reads_ptx = kind == ArtefactKind::cubin;
  return nvrtc;
}

Toolchain host_toolchain(const Options& options) {
  Toolchain host;
  host.kind = ArtefactKind::host_object;
  host.open = [options] { return open_host_compiler(options); };
  host.options = [](const Source&) { return host_options(); };
  host.is_identity_in_key = true;
  return host;
}

Store::Store(const Options& options, Toolchain toolchain)
    : options_(options), toolchain_(std::move(toolchain)), cache_(options) {}

Result<std::unique_ptr<Store>> Store::open(const Options& options, Toolchain toolchain) {
  std::unique_ptr<Store> store(new Store(options, std::move(toolchain)));
  KV_TRY(bundles, open_bundles(options));
  store->bundles_ = std::move(bundles);
  if (options.callbacks.get || options.callbacks.put)
    store->later_layers_.push_back(std::make_unique<CallbackLayer>(options.callbacks));
  if (!options.remote.empty()) {
    KV_TRY(remote, open_remote(options));
    store->later_layers_.push_back(std::move(remote));
  }
  return store;
}

void Store::say(const std::string& line) const {
  if (options_.log) options_.log(line);
}

CacheCounters Store::counters() const {
  const auto hits = [this](Origin origin) { return hits_[static_cast<std::size_t>(origin)].load(); };
  CacheCounters c;
  c.disk_hits = hits(Origin::disk);
  c.bundle_hits = hits(Origin::bundle);
  c.callback_hits = hits(Origin::callback);
  c.remote_hits = hits(Origin::remote);
  c.misses = misses_;
  c.compiles = compiles_;
  c.rebuilt = rebuilt_ + cache_.rebuilt;
  c.lock_waits = cache_.lock_waits;
  c.write_failures = cache_.write_failures;
  return c;
}

Key Store::request_key(const Source& source) const {
  return make_key(source, toolchain_.kind, toolchain_.options(source));
}

Result<Key> Store::key(const Source& source, const Key& request) {
  if (!toolchain_.is_identity_in_key) return request;
  KV_TRY(opened, compiler());
  auto list = opened->options(source);
  list.push_back("compiler " + opened->identity());
  return make_key(source, toolchain_.kind, list);
}

Result<void> Store::get(const Source& source, const Key& request, const Use& use, std::stop_token stop) {
  if (from_bundles(source, request, use)) return {};
  KV_TRY(key, this->key(source, request));
  if (from_disk(key, use)) return {};
  // A sealed context does not wait for another process: that one may fail to publish, and this one may not compile.
  auto lock = is_sealed_ ? Cache::Lock{} : cache_.lock(key, source.name, stop);
  if (stop.stop_requested()) return fail(Code::cancelled, fmt::format("waiting for {} was cancelled", source.name));
  if (from_disk(key, use)) return {};  // another process may have published since
  for (const auto& layer : later_layers_) {
    CacheEntry entry;
    std::vector<std::string> complaints;
    if (from_layer(*layer, key, use, complaints, &entry)) {
      cache_.publish(entry);
      return {};
    }
    for (const std::string& line : complaints) say(line);
  }
  ++misses_;
  return make(source, key, use, stop);
}

std::vector<Key> Store::bundle_keys(const Source& source, const Key& request) const {
  std::vector<Key> keys = {request};
  if (toolchain_.reads_ptx)
    keys.push_back(make_key(source, ArtefactKind::ptx, nvrtc_options(source, ArtefactKind::ptx)));
  return keys;
}

Result<Store::Places> Store::places(const Source& source) {
  const Key request = request_key(source);
  KV_TRY(stored, key(source, request));
  return Places{bundles_.empty() ? std::vector<Key>{} : bundle_keys(source, request), std::move(stored)};
}

bool Store::has(const Places& places) const {
  for (const Key& key : places.bundled)
    for (const auto& bundle : bundles_)
      if (bundle->has(key)) return true;
  return cache_.has(places.stored.hex);
}

bool Store::from_bundles(const Source& source, const Key& request, const Use& use) {
  if (bundles_.empty()) return false;
  const std::vector<Key> keys = bundle_keys(source, request);
  // The driver may refuse one entry and load a later one: PTX serves later GPUs than a cubin. So complaints are logged
  // only if no entry serves.
  std::vector<std::string> complaints;
  for (const Key& key : keys)
    for (const auto& bundle : bundles_)
      if (from_layer(*bundle, key, use, complaints)) return true;
  for (const std::string& line : complaints) say(line);
  return false;
}

Result<void> Store::make(const Source& source, const Key& key, const Use& use, std::stop_token stop) {
  if (is_sealed_)
    return fail(Code::sealed, fmt::format("{} would have to be compiled, but the context is sealed", source.name), {},
                {"warm it before the context is sealed, or pack it into a bundle", "key " + key.hex});
  KV_TRY(compiler, this->compiler());
  say("compiling " + source.name + " ...");
  KV_TRY(artefact, compiler->compile(source, stop));
  ++compiles_;
  const Hit hit{
      key, Origin::compiled, {source.name, compiler->identity(), key, source.text.str(), std::move(artefact)}};
  cache_.publish(hit.entry);
  if (!later_layers_.empty()) {
    const auto bytes = encode_entry(hit.entry);
    for (const auto& layer : later_layers_) layer->publish(key, bytes);
  }
  return use(hit);
}

bool Store::from_layer(Layer& layer, const Key& key, const Use& use, std::vector<std::string>& complaints,
                       CacheEntry* copy) {
  const auto bytes = layer.read(key);
  if (!bytes) return false;
  auto entry = decode_entry(key.hex, *bytes);
  if (!entry) {
    ++rebuilt_;
    complaints.push_back(fmt::format("warning: {}: {}", layer.name(), entry.error().message));
    return false;
  }
  const Hit hit{key, layer.origin(), std::move(*entry)};
  if (!is_used(hit, use, complaints)) return false;
  if (copy) *copy = hit.entry;
  return true;
}

bool Store::from_disk(const Key& key, const Use& use) {
  auto entry = cache_.read(key);
  std::vector<std::string> complaints;
  if (entry && is_used({key, Origin::disk, std::move(*entry)}, use, complaints)) return true;
  for (const std::string& line : complaints) say(line);
  return false;
}

bool Store::is_used(const Hit& hit, const Use& use, std::vector<std::string>& complaints) {
  const Result<void> used = use(hit);
  if (used) return ++hits_[static_cast<std::size_t>(hit.origin)], true;
  ++rebuilt_;
  complaints.push_back(fmt::format("warning: {} from {} is of no use here: {}", hit.entry.name, to_string(hit.origin),
                                   used.error().message));
  return false;
}

Result<std::shared_ptr<Compiler>> Store::compiler() {
  const std::lock_guard guard(mutex_);
  if (!compiler_) {
    KV_TRY(opened, toolchain_.open());
    compiler_ = std::move(opened);
  }
  return compiler_;
}

}  // namespace kvjit
