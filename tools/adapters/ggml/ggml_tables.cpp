// Finds the slots of ggml's tables: see ggml_tables.hpp.
// SPDX-License-Identifier: MIT
#include "ggml_tables.hpp"

#include <dlfcn.h>

#include <cstring>
#include <utility>

namespace kvjit::plugin {
namespace {

constexpr int kMostSlots = 40;  // a table has 15 today

int called_slot = -1;
template <int kSlot>
long sentinel() {
  called_slot = kSlot;
  return 0;
}
template <int... kSlots>
void fill(void** table, std::integer_sequence<int, kSlots...>) {
  ((table[kSlots] = reinterpret_cast<void*>(&sentinel<kSlots>)), ...);
}

template <class Call>
int slot_called_by(const Call& call) {
  called_slot = -1;
  call();
  return called_slot;
}

GgmlTables find_tables() {
  GgmlTables tables;
  const auto sentinels = std::make_integer_sequence<int, kMostSlots>();
  void* device_memory[kMostSlots + 16] = {};  // a device begins with its table
  fill(device_memory, sentinels);
  auto* const device = reinterpret_cast<ggml_backend_dev_t>(device_memory);
  tables.init_backend = slot_called_by([&] { ggml_backend_dev_init(device, nullptr); });
  tables.supports_op = slot_called_by([&] { ggml_backend_dev_supports_op(device, nullptr); });
  void* backend_memory[kMostSlots + 16] = {};  // a backend has a pointer before its table
  fill(backend_memory + 1, sentinels);
  auto* const backend = reinterpret_cast<ggml_backend_t>(backend_memory);
  tables.graph_compute = slot_called_by([&] { ggml_backend_graph_compute_async(backend, nullptr); });
  tables.free = slot_called_by([&] { ggml_backend_free(backend); });
  for (int op = 0; op < GGML_OP_COUNT && tables.flash_attn_ext < 0; ++op)
    if (std::strcmp(ggml_op_name(static_cast<ggml_op>(op)), "FLASH_ATTN_EXT") == 0) tables.flash_attn_ext = op;
  tables.graph_view = dlsym(RTLD_DEFAULT, "ggml_graph_view");
  for (const char* base : {"libggml-base.so.0", "libggml-base.so"})
    if (!tables.graph_view)
      if (void* const handle = dlopen(base, RTLD_NOW | RTLD_NOLOAD))
        tables.graph_view = dlsym(handle, "ggml_graph_view");
  return tables;
}

}  // namespace

std::string GgmlTables::missing() const {
  if (init_backend < 0 || supports_op < 0) return "the functions of a device";
  if (graph_compute < 0 || free < 0) return "the functions of a backend";
  if (flash_attn_ext < 0) return "the op FLASH_ATTN_EXT";
  return "";
}

const GgmlTables& ggml_tables() {
  static const GgmlTables tables = find_tables();
  return tables;
}

void** slot_of(ggml_backend_dev_t device, int slot) { return reinterpret_cast<void**>(device) + slot; }
void** slot_of(ggml_backend_t backend, int slot) { return reinterpret_cast<void**>(backend) + 1 + slot; }

GraphView::GraphView(ggml_cgraph* graph, int first, int end)
    : space_(reinterpret_cast<Space (*)(ggml_cgraph*, int, int)>(ggml_tables().graph_view)(graph, first, end)) {}

}  // namespace kvjit::plugin
