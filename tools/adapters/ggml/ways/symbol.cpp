// Functions that ggml's backends call, under ggml's names: see symbol.hpp.
// SPDX-License-Identifier: MIT
#include "ways/symbol.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstring>

#include "own_file.hpp"
#include "ways/decorate.hpp"

// ggml-cpu's ggml_compute_params, as far as it is read.
struct ComputeParams {
  int thread, threads;  // of the graph; more members follow
};

// ggml-cuda: void ggml_cuda_flash_attn_ext(ggml_backend_cuda_context&, ggml_tensor*). The plugin for ggml-cpu, which is
// for tests, has the function of the op there, which every thread of a graph calls.
#if KVJIT_PLUGIN_FOR_CPU
#define KVJIT_SYMBOL "ggml_compute_forward_flash_attn_ext"
#else
#define KVJIT_SYMBOL "_Z24ggml_cuda_flash_attn_extR25ggml_backend_cuda_contextP11ggml_tensor"
#endif

namespace {

std::atomic<void*> ggml_handle{nullptr};
std::atomic<const void*> ggml_base{nullptr};  // where that library is in memory

// Whether a return address is in the library whose attention is served. The plugin's name is global, so other libraries
// that are loaded later and call a function of this name come here, too: ggml's HIP backend, or a second ggml-cuda.
bool is_call_of_ggml(void* return_address) {
  Dl_info info{};
  return dladdr(return_address, &info) != 0 && info.dli_fbase == ggml_base.load();
}

// Calls the library's own function of this name: that of the library which the return address is in.
template <class First>
void call_own(void* return_address, First first, ggml_tensor* tensor) {
  void* handle = ggml_handle.load();
  Dl_info info{};
  if (dladdr(return_address, &info) != 0 && info.dli_fbase != ggml_base.load())
    handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  const auto own = handle ? reinterpret_cast<void (*)(First, ggml_tensor*)>(dlsym(handle, KVJIT_SYMBOL)) : nullptr;
  if (!own) GGML_ABORT("kvjit finds no attention of %s", info.dli_fname ? info.dli_fname : "an unknown caller");
  own(first, tensor);
}

}  // namespace

extern "C" {
#if KVJIT_PLUGIN_FOR_CPU
__attribute__((visibility("default"))) void kvjit_attention_of_ggml(const ComputeParams* params,
                                                                    ggml_tensor* tensor) __asm__(KVJIT_SYMBOL);
void kvjit_attention_of_ggml(const ComputeParams* params, ggml_tensor* tensor) {
  void* const caller = __builtin_return_address(0);
  if (!is_call_of_ggml(caller) || !kvjit::plugin::is_taken_on_cpu(tensor)) return call_own(caller, params, tensor);
  // The other threads of the graph pass the node over, so nobody can serve it if the first one fails.
  if (params->thread == 0 && !kvjit::plugin::attend_in_graph(tensor)) GGML_ABORT("kvjit could not serve attention");
}
#else
__attribute__((visibility("default"))) void kvjit_attention_of_ggml(void* context,
                                                                    ggml_tensor* tensor) __asm__(KVJIT_SYMBOL);
void kvjit_attention_of_ggml(void* context, ggml_tensor* tensor) {
  void* const caller = __builtin_return_address(0);
  if (!is_call_of_ggml(caller) || !kvjit::plugin::attend_in_graph(tensor)) call_own(caller, context, tensor);
}
#endif
}

namespace kvjit::plugin {

void* load_behind_symbols(const char* file) {
  dlopen(own_file().c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  Dl_info info{};
  void* const own = handle ? dlsym(handle, KVJIT_SYMBOL) : nullptr;
  if (own && dladdr(own, &info) != 0) ggml_base = info.dli_fbase;
  return ggml_handle = handle;
}

bool are_symbols_taken(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) return false;
  const char* strings = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const ElfW(Rela)* slots = nullptr;
  std::size_t slot_bytes = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_JMPREL) slots = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_PLTRELSZ) slot_bytes = entry->d_un.d_val;
  }
  if (!strings || !symbols || !slots) return false;
  for (std::size_t i = 0; i < slot_bytes / sizeof *slots; ++i) {
    const char* const name = strings + symbols[ELF64_R_SYM(slots[i].r_info)].st_name;
    if (std::strcmp(name, KVJIT_SYMBOL) != 0) continue;
    if (*reinterpret_cast<void**>(map->l_addr + slots[i].r_offset) == reinterpret_cast<void*>(&kvjit_attention_of_ggml))
      return true;
  }
  return false;
}

}  // namespace kvjit::plugin
