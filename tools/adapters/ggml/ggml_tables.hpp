// GgmlTables says where the loaded ggml keeps the functions that the plugin replaces. ggml's function tables have grown
// twice while GGML_BACKEND_API_VERSION stayed 2, and the numbers of ops move with each new op. So the plugin does not
// rely on the header's layout: it finds a slot by calling ggml's public dispatcher on a table of sentinels, and an op
// by its name.
// SPDX-License-Identifier: MIT
#pragma once
#include <string>

#include "ggml-backend-impl.h"

namespace kvjit::plugin {

// Slots are numbers of function pointers from the start of a table; -1: not found.
struct GgmlTables {
  int init_backend = -1, supports_op = -1;  // of a device
  int graph_compute = -1, free = -1;        // of a backend
  int flash_attn_ext = -1;                  // the number of the op
  // ggml_graph_view, which no public header declares; null: this ggml does not export it.
  void* graph_view = nullptr;

  // "" if the plugin knows its way; else what is missing.
  std::string missing() const;
};
const GgmlTables& ggml_tables();

// The place of a slot in a device's or a backend's own table.
void** slot_of(ggml_backend_dev_t device, int slot);
void** slot_of(ggml_backend_t backend, int slot);

// The nodes [first, end) of a graph as a graph of their own, which the caller's object holds.
class GraphView {
 public:
  GraphView(ggml_cgraph* graph, int first, int end);
  ggml_cgraph* graph() { return reinterpret_cast<ggml_cgraph*>(&space_); }
  // ggml_cgraph grows; the function returns it by value, in memory of the caller.
  struct Space {
    alignas(16) char bytes[1024];
  };

 private:
  Space space_;
};

}  // namespace kvjit::plugin
