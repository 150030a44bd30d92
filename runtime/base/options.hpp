// Options: everything that a caller or the environment can tell the runtime. from_environment() is the only reader of
// the environment.
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

// The engine's own store of kernels: whole cache entries by key (64 hex digits). Any thread may call both functions.
struct EntryCallbacks {
  std::function<std::optional<std::vector<std::uint8_t>>(const std::string& key)> get;
  // put receives each kernel that this process compiles.
  std::function<void(const std::string& key, std::span<const std::uint8_t> entry)> put;
};

struct Options {
  // automatic: the GPU if there is a driver and a device, else the CPU back-end
  DeviceKind device = DeviceKind::automatic;
  int device_ordinal = 0;  // number of the GPU
  // The arch that kernels are for, instead of the spec's and the device's; empty: those. A GPU takes its own, with and
  // without suffix, and with as_ptx any older one without suffix. The CPU back-end takes every arch.
  std::string arch;
  bool as_ptx = false;    // GPU: kernels for `arch` are compiled to PTX, which the driver compiles for the device
  std::string cache_dir;  // absolute; empty: user_cache_dir; "off": memory only
  std::uint64_t cache_max_bytes = 2ull << 30;  // the cache folder is swept down to this
  std::string nvrtc_library;  // path, folder or soname, the only one that is tried; empty: the usual names and folders
  std::string cuda_library;   // path or soname of libcuda, likewise
  // Where NVRTC is searched, besides the usual folders (runtime/compile/nvrtc_places.hpp).
  std::vector<std::string> cuda_homes;     // toolkits; from_environment: $CUDA_HOME, $CUDA_PATH
  std::vector<std::string> python_homes;   // Python environments; from_environment: $VIRTUAL_ENV, $CONDA_PREFIX
  std::vector<std::string> program_paths;  // folders of Python interpreters; from_environment: $PATH
  // Cache folder if cache_dir is empty; from_environment: $XDG_CACHE_HOME/kvjit or $HOME/.cache/kvjit. Both empty:
  // memory only.
  std::string user_cache_dir;
  std::string host_compiler;         // for the CPU back-end; empty: c++, g++, clang++ in this order
  unsigned fiber_seed = 0;           // CPU back-end: 0: lanes in order, else a seeded random order of lanes and warps
  std::vector<std::string> bundles;  // paths of prebuilt kernels (runtime/store/bundle.hpp), searched first, in order
  bool must_open_bundles = false;    // whether a bundle that cannot be used is an error; else it is logged and left out
  std::vector<std::span<const std::uint8_t>> bundle_bytes;  // bundles in memory that outlives the context
  // Ed25519 keys, 64 hex digits each: one of them must have signed a bundle; empty: every bundle is accepted
  std::vector<std::string> trusted_keys;
  std::string remote;          // http(s)://...: a server of compiled kernels (runtime/store/remote.hpp); empty: none
  bool remote_writes = false;  // whether kernels that this process compiles are stored at `remote`
  std::chrono::milliseconds remote_patience{500};  // timeout of each request to the server
  EntryCallbacks callbacks;
  std::function<void(const std::string&)> log;  // warnings and "compiling ..." lines; empty: silent

  std::vector<std::string> refused;  // errors in environment variables; Context::open fails with them

  // Reads KVJIT_CACHE_DIR, KVJIT_CACHE_MAX_BYTES, KVJIT_NVRTC, KVJIT_CUDA, KVJIT_CXX (then CXX), KVJIT_DEVICE (auto,
  // gpu, cpu), KVJIT_DEVICE_ORDINAL, KVJIT_ARCH, KVJIT_AS_PTX (0, 1), KVJIT_BUNDLES, KVJIT_TRUSTED_KEYS (lists with
  // ':'), KVJIT_REMOTE, KVJIT_REMOTE_WRITES (0, 1); CUDA_HOME, CUDA_PATH, VIRTUAL_ENV, CONDA_PREFIX, PATH,
  // XDG_CACHE_HOME, HOME.
  static Options from_environment();
};

}  // namespace kvjit
