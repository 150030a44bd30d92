// Opens libcuda and describes its errors: see driver.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/device/driver.hpp"

#include <fmt/format.h>

namespace kvjit {

Result<std::shared_ptr<const Driver>> Driver::open(const Options& options) {
  std::vector<std::string> candidates = {options.cuda_library};
  if (options.cuda_library.empty()) {
    candidates = {"libcuda.so.1"};
    // Folders in which containers and WSL put the driver, for systems whose loader cache does not list it.
    const auto in_folders = library_paths(
        {"/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/wsl/lib"},
        {"libcuda.so.1"});
    candidates.insert(candidates.end(), in_folders.begin(), in_folders.end());
  }
  KV_TRY(library,
         Library::open("the CUDA driver (libcuda)", candidates,
                       "install the NVIDIA driver, or give the library's path in KVJIT_CUDA, or run on the CPU "
                       "back-end"));
  auto driver = std::make_shared<Driver>();
  driver->library = library;
#define X(name, parameters)                                                       \
  driver->name = reinterpret_cast<CuResult(*) parameters>(library.symbol(#name)); \
  if (!driver->name)                                                              \
    return fail(Code::environment, library.path() + " has no " #name ": a driver of CUDA 12 or later is needed");
  KVJIT_CUDA_API(X)
#undef X
  if (const CuResult status = driver->cuInit(0)) return driver->error(status, "starting the CUDA driver (cuInit)");
  return driver;
}

tl::unexpected<Error> Driver::error(CuResult status, const std::string& doing) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(status, &name) != 0 || !name) name = "unknown error";
  if (cuGetErrorString(status, &text) != 0 || !text) text = "no description";
  return fail(Code::environment, fmt::format("{}: {} (error {}: {})", doing, name, status, text));
}

std::string arch_of(int major, int minor) { return fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : ""); }

}  // namespace kvjit
