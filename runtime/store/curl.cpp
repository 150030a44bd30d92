// Sends requests through libcurl: see curl.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/store/curl.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/library.hpp"

namespace kvjit {
namespace {

// Constants of curl.h, the same since libcurl 7.19 (2008), because its binary interface does not change.
using CurlHandle = struct CurlOpaque*;
constexpr long kGlobalAll = 3;
constexpr int kWriteData = 10001, kUrl = 10002, kReadData = 10009, kErrorBuffer = 10010;
constexpr int kUpload = 46, kNoSignal = 99, kTimeoutMs = 155, kConnectTimeoutMs = 156, kProtocols = 181;
constexpr int kWriteFunction = 20011, kReadFunction = 20012;
constexpr int kSentBytes = 30115;  // CURLOPT_INFILESIZE_LARGE
constexpr int kStatus = 0x200000 + 2;
constexpr long kHttpAndHttps = 3;
constexpr std::size_t kErrorBytes = 256;

struct Received {
  std::vector<std::uint8_t> bytes;
  std::size_t most = 0;
};
std::size_t receive(const char* data, std::size_t, std::size_t count, void* user) {
  auto& received = *static_cast<Received*>(user);
  if (count > received.most - received.bytes.size()) return 0;  // any other number ends the transfer with an error
  const auto* begin = reinterpret_cast<const std::uint8_t*>(data);
  received.bytes.insert(received.bytes.end(), begin, begin + count);
  return count;
}

std::size_t send_more(char* to, std::size_t, std::size_t capacity, void* user) {
  auto& left = *static_cast<std::span<const std::uint8_t>*>(user);
  const std::size_t count = std::min(capacity, left.size());
  if (count) std::memcpy(to, left.data(), count);
  left = left.subspan(count);
  return count;
}

}  // namespace

struct Curl::Api {
  int (*global_init)(long) = nullptr;
  CurlHandle (*init)() = nullptr;
  int (*set)(CurlHandle, int, ...) = nullptr;
  int (*perform)(CurlHandle) = nullptr;
  int (*get_info)(CurlHandle, int, ...) = nullptr;
  void (*cleanup)(CurlHandle) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

Result<std::shared_ptr<const Curl>> Curl::open() {
  KV_TRY(library, Library::open("libcurl", {{"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"}, {}, {}},
                                "install libcurl 4, or leave the server of kernels out (KVJIT_REMOTE)"));
  auto api = std::make_shared<Api>();
  const auto find = [&library](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(library.symbol(name));
    return function != nullptr;
  };
  if (!find(api->global_init, "curl_global_init") || !find(api->init, "curl_easy_init") ||
      !find(api->set, "curl_easy_setopt") || !find(api->perform, "curl_easy_perform") ||
      !find(api->get_info, "curl_easy_getinfo") || !find(api->cleanup, "curl_easy_cleanup") ||
      !find(api->error_text, "curl_easy_strerror"))
    return fail(Code::environment, library.path() + " is no libcurl 4");
  static const int started = api->global_init(kGlobalAll);
  if (started != 0) return fail(Code::environment, std::string("libcurl: ") + api->error_text(started));
  auto curl = std::make_shared<Curl>();
  curl->api_ = std::move(api);
  return curl;
}

Curl::Reply Curl::get(const std::string& url, std::chrono::milliseconds patience, std::size_t most) const {
  return run(url, patience, most, std::nullopt);
}

Curl::Reply Curl::put(const std::string& url, std::chrono::milliseconds patience,
                      std::span<const std::uint8_t> body) const {
  constexpr std::size_t kMostReply = 1 << 16;
  return run(url, patience, kMostReply, body);
}

Curl::Reply Curl::run(const std::string& url, std::chrono::milliseconds patience, std::size_t most,
                      const std::optional<std::span<const std::uint8_t>>& sent) const {
  Reply reply;
  const std::unique_ptr<CurlOpaque, void (*)(CurlHandle)> handle(api_->init(), api_->cleanup);
  if (!handle) {
    reply.error = "libcurl has no memory";
    return reply;
  }
  const auto set = [&](int option, auto value) { api_->set(handle.get(), option, value); };
  Received received{{}, most};
  std::span<const std::uint8_t> left = sent.value_or(std::span<const std::uint8_t>{});
  char why[kErrorBytes] = {};
  const long ms = static_cast<long>(patience.count());
  set(kErrorBuffer, &why[0]);
  set(kUrl, url.c_str());
  set(kProtocols, kHttpAndHttps);
  set(kNoSignal, 1L);  // timeouts must not send signals to an engine's threads
  set(kTimeoutMs, ms);
  set(kConnectTimeoutMs, ms);
  set(kWriteFunction, &receive);
  set(kWriteData, &received);
  if (sent) {
    set(kUpload, 1L);
    set(kReadFunction, &send_more);
    set(kReadData, &left);
    set(kSentBytes, static_cast<long long>(sent->size()));
  }
  if (const int failed = api_->perform(handle.get()); failed != 0) {
    reply.error = why[0] ? why : api_->error_text(failed);
    return reply;
  }
  api_->get_info(handle.get(), kStatus, &reply.status);
  reply.body = std::move(received.bytes);
  return reply;
}

}  // namespace kvjit
