// Reads options from the environment: see options.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/base/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

namespace kvjit {
namespace {

// The first variable that is set and not empty, or "".
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value && *value) return value;
  return {};
}

// The values of all variables that are set and not empty.
std::vector<std::string> values_of(std::initializer_list<const char*> names) {
  std::vector<std::string> values;
  for (const char* name : names)
    if (std::string value = variable({name}); !value.empty()) values.push_back(std::move(value));
  return values;
}

// Sets `number` if the variable is set. A value that is no whole number within 0..largest is added to `refused`.
template <class Number>
void read_number(const char* name, Number& number, Number largest, std::vector<std::string>& refused) {
  const std::string text = variable({name});
  if (text.empty()) return;
  Number read{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  if (error == std::errc{} && end == text.data() + text.size() && read >= 0 && read <= largest)
    number = read;
  else
    refused.push_back(std::string(name) + "='" + text + "' is not a whole number from 0 to " + std::to_string(largest));
}

// Splits "a:b" at colons and drops empty entries. Such a list cannot hold URLs.
std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> entries;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(':', at), text.size());
    if (end > at) entries.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return entries;
}

// The user's cache folder. A relative XDG_CACHE_HOME is ignored, as the XDG Base Directory Specification 0.8 asks.
std::string user_cache_dir() {
  if (const auto xdg = variable({"XDG_CACHE_HOME"}); !xdg.empty() && xdg[0] == '/') return xdg + "/kvjit";
  if (const auto home = variable({"HOME"}); !home.empty() && home[0] == '/') return home + "/.cache/kvjit";
  return {};
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.cache_dir = variable({"KVJIT_CACHE_DIR"});
  options.user_cache_dir = kvjit::user_cache_dir();
  options.nvrtc_library = variable({"KVJIT_NVRTC"});
  options.cuda_library = variable({"KVJIT_CUDA"});
  options.host_compiler = variable({"KVJIT_CXX", "CXX"});
  options.cuda_homes = values_of({"CUDA_HOME", "CUDA_PATH"});
  options.python_homes = values_of({"VIRTUAL_ENV", "CONDA_PREFIX"});
  options.program_paths = list_of(variable({"PATH"}));
  options.bundles = list_of(variable({"KVJIT_BUNDLES"}));
  options.trusted_keys = list_of(variable({"KVJIT_TRUSTED_KEYS"}));
  options.remote = variable({"KVJIT_REMOTE"});
  options.arch = variable({"KVJIT_ARCH"});
  int writes = 0, as_ptx = 0;
  read_number("KVJIT_REMOTE_WRITES", writes, 1, options.refused);
  read_number("KVJIT_AS_PTX", as_ptx, 1, options.refused);
  options.remote_writes = writes == 1;
  options.as_ptx = as_ptx == 1;
  read_number("KVJIT_CACHE_MAX_BYTES", options.cache_max_bytes, std::numeric_limits<std::uint64_t>::max(),
              options.refused);
  read_number("KVJIT_DEVICE_ORDINAL", options.device_ordinal, std::numeric_limits<int>::max(), options.refused);

  constexpr struct {
    std::string_view name;
    DeviceKind kind;
  } kDevices[] = {
      {"", DeviceKind::automatic}, {"auto", DeviceKind::automatic}, {"gpu", DeviceKind::gpu}, {"cpu", DeviceKind::cpu}};
  const std::string device = variable({"KVJIT_DEVICE"});
  bool is_known = false;
  for (const auto& [name, kind] : kDevices)
    if (name == device) options.device = kind, is_known = true;
  if (!is_known) options.refused.push_back("KVJIT_DEVICE='" + device + "' is not one of auto, gpu, cpu");
  return options;
}

}  // namespace kvjit
