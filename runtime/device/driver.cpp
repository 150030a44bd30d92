// Opens libcuda and describes its errors: see driver.hpp.
// SPDX-License-Identifier: MIT
#include "runtime/device/driver.hpp"

#include <fmt/format.h>

namespace kvjit {

Result<std::shared_ptr<const Driver>> Driver::open(const Options& options) {
  LibrarySearch search;
  search.names = {options.cuda_library};
  if (options.cuda_library.empty()) {
    search.names = {"libcuda.so.1"};
    // Folders in which containers and WSL put the driver, for systems whose loader cache does not list it.
    search.folders = {"/usr/local/nvidia/lib64", kMachineLibraries, "/usr/lib/wsl/lib"};
    search.files = library_files(search.folders, "libcuda.so.1");
  }
  KV_TRY(library, Library::open("the CUDA driver (libcuda)", search,
                                "install the NVIDIA driver, or give the library's path in KVJIT_CUDA, or run on the "
                                "CPU back-end"));
  auto driver = std::make_shared<Driver>();
  driver->library = library;
#define X(name, parameters)                                                       \
  driver->name = reinterpret_cast<CuResult(*) parameters>(library.symbol(#name)); \
  if (!driver->name)                                                              \
    return fail(Code::environment, library.path() + " has no " #name ": a driver of CUDA 12 or later is needed");
  KVJIT_CUDA_API(X)
#undef X
  if (const CuResult status = driver->cuInit(0))
    return driver->error(status, fmt::format("starting the CUDA driver (cuInit of {})", library.path()));
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
