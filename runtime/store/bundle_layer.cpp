// Opens bundles as layers of the store: see open_bundles in bundle.hpp.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "runtime/store/bundle.hpp"

namespace kvjit {
namespace {

class BundleLayer final : public Layer {
 public:
  BundleLayer(Bundle bundle, std::function<void(const std::string&)> log)
      : bundle_(std::move(bundle)), log_(std::move(log)) {}

  Origin origin() const override { return Origin::bundle; }
  std::string name() const override { return bundle_.name(); }

  bool has(const Key& key) override { return bundle_.find(sha256(delimited(key))) != nullptr; }

  std::optional<std::vector<std::uint8_t>> read(const Key& key) override {
    const Bundle::Item* item = bundle_.find(sha256(delimited(key)));
    if (!item) return say_if_foreign(key), std::nullopt;
    auto bytes = bundle_.read(*item);
    if (bytes) return *bytes;
    std::call_once(said_damage_,
                   [&] { say(bytes.error().message + " (and maybe more): what it should serve is a miss"); });
    return std::nullopt;
  }

 private:
  void say(const std::string& line) const {
    if (log_) log_("warning: " + line);
  }
  void say_if_foreign(const Key& key) {
    const std::string_view arch = field(key, "arch");
    const auto& items = bundle_.items();
    if (std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.arch == arch; })) return;
    std::call_once(said_arch_, [&] {
      say(fmt::format("{} has kernels for {}, none for {}", bundle_.name(), bundle_.archs(), arch));
    });
  }

  Bundle bundle_;
  std::function<void(const std::string&)> log_;
  std::once_flag said_damage_, said_arch_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Layer>>> open_bundles(const Options& options) {
  std::vector<PublicKey> trusted;
  for (const std::string& text : options.trusted_keys) {
    auto key = read_public_key(text);
    if (!key) return fail(Code::usage, fmt::format("trusted key '{}': {}", text, key.error().message));
    trusted.push_back(*key);
  }
  std::vector<Result<Bundle>> opened;
  for (const std::string& path : options.bundles) opened.push_back(Bundle::open(path));
  for (std::size_t i = 0; i < options.bundle_bytes.size(); ++i)
    opened.push_back(Bundle::open(options.bundle_bytes[i], fmt::format("bundle {} in memory", i)));

  std::vector<std::unique_ptr<Layer>> layers;
  for (Result<Bundle>& bundle : opened) {
    if (!bundle) {
      // A missing bundle is harmless to an engine, which compiles instead. A bundle that cannot be trusted is an error
      // if there are trusted keys.
      const bool is_refused = options.must_open_bundles || (!trusted.empty() && bundle.error().code == Code::integrity);
      if (is_refused) return tl::unexpected(bundle.error());
      if (options.log) options.log("warning: " + bundle.error().message + "; it is left out");
      continue;
    }
    const std::optional<PublicKey>& signer = bundle->signer();
    if (!trusted.empty() && (!signer || std::find(trusted.begin(), trusted.end(), *signer) == trusted.end()))
      return fail(
          Code::integrity,
          fmt::format("{}: {}", bundle->name(),
                      signer ? fmt::format("signed by {}, which is no trusted key", hex(*signer)) : "not signed"),
          {}, {"`kvjit pack --sign KEYFILE` signs a bundle; trusted keys are KVJIT_TRUSTED_KEYS and the option"});
    layers.push_back(std::make_unique<BundleLayer>(std::move(*bundle), options.log));
  }
  return layers;
}

}  // namespace kvjit
