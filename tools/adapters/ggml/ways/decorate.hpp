// Decorates the devices of a registry in place: their supports_op and init_backend, and the graph_compute of their
// backends. Devices, buffer types and backends stay ggml's own objects, so its scheduler places nodes as before.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "ggml-backend-impl.h"
#include "settings.hpp"

namespace kvjit::plugin {

// way: symbol or graph. "" if the registry is decorated; else what is missing, and nothing was changed.
std::string decorate(ggml_backend_reg_t registry, Way way);

// Way symbol: serves a node that the backend whose graph this thread computes has come to. False if the node is left to
// ggml's own function.
bool attend_in_graph(const ggml_tensor* tensor);
// Way symbol, on CPUs: whether attend_in_graph will serve the node. All threads of a graph ask.
bool is_taken_on_cpu(const ggml_tensor* tensor);

}  // namespace kvjit::plugin
