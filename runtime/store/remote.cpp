// Reads and writes a server of compiled kernels: see remote.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/remote.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "runtime/base/sha256.hpp"
#include "runtime/store/curl.hpp"
#include "runtime/store/entry.hpp"

namespace kvjit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostActionBytes = 1 << 16;
constexpr int kFailuresToRest = 2;                 // after so many failures in a row, requests pause for kRest
constexpr auto kRest = std::chrono::seconds(30);   // pause of requests to a failing server
constexpr const char* kOutputName = "kernel.kvc";  // path of the one output file

// Protocol buffers: a field is its number and wire type, then a varint (type 0) or a length and bytes (type 2).
constexpr std::uint64_t kVarint = 0, kBytes = 2;
constexpr std::uint64_t kOutputFiles = 2, kPath = 1, kDigest = 2, kHash = 1, kSize = 2;

void put_varint(std::vector<std::uint8_t>& to, std::uint64_t value) {
  for (; value >= 128; value >>= 7) to.push_back(static_cast<std::uint8_t>(value | 128));
  to.push_back(static_cast<std::uint8_t>(value));
}

template <class Bytes>
void put_field(std::vector<std::uint8_t>& to, std::uint64_t number, const Bytes& bytes) {
  put_varint(to, number << 3 | kBytes);
  put_varint(to, std::size(bytes));
  to.insert(to.end(), std::begin(bytes), std::end(bytes));
}

struct Field {
  std::uint64_t number = 0, type = 0, value = 0;
  std::span<const std::uint8_t> bytes;
};

bool take_varint(std::span<const std::uint8_t>& from, std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const std::uint8_t byte = from[0];
    from = from.subspan(1);
    value |= std::uint64_t{byte & 127u} << shift;
    if (byte < 128) return true;
  }
  return false;
}

// Takes the next field. None: the message has ended, or it is malformed.
std::optional<Field> take_field(std::span<const std::uint8_t>& from) {
  Field field;
  std::uint64_t tag = 0;
  if (from.empty() || !take_varint(from, tag)) return std::nullopt;
  field.number = tag >> 3, field.type = tag & 7;
  if (field.type == kVarint) return take_varint(from, field.value) ? std::optional(field) : std::nullopt;
  constexpr std::uint64_t kFixed64 = 1, kFixed32 = 5;
  std::uint64_t length = 0;
  if (field.type == kBytes) {
    if (!take_varint(from, length)) return std::nullopt;
  } else if (field.type == kFixed64 || field.type == kFixed32) {
    length = field.type == kFixed64 ? 8 : 4;
  } else {
    return std::nullopt;
  }
  if (length > from.size()) return std::nullopt;
  field.bytes = from.first(length);
  from = from.subspan(length);
  return field;
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

class RemoteLayer final : public Layer {
 public:
  RemoteLayer(const Options& options, std::shared_ptr<const Curl> curl)
      : url_(options.remote),
        patience_(options.remote_patience),
        writes_(options.remote_writes),
        log_(options.log),
        curl_(std::move(curl)) {
    while (!url_.empty() && url_.back() == '/') url_.pop_back();
  }

  Origin origin() const override { return Origin::remote; }
  std::string name() const override { return url_; }

  std::optional<std::vector<std::uint8_t>> read(const Key& key) override {
    const auto action_bytes = fetch("/ac/" + key.hex, kMostActionBytes);
    if (!action_bytes) return std::nullopt;
    const auto action = decode_action(*action_bytes);
    if (!action || action->bytes > kMaxEntryBytes) return wrong("/ac/" + key.hex, "no action result of a kernel");
    const std::string place = "/cas/" + action->sha256;
    auto entry = fetch(place, action->bytes);
    if (!entry) return std::nullopt;
    if (entry->size() != action->bytes ||
        hex(sha256({reinterpret_cast<const char*>(entry->data()), entry->size()})) != action->sha256)
      return wrong(place, "other bytes than the digest says");
    failures_ = 0;
    return entry;
  }

  void publish(const Key& key, std::span<const std::uint8_t> entry) override {
    if (!writes_) return;
    const ActionResult action{hex(sha256({reinterpret_cast<const char*>(entry.data()), entry.size()})), entry.size()};
    // The entry is stored first, so that an ActionResult never names a missing one.
    if (store("/cas/" + action.sha256, entry)) store("/ac/" + key.hex, encode_action(action));
  }

 private:
  bool is_resting() {
    const std::lock_guard guard(mutex_);
    return Clock::now() < rests_until_;
  }

  void failed(const std::string& place, const std::string& why) {
    if (++failures_ < kFailuresToRest) return say(fmt::format("{}{}: {}", url_, place, why));
    failures_ = 0;
    {
      const std::lock_guard guard(mutex_);
      rests_until_ = Clock::now() + kRest;
    }
    say(fmt::format("{}{}: {}; the server is left alone for {} s", url_, place, why, kRest.count()));
  }

  std::nullopt_t wrong(const std::string& place, const std::string& why) {
    failed(place, why);
    return std::nullopt;
  }

  std::optional<std::vector<std::uint8_t>> fetch(const std::string& place, std::size_t most) {
    constexpr long kOk = 200, kNotFound = 404;
    if (is_resting()) return std::nullopt;
    Curl::Reply reply = curl_->get(url_ + place, patience_, most);
    if (reply.status == kOk) return std::move(reply.body);
    if (reply.status == kNotFound)
      failures_ = 0;
    else
      failed(place, reply.status ? fmt::format("HTTP status {}", reply.status) : reply.error);
    return std::nullopt;
  }

  bool store(const std::string& place, std::span<const std::uint8_t> bytes) {
    if (is_resting()) return false;
    const Curl::Reply reply = curl_->put(url_ + place, patience_, bytes);
    if (reply.status >= 200 && reply.status < 300) return true;
    failed(place, reply.status ? fmt::format("HTTP status {} to a PUT", reply.status) : reply.error);
    return false;
  }

  void say(const std::string& line) const {
    if (log_) log_("warning: " + line);
  }

  std::string url_;
  std::chrono::milliseconds patience_;
  bool writes_;
  std::function<void(const std::string&)> log_;
  std::shared_ptr<const Curl> curl_;
  std::atomic<int> failures_{0};
  std::mutex mutex_;
  Clock::time_point rests_until_{};
};

}  // namespace

std::vector<std::uint8_t> encode_action(const ActionResult& action) {
  std::vector<std::uint8_t> digest, file, message;
  put_field(digest, kHash, action.sha256);
  put_varint(digest, kSize << 3 | kVarint);
  put_varint(digest, action.bytes);
  put_field(file, kPath, std::string_view(kOutputName));
  put_field(file, kDigest, digest);
  put_field(message, kOutputFiles, file);
  return message;
}

std::optional<ActionResult> decode_action(std::span<const std::uint8_t> bytes) {
  while (const auto output = take_field(bytes)) {
    if (output->number != kOutputFiles || output->type != kBytes) continue;
    ActionResult action;
    std::string path;
    auto file = output->bytes;
    while (const auto field = take_field(file)) {
      if (field->number == kPath && field->type == kBytes) path.assign(field->bytes.begin(), field->bytes.end());
      if (field->number != kDigest || field->type != kBytes) continue;
      auto digest = field->bytes;
      while (const auto digest_field = take_field(digest)) {
        if (digest_field->number == kHash && digest_field->type == kBytes)
          action.sha256.assign(digest_field->bytes.begin(), digest_field->bytes.end());
        if (digest_field->number == kSize && digest_field->type == kVarint) action.bytes = digest_field->value;
      }
    }
    if (path == kOutputName) return is_digest(action.sha256) ? std::optional(action) : std::nullopt;
  }
  return std::nullopt;
}

Result<std::unique_ptr<Layer>> open_remote(const Options& options) {
  if (options.remote.rfind("http://", 0) != 0 && options.remote.rfind("https://", 0) != 0)
    return fail(Code::usage, fmt::format("remote '{}' is no URL of http:// or https://", options.remote));
  KV_TRY(curl, Curl::open());
  return std::unique_ptr<Layer>(std::make_unique<RemoteLayer>(options, curl));
}

}  // namespace kvjit
