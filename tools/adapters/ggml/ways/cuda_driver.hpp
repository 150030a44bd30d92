// The few functions of libcuda that the plugin needs: to find a device by its PCI id, and to order a stream of its own
// behind ggml's and before it.
// SPDX-License-Identifier: MIT
#pragma once

namespace kvjit::plugin {

struct CudaDriver {
  int (*cuDeviceGetByPCIBusId)(int* device, const char* id) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void** context, int device) = nullptr;
  int (*cuCtxPushCurrent)(void* context) = nullptr;
  int (*cuCtxPopCurrent)(void** context) = nullptr;
  int (*cuStreamCreate)(void** stream, unsigned flags) = nullptr;
  int (*cuEventCreate)(void** event, unsigned flags) = nullptr;
  int (*cuStreamWaitEvent)(void* stream, void* event, unsigned flags) = nullptr;
  int (*cuEventRecord)(void* event, void* stream) = nullptr;
  int (*cuLaunchHostFunc)(void* stream, void (*function)(void*), void* data) = nullptr;  // for tests (join.hpp)

  static const CudaDriver* open();  // null if there is none
};

}  // namespace kvjit::plugin
