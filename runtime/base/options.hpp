// Options: everything the runtime can be told. from_environment() is the only reader of the environment.
// SPDX-License-Identifier: MIT
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvjit {

enum class DeviceKind { automatic, gpu, cpu };

// A store that an engine keeps: whole entries by key (64 hex digits), as the cache writes them. Called from any thread.
struct EntryCallbacks {
  std::function<std::optional<std::vector<std::uint8_t>>(const std::string& key)> get;
  std::function<void(const std::string& key, std::span<const std::uint8_t> entry)> put;  // of what was compiled here
};

struct Options {
  DeviceKind device =
      DeviceKind::automatic;  // automatic: the GPU if there is a driver and a device, else the CPU back-end
  int device_ordinal = 0;
  std::string cache_dir;  // empty: XDG cache home, else the home cache folder; "off": memory only
  std::uint64_t cache_max_bytes = 2ull << 30;
  std::string nvrtc_library;   // path or soname, the only one tried; empty: the usual names and folders
  std::string cuda_library;    // the same for libcuda
  std::string cuda_home;       // a toolkit whose lib64 is searched for NVRTC; from_environment: $CUDA_HOME, $CUDA_PATH
  std::string user_cache_dir;  // where an empty cache_dir leads; from_environment: $XDG_CACHE_HOME/kvjit or
                               // $HOME/.cache/kvjit. Both empty: memory only
  std::string host_compiler;   // for the CPU back-end; empty: $CXX, c++, g++
  unsigned fiber_seed = 0;     // CPU back-end: 0 = in order, else a seeded random order of lanes and warps
  std::vector<std::string>
      bundles;  // files of prebuilt kernels (runtime/store/bundle.hpp), searched first, in this order
  std::vector<std::span<const std::uint8_t>> bundle_bytes;  // the same in memory that outlives the context
  std::vector<std::string>
      trusted_keys;            // Ed25519, 64 hex digits each: bundles must be signed by one; empty: any will do
  std::string remote;          // http(s)://...: a server of compiled kernels (runtime/store/remote.hpp); empty: none
  bool remote_writes = false;  // kernels compiled here are stored there
  std::chrono::milliseconds remote_patience{500};  // with the server, for each request
  EntryCallbacks callbacks;
  std::function<void(const std::string&)> log;  // warnings and "compiling ..." lines; empty: silent

  std::vector<std::string> refused;  // environment values that make no sense; Context::open fails with them

  // KVJIT_CACHE_DIR, KVJIT_CACHE_MAX_BYTES, KVJIT_NVRTC, KVJIT_CUDA, KVJIT_CXX (then CXX), KVJIT_DEVICE (auto, gpu,
  // cpu), KVJIT_DEVICE_ORDINAL, KVJIT_BUNDLES, KVJIT_TRUSTED_KEYS (lists with ':'), KVJIT_REMOTE, KVJIT_REMOTE_WRITES
  // (0, 1); CUDA_HOME, CUDA_PATH, XDG_CACHE_HOME, HOME.
  static Options from_environment();
};

}  // namespace kvjit
