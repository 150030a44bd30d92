// Decides who serves a node: see attention.hpp.
// SPDX-License-Identifier: MIT
#include "attention.hpp"

#include "policy.hpp"
#include "settings.hpp"
#include "stats.hpp"

namespace kvjit::plugin {
namespace {

// Null if nobody but the device may serve the node.
Server* candidate(ggml_backend_dev_t device, const Node& node, bool ggml_serves, std::string& why) {
  if (ggml_serves && !settings().takes_all && !policy().takes(node)) return why = "the policy", nullptr;
  return Server::of(device, why);
}

// On a CPU the threads of a graph decide each for itself, so the answer must not change between them: it is waited for.
bool may_wait(const Server& server, bool ggml_serves) {
  return !ggml_serves || settings().takes_all || !server.is_gpu();
}

}  // namespace

bool is_served(ggml_backend_dev_t device, const Node& node, bool ggml_serves) {
  std::string why;
  Server* const server = candidate(device, node, ggml_serves, why);
  const bool is_ready = server && server->ask(node, may_wait(*server, ggml_serves), why) == Answer::ready;
  return is_ready || ggml_serves;
}

Server* taker_of(ggml_backend_dev_t device, const Node& node, bool ggml_serves) {
  std::string why;
  Server* const server = candidate(device, node, ggml_serves, why);
  if (server && server->ask(node, false, why) == Answer::ready) return server;
  stats().left(why);
  return nullptr;
}

}  // namespace kvjit::plugin
