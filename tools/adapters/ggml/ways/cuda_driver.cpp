// Opens libcuda: see cuda_driver.hpp.
// SPDX-License-Identifier: MIT
#include "ways/cuda_driver.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace kvjit::plugin {

const CudaDriver* CudaDriver::open() {
  static const CudaDriver* const driver = []() -> const CudaDriver* {
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return nullptr;
    static CudaDriver functions;
    bool has_all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      has_all &= function != nullptr;
    };
    find(functions.cuDeviceGetByPCIBusId, "cuDeviceGetByPCIBusId");
    find(functions.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(functions.cuCtxPushCurrent, "cuCtxPushCurrent_v2");
    find(functions.cuCtxPopCurrent, "cuCtxPopCurrent_v2");
    find(functions.cuStreamCreate, "cuStreamCreate");
    find(functions.cuEventCreate, "cuEventCreate");
    find(functions.cuStreamWaitEvent, "cuStreamWaitEvent");
    find(functions.cuEventRecord, "cuEventRecord");
    find(functions.cuLaunchHostFunc, "cuLaunchHostFunc");
    return has_all ? &functions : nullptr;
  }();
  return driver;
}

}  // namespace kvjit::plugin
