// The registry and the device of the plugin's own: see own_device.hpp.
// SPDX-License-Identifier: MIT
#include "ways/own_device.hpp"

#include "attention.hpp"
#include "ggml_tables.hpp"
#include "settings.hpp"
#include "ways/join.hpp"

namespace kvjit::plugin {
namespace {

constexpr const char* kName = "KVJIT";

// Nodes that only rename memory compute nothing.
bool is_view(const ggml_tensor* tensor) {
  switch (tensor->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    default:
      return false;
  }
}

// The CPU device stands for the server: both compute over host memory.
ggml_backend_dev_t cpu_device() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }

ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* const tensor = ggml_graph_node(graph, i);
    if (is_view(tensor)) continue;
    const auto node = read_node(tensor);
    if (!node) return GGML_STATUS_FAILED;
    std::string why;
    Server* const server = taker_of(cpu_device(), *node, false);
    const auto join = server ? Join::make(backend, *server, why) : nullptr;
    if (join && join->attend(*node, why)) continue;
    say(describe(*node) + ": " + (why.empty() ? "no program" : why));
    return GGML_STATUS_FAILED;
  }
  return GGML_STATUS_SUCCESS;
}

ggml_backend_t init(ggml_backend_dev_t device, const char*) {
  static ggml_guid guid = {'k', 'v', 'j', 'i', 't', '-', 'a', 't', 't', 'e', 'n', 't', 'i', 'o', 'n', 0};
  auto* const backend = new ggml_backend{};
  backend->guid = &guid;
  backend->device = device;
  backend->iface.get_name = [](ggml_backend_t) { return kName; };
  backend->iface.free = [](ggml_backend_t own) { delete own; };
  backend->iface.graph_compute = compute;
  return backend;
}

ggml_backend_dev_t own_device(ggml_backend_reg_t registry) {
  static ggml_backend_device device{};
  device.reg = registry;
  ggml_backend_device_i& f = device.iface;
  f.get_name = [](ggml_backend_dev_t) { return kName; };
  f.get_description = [](ggml_backend_dev_t) { return "attention over packed KV caches, on the CPU"; };
  f.get_memory = [](ggml_backend_dev_t, std::size_t* free, std::size_t* total) { *free = *total = 0; };
  f.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
  f.get_props = [](ggml_backend_dev_t own, ggml_backend_dev_props* props) {
    *props = {};
    props->name = kName;
    props->description = own->iface.get_description(own);
    props->type = own->iface.get_type(own);
  };
  f.init_backend = init;
  f.get_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_dev_buffer_type(cpu_device()); };
  f.supports_op = [](ggml_backend_dev_t, const ggml_tensor* tensor) {
    const auto node = read_node(tensor);
    return node ? is_served(cpu_device(), *node, false) : is_view(tensor);
  };
  f.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return ggml_backend_buft_is_host(type); };
  return &device;
}

}  // namespace

ggml_backend_reg_t own_registry(bool has_device) {
  static ggml_backend_reg registry{};
  static bool shows_device;
  shows_device = has_device;
  registry.api_version = GGML_BACKEND_API_VERSION;
  registry.iface.get_name = [](ggml_backend_reg_t) { return kName; };
  registry.iface.get_device_count = [](ggml_backend_reg_t) -> std::size_t { return shows_device ? 1 : 0; };
  registry.iface.get_device = [](ggml_backend_reg_t own, std::size_t) { return own_device(own); };
  registry.iface.get_proc_address = [](ggml_backend_reg_t, const char*) -> void* { return nullptr; };
  return &registry;
}

}  // namespace kvjit::plugin
