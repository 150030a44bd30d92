// runtime/store/remote.cpp: a server of kernels. Tests use nginx with WebDAV, and a server in this process that gives
// wrong answers of every kind.
// SPDX-License-Identifier: MIT
#include "runtime/store/remote.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "runtime/base/sha256.hpp"
#include "runtime/store/curl.hpp"
#include "tests/unit/runtime/store/fake_world.hpp"

using namespace kvjit;
using namespace kvjit::test;

namespace {

// Opens a socket on a free port of the loopback and returns the port in `port`.
int listen_anywhere(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(fd, 16) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

// Answers every GET with the text that `answer` returns for the path, headers included. An empty text: the server
// hangs.
class Server {
 public:
  explicit Server(std::function<std::string(const std::string& path)> answer) : answer_(std::move(answer)) {
    fd_ = listen_anywhere(port_);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
    for (const int hung : hanging_) close(hung);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::atomic<int> requests{0};

 private:
  void serve() {
    for (int client; (client = accept(fd_, nullptr, nullptr)) >= 0;) {
      char request[4096] = {};
      if (read(client, request, sizeof request - 1) <= 0) {
        close(client);
        continue;
      }
      ++requests;
      const std::string text = request;
      const std::string reply = answer_(text.substr(4, text.find(' ', 4) - 4));
      if (reply.empty()) {
        hanging_.push_back(client);
        continue;
      }
      (void)!::send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
      close(client);
    }
  }
  std::function<std::string(const std::string&)> answer_;
  int fd_ = -1, port_ = 0;
  std::thread thread_;
  std::vector<int> hanging_;
};

std::string reply(const std::string& body, std::size_t announced) {
  return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + std::to_string(announced) + "\r\n\r\n" + body;
}
std::string reply(const std::string& body) { return reply(body, body.size()); }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

struct Remote : StoreFixture {
  Key key = make_key(sample(), ArtefactKind::cubin, {"-fake"});
  std::string entry, action;
  Remote() {
    CacheEntry made{"decode.sample", "fake 1.0", key, "kernel text", {}};
    const std::string code = "from afar";
    made.artefact.bytes.assign(code.begin(), code.end());
    entry = text_of(encode_entry(made));
    action = text_of(encode_action({hex(sha256(entry)), entry.size()}));
    options.remote_patience = std::chrono::milliseconds(200);
  }
};

// nginx over a folder of its own. The destructor ends the server.
class Nginx {
 public:
  explicit Nginx(const std::string& folder) {
    int free = 0;
    close(listen_anywhere(free));
    port_ = free;
    for (const char* part : {"/www", "/temporary"}) fs::create_directories(folder + part);
    const std::string config = folder + "/nginx.conf", temporary = folder + "/temporary";
    std::ofstream(config) << (geteuid() == 0 ? "user root;\n" : "") << "daemon off;\nworker_processes 1;\npid "
                          << folder << "/pid;\nerror_log " << folder
                          << "/errors;\nevents {}\nhttp {\n  access_log off;\n"
                          << "  client_body_temp_path " << temporary << ";\n  proxy_temp_path " << temporary
                          << ";\n  fastcgi_temp_path " << temporary << ";\n  uwsgi_temp_path " << temporary
                          << ";\n  scgi_temp_path " << temporary << ";\n  server {\n    listen 127.0.0.1:" << port_
                          << ";\n    root " << folder << "/www;\n    location / {\n      dav_methods PUT;\n"
                          << "      create_full_put_path on;\n      client_max_body_size 256m;\n    }\n  }\n}\n";
    const std::string errors = folder + "/errors";
    const char* words[] = {"nginx", "-c", config.c_str(), "-e", errors.c_str(), nullptr};
    if (posix_spawn(&child_, "/usr/sbin/nginx", nullptr, nullptr, const_cast<char**>(words), environ) != 0) child_ = 0;
    const auto curl = Curl::open();
    for (int i = 0; is_there() && curl && i < 200; ++i) {
      if ((*curl)->get(url(), std::chrono::milliseconds(100), 1 << 16).status != 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Nginx() {
    if (!is_there()) return;
    kill(child_, SIGTERM);
    waitpid(child_, nullptr, 0);
  }
  bool is_there() const { return child_ != 0; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  int port_ = 0;
  pid_t child_ = 0;
};

}  // namespace

TEST_CASE("an action result is read back; damage is no crash") {
  const ActionResult action{hex(sha256("an entry")), 123456789};
  const auto bytes = encode_action(action);
  const auto read = decode_action(bytes);
  REQUIRE(read);
  CHECK(read->sha256 == action.sha256);
  CHECK(read->bytes == action.bytes);
  // Encoded by hand after https://protobuf.dev/programming-guides/encoding: output_files { path: "kernel.kvc" digest {
  // hash: "aa..." size_bytes: 123456789 } } is a tag, a length, and the same again inside.
  const auto plain = encode_action({std::string(64, 'a'), 123456789});
  std::string letters;
  for (int i = 0; i < 64; ++i) letters += "61";
  CHECK(hex(plain) == "12550a0a6b65726e656c2e6b766312470a40" + letters + "10959aef3a");
  // Other outputs before it, and unknown fields, are skipped.
  std::vector<std::uint8_t> more = {0x12, 0x03, 0x0a, 0x01, 'x', 0x20, 0x07, 0x31, 1, 2, 3, 4, 5, 6, 7, 8};
  for (const std::uint8_t byte : bytes) more.push_back(byte);
  CHECK(decode_action(more)->sha256 == action.sha256);
  for (std::size_t i = 0; i < bytes.size(); ++i) CHECK(!decode_action(std::span(bytes).first(i)));
  std::uint64_t state = 3;
  const auto random = [&state] { return state = state * 6364136223846793005ull + 1442695040888963407ull, state >> 33; };
  for (int round = 0; round < 20000; ++round) {
    auto broken = bytes;
    for (int i = 0; i < 3; ++i) broken[random() % broken.size()] = static_cast<std::uint8_t>(random());
    if (const auto found = decode_action(broken)) CHECK(found->sha256.size() == 64);
  }
}

TEST_CASE_FIXTURE(Remote, "a kernel comes from the server, checked, and stays on disk") {
  const Server server([&](const std::string& path) {
    if (path == "/store/ac/" + key.hex) return reply(action);
    if (path == "/store/cas/" + hex(sha256(entry))) return reply(entry);
    return std::string("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  options.remote = server.url() + "/store/";
  const auto first = context();
  const auto record = first->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::remote);
  CHECK(test::text_of(*record) == "from afar");
  CHECK(first->counters().remote_hits == 1);
  CHECK(first->get(sample("unknown"))->origin == Origin::compiled);
  CHECK(server.requests == 3);
  CHECK(context()->get(sample())->origin == Origin::disk);
  CHECK(world.compiled == 1);
  CHECK(lines_with("warning") == 0);
}

TEST_CASE_FIXTURE(Remote, "whatever a server does wrong is a miss with a reason") {
  std::string said;
  std::string ac = reply(action), cas = reply(entry);
  SUBCASE("other bytes") { cas = reply(std::string(entry.size(), 'x')), said = "other bytes than the digest says"; }
  SUBCASE("one bit") {
    std::string flipped = entry;
    flipped[300] ^= 1;
    cas = reply(flipped), said = "other bytes than the digest says";
  }
  SUBCASE("a body that ends too soon") { cas = reply(entry.substr(0, 100), entry.size()), said = "remaining"; }
  SUBCASE("fewer bytes than named") { cas = reply(entry.substr(0, 100)), said = "other bytes than the digest says"; }
  SUBCASE("more bytes than named") { cas = reply(entry + "more"), said = ""; }
  SUBCASE("an error") {
    ac = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", said = "HTTP status 500";
  }
  SUBCASE("a redirection") {
    ac = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    said = "HTTP status 302";
  }
  SUBCASE("no HTTP") { ac = "what?\r\n\r\n", said = ""; }
  SUBCASE("no action result") { ac = reply("<html></html>"), said = "no action result"; }
  SUBCASE("another kernel's entry") {
    CacheEntry other{"decode.sample", "fake 1.0", make_key(sample("b"), ArtefactKind::cubin, {"-fake"}), "b", {}};
    const std::string bytes = text_of(encode_entry(other));
    ac = reply(text_of(encode_action({hex(sha256(bytes)), bytes.size()})));
    cas = reply(bytes);
    said = "made for another key";
  }
  SUBCASE("it hangs") { ac = "", said = "timed out"; }
  const Server server([&](const std::string& path) { return path.rfind("/ac/", 0) == 0 ? ac : cas; });
  options.remote = server.url();
  const auto begin = std::chrono::steady_clock::now();
  const auto used = context();
  const auto record = used->get(sample());
  REQUIRE(record);
  CHECK(record->origin == Origin::compiled);
  CHECK(test::text_of(*record) == "kernel text");
  CHECK(lines_with("warning") == 1);
  CHECK_MESSAGE(lines_with(said) >= 1, lines.back());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE_FIXTURE(Remote, "after two failures in a row the server is left alone") {
  const Server server([](const std::string&) { return std::string(); });
  options.remote = server.url();
  const auto used = context();
  for (const char* text : {"a", "b", "c", "d"}) CHECK(used->get(sample(text))->origin == Origin::compiled);
  CHECK(server.requests == 2);
  CHECK(lines_with("left alone for 30 s") == 1);
}

TEST_CASE_FIXTURE(Remote, "a server that is not there, and a URL that is none") {
  int port = 0;
  close(listen_anywhere(port));
  options.remote = "http://127.0.0.1:" + std::to_string(port);
  CHECK(context()->get(sample())->origin == Origin::compiled);
  CHECK(lines_with("warning") == 1);
  for (const char* url : {"ftp://host/", "file:///etc/passwd", "host"}) {
    options.remote = url;
    const auto refused = open_remote(options);
    REQUIRE(!refused);
    CHECK(refused.error().code == Code::usage);
  }
}

TEST_CASE_FIXTURE(Remote,
                  "nginx with WebDAV: one machine stores, another finds; without being told to, nothing is stored") {
  const Nginx nginx(folder + "/nginx");
  if (!nginx.is_there()) {
    MESSAGE("skipped: there is no /usr/sbin/nginx (tools/test installs nginx-light)");
    return;
  }
  options.remote = nginx.url();
  options.cache_dir = "off";
  CHECK(context()->get(sample())->origin == Origin::compiled);
  CHECK(context()->get(sample())->origin == Origin::compiled);
  options.remote_writes = true;
  CHECK(context()->get(sample())->origin == Origin::compiled);
  options.remote_writes = false;
  const auto served = context();
  const auto record = served->get(sample());
  CHECK(record->origin == Origin::remote);
  CHECK(test::text_of(*record) == "kernel text");
  CHECK(world.compiled == 3);
  CHECK(lines_with("warning") == 0);

  // The client must notice damage on the server's disk.
  for (const auto& file : fs::directory_iterator(folder + "/nginx/www/cas"))
    std::fstream(file.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(300).put('\xee');
  CHECK(context()->get(sample())->origin == Origin::compiled);
  CHECK(lines_with("other bytes than the digest says") == 1);
}
