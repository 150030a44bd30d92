// Driver: the functions of libcuda that the runtime calls. libcuda is opened at run time. cuda.h is not needed, because
// this file declares the few types.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "generator/base/result.hpp"
#include "runtime/base/library.hpp"
#include "runtime/base/options.hpp"

namespace kvjit {

using CuResult = int;  // 0: success
using CuDevice = int;
using CuPointer = unsigned long long;
using CuContext = struct CuContextOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuGraph = struct CuGraphOpaque*;
using CuGraphExec = struct CuGraphExecOpaque*;

// Constants of cuda.h, the same since CUDA 11.
constexpr CuResult kCuErrorOutOfMemory = 2;
constexpr int kCuAttributeMultiprocessors = 16;
constexpr int kCuAttributeMemoryClockKhz = 36, kCuAttributeMemoryBusBits = 37;
constexpr int kCuAttributeL2Bytes = 38;
constexpr int kCuAttributeCapabilityMajor = 75, kCuAttributeCapabilityMinor = 76;
constexpr int kCuAttributeSharedOptIn = 97;  // bytes: largest shared memory of a block that opts in
constexpr int kCuFunctionMaxThreads = 0;     // threads of the largest block that the function's registers allow
constexpr int kCuFunctionStaticShared = 1;
constexpr int kCuFunctionRegisters = 4;  // of a thread
constexpr int kCuFunctionMaxDynamicShared = 8;
constexpr int kCuJitErrorLog = 5, kCuJitErrorLogBytes = 6;  // where the compiler of PTX writes what it refuses
constexpr unsigned kCuStreamNonBlocking = 1;
constexpr int kCuCaptureThreadLocal = 1;

// cuLaunchKernelEx (CUDA 11.8): a launch with attributes.
struct CuLaunchAttribute {
  int id = 0;
  int padding = 0;
  union {
    int flag;
    char bytes[64];
  } value{};
};
struct CuLaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CuStream stream;
  const CuLaunchAttribute* attributes;
  unsigned attribute_count;
};
// Programmatic dependent launch (PDL): the kernel may start before the previous kernel in the stream has ended. The
// kernel itself must wait for the previous one.
constexpr int kCuLaunchProgrammaticSerialization = 6;

// The functions by the names of the binary interface: cuda.h maps cuMemAlloc to cuMemAlloc_v2 and so on.
#define KVJIT_CUDA_API(X)                                                                                        \
  X(cuGetErrorName, (CuResult error, const char** text))                                                         \
  X(cuGetErrorString, (CuResult error, const char** text))                                                       \
  X(cuInit, (unsigned flags))                                                                                    \
  X(cuDriverGetVersion, (int* version))                                                                          \
  X(cuDeviceGetCount, (int* count))                                                                              \
  X(cuDeviceGet, (CuDevice * device, int ordinal))                                                               \
  X(cuDeviceGetName, (char* name, int bytes, CuDevice device))                                                   \
  X(cuDeviceGetAttribute, (int* value, int attribute, CuDevice device))                                          \
  X(cuDeviceTotalMem_v2, (std::size_t * bytes, CuDevice device))                                                 \
  X(cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))                                            \
  X(cuDevicePrimaryCtxRelease_v2, (CuDevice device))                                                             \
  X(cuCtxPushCurrent_v2, (CuContext context))                                                                    \
  X(cuCtxPopCurrent_v2, (CuContext * context))                                                                   \
  X(cuModuleLoadDataEx, (CuModule * module, const void* image, unsigned n_options, int* options, void** values)) \
  X(cuModuleGetFunction, (CuFunction * function, CuModule module, const char* name))                             \
  X(cuModuleUnload, (CuModule module))                                                                           \
  X(cuFuncGetAttribute, (int* value, int attribute, CuFunction function))                                        \
  X(cuFuncSetAttribute, (CuFunction function, int attribute, int value))                                         \
  X(cuLaunchKernel,                                                                                              \
    (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters, void** extra))                 \
  X(cuLaunchKernelEx, (const CuLaunchConfig* config, CuFunction function, void** parameters, void** extra))      \
  X(cuMemAlloc_v2, (CuPointer * pointer, std::size_t bytes))                                                     \
  X(cuMemFree_v2, (CuPointer pointer))                                                                           \
  X(cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))                                                  \
  X(cuMemcpyHtoD_v2, (CuPointer to, const void* from, std::size_t bytes))                                        \
  X(cuMemcpyDtoDAsync_v2, (CuPointer to, CuPointer from, std::size_t bytes, CuStream stream))                    \
  X(cuMemcpyDtoH_v2, (void* to, CuPointer from, std::size_t bytes))                                              \
  X(cuMemsetD8_v2, (CuPointer to, unsigned char value, std::size_t count))                                       \
  X(cuStreamCreate, (CuStream * stream, unsigned flags))                                                         \
  X(cuStreamDestroy_v2, (CuStream stream))                                                                       \
  X(cuStreamSynchronize, (CuStream stream))                                                                      \
  X(cuStreamBeginCapture_v2, (CuStream stream, int mode))                                                        \
  X(cuStreamEndCapture, (CuStream stream, CuGraph * graph))                                                      \
  X(cuGraphInstantiateWithFlags, (CuGraphExec * exec, CuGraph graph, unsigned long long flags))                  \
  X(cuGraphLaunch, (CuGraphExec exec, CuStream stream))                                                          \
  X(cuGraphDestroy, (CuGraph graph))                                                                             \
  X(cuGraphExecDestroy, (CuGraphExec exec))                                                                      \
  X(cuEventCreate, (CuEvent * event, unsigned flags))                                                            \
  X(cuEventDestroy_v2, (CuEvent event))                                                                          \
  X(cuEventRecord, (CuEvent event, CuStream stream))                                                             \
  X(cuEventSynchronize, (CuEvent event))                                                                         \
  X(cuEventElapsedTime, (float* ms, CuEvent start, CuEvent end))

struct Driver {
#define X(name, parameters) CuResult(*name) parameters = nullptr;
  KVJIT_CUDA_API(X)
#undef X
  Library library;

  // Opens libcuda and calls cuInit. Fails with environment: the places that were searched, or the error of cuInit.
  static Result<std::shared_ptr<const Driver>> open(const Options& options);

  // An error such as "launching decode...: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
  tl::unexpected<Error> error(CuResult status, const std::string& doing) const;
};

// The arch of a GPU, from its compute capability. From 9.0 on it has the suffix that unlocks the instructions of
// exactly that chip (wgmma, tcgen05 ...), because kernels are compiled on the machine that runs them.
std::string arch_of(int major, int minor);

}  // namespace kvjit
