// The plugin: a library that ggml loads as a backend, and that serves the attention of another backend with kvjit. It
// has no devices of its own (but for tests), and changes no file of ggml.
//
//   libggml-cuda-kvjit.so   Beside libggml-cuda.so. ggml loads it in that one's place, because its score is higher. It
//                           loads the real library and returns its registry.
//   libggml-kvjit.so        Named by GGML_BACKEND_PATH. The registry of KVJIT_GGML_REGISTRY (CUDA) is loaded by then.
//
// The plugin takes the first way in (settings.hpp) that works, and says on stderr which. If no way works, the backend
// stays as it is, and a line says why.
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "own_file.hpp"
#include "settings.hpp"
#include "ways/decorate.hpp"
#include "ways/hook.hpp"
#include "ways/own_device.hpp"
#include "ways/symbol.hpp"

namespace kvjit::plugin {
namespace {

// Marks this process as served, so that a second copy of the plugin leaves the same devices alone. False if it was.
bool mark_process() {
  constexpr const char* kMark = "KVJIT_GGML_PROCESS";  // children inherit it, but have another number
  const std::string own = fmt::format("{}", getpid());
  const char* const mark = std::getenv(kMark);
  if (mark && own == mark) return false;
  setenv(kMark, own.c_str(), 1);
  return true;
}

// Takes the first way into a registry that works. handle: the library of the registry, if this plugin has loaded it
// by load_behind_symbols(); else null.
void take_way(ggml_backend_reg_t registry, void* handle) {
  if (!mark_process()) return say("another copy of the plugin serves this process; this one serves nothing");
  const auto is_asked_for = [](Way way) { return !settings().way || settings().way == way; };
  const auto say_way = [&](Way way) {
    say(fmt::format("serves attention of {}, way {}{}", ggml_backend_reg_name(registry), to_string(way),
                    settings().takes_all ? ", every node that it can" : ""));
  };
  std::string tried;
  const auto missed = [&](Way way, const std::string& why) {
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", to_string(way), why);
  };
  if (is_asked_for(Way::hook)) {
    if (set_hook(registry)) return say_way(Way::hook);
    missed(Way::hook, "this build offers none");
  }
  if (is_asked_for(Way::symbol)) {
    if (!handle || !are_symbols_taken(handle))
      missed(Way::symbol, handle ? "its calls do not go through the loader" : "it was loaded before the plugin");
    else if (const std::string missing = decorate(registry, Way::symbol); !missing.empty())
      missed(Way::symbol, "this ggml has no " + missing);
    else
      return say_way(Way::symbol);
  }
  if (is_asked_for(Way::graph)) {
    if (const std::string missing = decorate(registry, Way::graph); !missing.empty())
      missed(Way::graph, "this ggml has no " + missing);
    else
      return say_way(Way::graph);
  }
  say(fmt::format("found no way into {} ({}); it stays as it is", ggml_backend_reg_name(registry), tried));
}

ggml_backend_reg_t load_in_place_of(const std::string& file) {
  const bool may_take_symbols = !settings().is_off && (!settings().way || settings().way == Way::symbol);
  void* const handle =
      may_take_symbols ? load_behind_symbols(file.c_str()) : dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto init = handle ? reinterpret_cast<ggml_backend_reg_t (*)()>(dlsym(handle, "ggml_backend_init")) : nullptr;
  if (!init) {
    say(fmt::format("{}: {}", file, handle ? "it has no ggml_backend_init" : dlerror()));
    return nullptr;
  }
  ggml_backend_reg_t const registry = init();
  if (registry && !settings().is_off) take_way(registry, may_take_symbols ? handle : nullptr);
  return registry;
}

ggml_backend_reg_t init() {
  // ggml may close the library again, but its devices and graphs keep functions of it.
  dlopen(own_file().c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  if (!settings().unknown_word.empty())
    say(fmt::format("KVJIT_GGML: '{}' is no word of it (off, hook, symbol, graph, device, all)",
                    settings().unknown_word));
  if (const std::string file = replaced_file(); !file.empty()) return load_in_place_of(file);
  if (settings().is_off) return own_registry(false);
  if (settings().way == Way::device) {
    say("serves attention, way device");
    return own_registry(true);
  }
  if (settings().registry != "CUDA" && settings().registry != "CPU") {
    say(fmt::format("KVJIT_GGML_REGISTRY: '{}' is neither CUDA nor CPU; nothing is served", settings().registry));
    return own_registry(false);
  }
  if (ggml_backend_reg_t const registry = ggml_backend_reg_by_name(settings().registry.c_str()))
    take_way(registry, nullptr);
  else
    say(fmt::format("ggml has no registry {}; nothing is served", settings().registry));
  return own_registry(false);
}

}  // namespace
}  // namespace kvjit::plugin

extern "C" {
// Above the scores that ggml's own libraries give themselves; 0, if there is nothing to load in their place.
__attribute__((visibility("default"))) int ggml_backend_score() {
  const std::string file = kvjit::plugin::replaced_file();
  return file.empty() || access(file.c_str(), R_OK) == 0 ? 1000000 : 0;
}
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() { return kvjit::plugin::init(); }
}
