// A libcuda without a GPU, for tests of what happens before and behind the driver: which device there is, what is
// loaded on it, what is said. Its memory is host memory, and launches do nothing. Variables choose the device:
//   FAKE_CUDA_CAPABILITY  90 (if it is not set) is compute capability 9.0
//   FAKE_CUDA_LOG         a file to which each loaded module adds a line: "cubin", or "ptx sm_80"
// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using Result = int;
using Handle = void*;
using Pointer = unsigned long long;

constexpr Result kInvalidPtx = 218, kInvalidValue = 1;
constexpr int kSharedOptIn = 232448;

int capability() {
  const char* const set = std::getenv("FAKE_CUDA_CAPABILITY");
  return set ? std::atoi(set) : 90;
}

void log(const std::string& line) {
  const char* const name = std::getenv("FAKE_CUDA_LOG");
  if (!name) return;
  if (std::FILE* const file = std::fopen(name, "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

// The word behind `before` in PTX; empty: there is none.
std::string word_behind(const char* ptx, const char* before) {
  const char* const found = std::strstr(ptx, before);
  if (!found) return {};
  const char* const begin = found + std::strlen(before);
  return {begin, std::strcspn(begin, ", \n")};
}

Handle some_handle() {
  static int thing = 0;
  return &thing;
}

}  // namespace

#pragma GCC visibility push(default)  // the project hides symbols
extern "C" {

Result cuGetErrorName(Result status, const char** text) {
  *text = status == kInvalidPtx ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
Result cuGetErrorString(Result, const char** text) {
  *text = "the fake driver refuses it";
  return 0;
}
Result cuInit(unsigned) { return 0; }
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
Result cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
Result cuDeviceGet(int* device, int) {
  *device = 0;
  return 0;
}
Result cuDeviceGetName(char* name, int bytes, int) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "Fake GPU");
  return 0;
}
Result cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kMultiprocessors = 16, kL2Bytes = 38, kMajor = 75, kMinor = 76, kOptIn = 97;
  switch (attribute) {
    case kMultiprocessors:
      *value = 4;
      break;
    case kL2Bytes:
      *value = 1 << 20;
      break;
    case kMajor:
      *value = capability() / 10;
      break;
    case kMinor:
      *value = capability() % 10;
      break;
    case kOptIn:
      *value = kSharedOptIn;
      break;
    default:
      *value = 0;
  }
  return 0;
}
Result cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{1} << 32;
  return 0;
}
Result cuDevicePrimaryCtxRetain(Handle* context, int) {
  *context = some_handle();
  return 0;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return 0; }
Result cuCtxPushCurrent_v2(Handle) { return 0; }
Result cuCtxPopCurrent_v2(Handle* context) {
  *context = some_handle();
  return 0;
}

// Like a driver it compiles PTX of its own and of older archs, up to the terminating zero.
Result cuModuleLoadDataEx(Handle* module, const void* image, unsigned n_options, int* options, void** values) {
  constexpr int kErrorLog = 5;
  *module = some_handle();
  const auto* const text = static_cast<const char*>(image);
  if (std::memcmp(text, "\177ELF", 4) == 0) return log("cubin"), 0;
  const std::string target = word_behind(text, ".target ");
  log("ptx " + target);
  if (target.starts_with("sm_") && std::atoi(target.c_str() + 3) <= capability()) return 0;
  for (unsigned i = 0; i < n_options; ++i)
    if (options[i] == kErrorLog) std::strcpy(static_cast<char*>(values[i]), "the PTX is for a later GPU");
  return kInvalidPtx;
}
Result cuModuleGetFunction(Handle* function, Handle, const char*) {
  *function = some_handle();
  return 0;
}
Result cuModuleUnload(Handle) { return 0; }
Result cuFuncGetAttribute(int* value, int attribute, Handle) {
  constexpr int kMaxThreads = 0, kRegisters = 4;
  *value = attribute == kMaxThreads ? 1024 : attribute == kRegisters ? 40 : 0;
  return 0;
}
Result cuFuncSetAttribute(Handle, int, int value) { return value <= kSharedOptIn ? 0 : kInvalidValue; }
Result cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                      void**) {
  return 0;
}
Result cuLaunchKernelEx(const void*, Handle, void**, void**) { return 0; }

Result cuMemAlloc_v2(Pointer* pointer, std::size_t bytes) {
  *pointer = reinterpret_cast<Pointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return 0;
}
Result cuMemFree_v2(Pointer pointer) {
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 32;
  return 0;
}
Result cuMemcpyHtoD_v2(Pointer to, const void* from, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, std::size_t bytes, Handle) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}
Result cuMemcpyDtoH_v2(void* to, Pointer from, std::size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
// Zeros, whatever the value: what no kernel wrote is then a number, and reports can be made of it.
Result cuMemsetD8_v2(Pointer to, unsigned char, std::size_t count) {
  std::memset(reinterpret_cast<void*>(to), 0, count);
  return 0;
}

Result cuStreamCreate(Handle* stream, unsigned) {
  *stream = some_handle();
  return 0;
}
Result cuStreamDestroy_v2(Handle) { return 0; }
Result cuStreamSynchronize(Handle) { return 0; }
Result cuStreamBeginCapture_v2(Handle, int) { return 0; }
Result cuStreamEndCapture(Handle, Handle* graph) {
  *graph = some_handle();
  return 0;
}
Result cuGraphInstantiateWithFlags(Handle* exec, Handle, unsigned long long) {
  *exec = some_handle();
  return 0;
}
Result cuGraphLaunch(Handle, Handle) { return 0; }
Result cuGraphDestroy(Handle) { return 0; }
Result cuGraphExecDestroy(Handle) { return 0; }
Result cuEventCreate(Handle* event, unsigned) {
  *event = some_handle();
  return 0;
}
Result cuEventDestroy_v2(Handle) { return 0; }
Result cuEventRecord(Handle, Handle) { return 0; }
Result cuEventSynchronize(Handle) { return 0; }
Result cuEventElapsedTime(float* ms, Handle, Handle) {
  *ms = 1;
  return 0;
}

}  // extern "C"
