// Decorates devices and their backends: see decorate.hpp.
// SPDX-License-Identifier: MIT
#include "ways/decorate.hpp"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "attention.hpp"
#include "ggml_tables.hpp"
#include "stats.hpp"
#include "ways/join.hpp"

namespace kvjit::plugin {
namespace {

using InitBackend = ggml_backend_t (*)(ggml_backend_dev_t, const char*);
using SupportsOp = bool (*)(ggml_backend_dev_t, const ggml_tensor*);
using GraphCompute = ggml_status (*)(ggml_backend_t, ggml_cgraph*);
using Free = void (*)(ggml_backend_t);

// The functions of ggml that were replaced.
struct Device {
  InitBackend init_backend;
  SupportsOp supports_op;
};
struct Backend {
  GraphCompute graph_compute;
  Free free;
  std::unique_ptr<Join> join;
};
struct Decorated {
  std::mutex mutex;
  Way way = Way::graph;
  std::map<ggml_backend_dev_t, Device> devices;
  std::map<ggml_backend_t, std::shared_ptr<Backend>> backends;
};
Decorated& decorated() {
  static auto& all = *new Decorated;  // never destroyed: ggml may free backends behind the statics
  return all;
}

thread_local ggml_backend_t computing = nullptr;  // the backend whose graph this thread computes

const Device& device_of(ggml_backend_dev_t device) {
  const std::lock_guard guard(decorated().mutex);
  return decorated().devices.at(device);
}
std::shared_ptr<Backend> backend_of(ggml_backend_t backend) {
  const std::lock_guard guard(decorated().mutex);
  return decorated().backends.at(backend);
}

// Whether a source of a node lies in memory of another device, which neither ggml nor kvjit reads from this one.
bool has_source_elsewhere(ggml_backend_dev_t device, const ggml_tensor* tensor) {
  for (const ggml_tensor* const source : tensor->src)
    if (source && source->buffer && !ggml_backend_buffer_is_host(source->buffer) &&
        ggml_backend_buft_get_device(ggml_backend_buffer_get_type(source->buffer)) != device)
      return true;
  return false;
}

bool supports_op(ggml_backend_dev_t device, const ggml_tensor* tensor) {
  const bool ggml_serves = device_of(device).supports_op(device, tensor);
  const auto node = read_node(tensor);
  if (!ggml_serves && node && has_source_elsewhere(device, tensor)) return false;
  return node ? is_served(device, *node, ggml_serves) : ggml_serves;
}

// A node and who serves it.
struct Decision {
  bool ggml_serves;
  Server* taker;  // null: the node is left to ggml
};
Decision decide(ggml_backend_t backend, const Node& node) {
  ggml_backend_dev_t const device = ggml_backend_get_device(backend);
  const bool ggml_serves = device_of(device).supports_op(device, node.out);
  return {ggml_serves, taker_of(device, node, ggml_serves)};
}

// Serves a node that kvjit takes. is_left: that failed, and ggml serves the node itself.
ggml_status attend(ggml_backend_t backend, const Node& node, const Decision& decision, bool& is_left) {
  const std::shared_ptr<Backend> own = backend_of(backend);
  std::string why;
  if (!own->join) own->join = Join::make(backend, *decision.taker, why);
  is_left = false;
  if (own->join && own->join->attend(node, why)) return GGML_STATUS_SUCCESS;
  stats().left(why);
  say(describe(node) + ": " + why + (decision.ggml_serves ? "; ggml serves it" : ""));
  is_left = decision.ggml_serves;
  return decision.ggml_serves ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

// Way graph: the nodes between two attentions are a graph of their own.
ggml_status compute_in_parts(ggml_backend_t backend, GraphCompute compute, ggml_cgraph* graph) {
  const int nodes = ggml_graph_n_nodes(graph);
  int first = 0;
  const auto compute_until = [&](int end) {
    if (first == 0 && end == nodes) return compute(backend, graph);
    if (first == end) return GGML_STATUS_SUCCESS;
    GraphView view(graph, first, end);
    return compute(backend, view.graph());
  };
  for (int i = 0; i < nodes; ++i) {
    const auto node = read_node(ggml_graph_node(graph, i));
    if (!node) continue;
    // Whether the node is taken is asked before ggml computes what comes before it, and the rest of the graph stays
    // whole if it is not.
    const Decision decision = decide(backend, *node);
    if (!decision.taker) continue;
    if (const ggml_status status = compute_until(i); status != GGML_STATUS_SUCCESS) return status;
    bool is_left = false;
    if (const ggml_status status = attend(backend, *node, decision, is_left); status != GGML_STATUS_SUCCESS)
      return status;
    first = is_left ? i : i + 1;
  }
  return compute_until(nodes);
}

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  const std::shared_ptr<Backend> own = backend_of(backend);
  const GraphCompute compute = own->graph_compute;
  if (own->join) own->join->begin_graph();
  if (decorated().way == Way::graph) return compute_in_parts(backend, compute, graph);
  ggml_backend_t const before = computing;
  computing = backend;
  const ggml_status status = compute(backend, graph);
  computing = before;
  return status;
}

void free_backend(ggml_backend_t backend) {
  Server::end_requests();  // the process may end behind this
  const std::shared_ptr<Backend> own = backend_of(backend);
  {
    const std::lock_guard guard(decorated().mutex);
    decorated().backends.erase(backend);
  }
  own->free(backend);
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char* parameters) {
  ggml_backend_t const backend = device_of(device).init_backend(device, parameters);
  if (!backend) return backend;
  const GgmlTables& tables = ggml_tables();
  void** const compute = slot_of(backend, tables.graph_compute);
  void** const free = slot_of(backend, tables.free);
  auto own = std::make_shared<Backend>();
  own->graph_compute = reinterpret_cast<GraphCompute>(*compute);
  own->free = reinterpret_cast<Free>(*free);
  {
    const std::lock_guard guard(decorated().mutex);
    decorated().backends[backend] = std::move(own);
  }
  *compute = reinterpret_cast<void*>(&graph_compute);
  *free = reinterpret_cast<void*>(&free_backend);
  return backend;
}

}  // namespace

std::string decorate(ggml_backend_reg_t registry, Way way) {
  const GgmlTables& tables = ggml_tables();
  if (const std::string missing = tables.missing(); !missing.empty()) return missing;
  if (way == Way::graph && !tables.graph_view) return "ggml_graph_view";
  // ggml-cuda then forks streams ahead of attention and joins them in the same graph, which a cut would part.
  const char* const forks = std::getenv("GGML_CUDA_GRAPH_OPT");
  if (way == Way::graph && forks && std::strcmp(forks, "1") == 0) return "graph without GGML_CUDA_GRAPH_OPT=1";
  const std::lock_guard guard(decorated().mutex);
  decorated().way = way;
  for (std::size_t i = 0; i < ggml_backend_reg_dev_count(registry); ++i) {
    ggml_backend_dev_t const device = ggml_backend_reg_dev_get(registry, i);
    void** const init = slot_of(device, tables.init_backend);
    void** const supports = slot_of(device, tables.supports_op);
    if (*init == reinterpret_cast<void*>(&init_backend)) continue;  // decorated before
    decorated().devices[device] = {reinterpret_cast<InitBackend>(*init), reinterpret_cast<SupportsOp>(*supports)};
    *init = reinterpret_cast<void*>(&init_backend);
    *supports = reinterpret_cast<void*>(&supports_op);
  }
  return "";
}

bool is_taken_on_cpu(const ggml_tensor* tensor) {
  const auto node = read_node(tensor);
  if (!node) return false;
  ggml_backend_dev_t cpu = nullptr;
  {
    const std::lock_guard guard(decorated().mutex);
    for (const auto& [device, functions] : decorated().devices)
      if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) cpu = device;
  }
  return cpu && taker_of(cpu, *node, device_of(cpu).supports_op(cpu, tensor));
}

bool attend_in_graph(const ggml_tensor* tensor) {
  const auto node = read_node(tensor);
  if (!node || !computing) return false;
  const Decision decision = decide(computing, *node);
  bool is_left = false;
  return decision.taker && attend(computing, *node, decision, is_left) == GGML_STATUS_SUCCESS && !is_left;
}

}  // namespace kvjit::plugin
