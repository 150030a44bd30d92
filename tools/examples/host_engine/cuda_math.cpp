// Math on a GPU: cuBLAS computes products, and NVRTC compiles ops.cuh when the engine starts. Both are opened at run
// time, so that the engine can be built and run on machines without them. This file declares the few functions of their
// C interfaces that it calls.
// SPDX-License-Identifier: MIT
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "math.hpp"

namespace engine {

extern const char* const kOpsText;  // the text of ops.cuh, which the build embeds (ops_text.cpp.in)

namespace {

// Opens the library that the environment variable names, or the first of `names` that is found.
void* open_library(const char* variable, const std::vector<const char*>& names) {
  if (const char* path = std::getenv(variable)) {
    if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
    throw std::runtime_error(std::string(variable) + ": " + dlerror());
  }
  for (const char* name : names)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  throw std::runtime_error(std::string("no ") + names.front() + " (set " + variable + ")");
}

template <class Function>
Function* find(void* library, const char* name) {
  if (void* symbol = dlsym(library, name)) return reinterpret_cast<Function*>(symbol);
  throw std::runtime_error(std::string(name) + " is missing");
}

void check(int status, const char* what) {
  if (status != 0) throw std::runtime_error(std::string(what) + " failed with status " + std::to_string(status));
}

// Compiles ops.cuh for the GPU's architecture.
std::vector<char> compile_ops(const char* arch) {
  void* nvrtc = open_library("KVJIT_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  void* program = nullptr;
  check(find<int(void**, const char*, const char*, int, const char* const*, const char* const*)>(
            nvrtc, "nvrtcCreateProgram")(&program, kOpsText, "ops.cuh", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  const std::string option = std::string("--gpu-architecture=") + arch;
  const char* options[] = {option.c_str(), "--std=c++17"};
  if (find<int(void*, int, const char* const*)>(nvrtc, "nvrtcCompileProgram")(program, 2, options) != 0) {
    std::size_t length = 0;
    check(find<int(void*, std::size_t*)>(nvrtc, "nvrtcGetProgramLogSize")(program, &length), "nvrtcGetProgramLogSize");
    std::string log(length, '\0');
    check(find<int(void*, char*)>(nvrtc, "nvrtcGetProgramLog")(program, log.data()), "nvrtcGetProgramLog");
    throw std::runtime_error("ops.cuh does not compile:\n" + log);
  }
  std::size_t bytes = 0;
  check(find<int(void*, std::size_t*)>(nvrtc, "nvrtcGetCUBINSize")(program, &bytes), "nvrtcGetCUBINSize");
  std::vector<char> cubin(bytes);
  check(find<int(void*, char*)>(nvrtc, "nvrtcGetCUBIN")(program, cubin.data()), "nvrtcGetCUBIN");
  find<int(void**)>(nvrtc, "nvrtcDestroyProgram")(&program);
  return cubin;
}

class CudaMath : public Math {
 public:
  CudaMath(int ordinal, const char* arch) {
    void* cuda = open_library("KVJIT_CUDA", {"libcuda.so.1"});
    // The engine uses the device's primary context, as kvjit does.
    int device = 0;
    void* context = nullptr;
    check(find<int(int*, int)>(cuda, "cuDeviceGet")(&device, ordinal), "cuDeviceGet");
    check(find<int(void**, int)>(cuda, "cuDevicePrimaryCtxRetain")(&context, device), "cuDevicePrimaryCtxRetain");
    check(find<int(void*)>(cuda, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    launch_ = find<Launch>(cuda, "cuLaunchKernel");
    const std::vector<char> cubin = compile_ops(arch);
    void* module = nullptr;
    check(find<int(void**, const void*)>(cuda, "cuModuleLoadData")(&module, cubin.data()), "cuModuleLoadData");
    const auto function = [&](const char* name) {
      void* found = nullptr;
      check(find<int(void**, void*, const char*)>(cuda, "cuModuleGetFunction")(&found, module, name), name);
      return found;
    };
    embed_ = function("engine_embed"), norm_ = function("engine_norm"), rope_ = function("engine_bias_rope"),
    gate_ = function("engine_gate"), loss_ = function("engine_loss");

    void* cublas = open_library("HOST_ENGINE_CUBLAS", {"libcublas.so.13", "libcublas.so.12", "libcublas.so"});
    check(find<int(void**)>(cublas, "cublasCreate_v2")(&blas_), "cublasCreate");
    multiply_ = find<Gemm>(cublas, "cublasGemmEx");
  }

  // cuBLAS is column-major: there the row-major y = x * weight^T is y^T = weight * x^T.
  void multiply(const half_bits* x, const half_bits* weight, float* y, int rows, int in, int out, bool adds) override {
    constexpr int kTranspose = 1, kAsIs = 0, kF32 = 0, kF16 = 2, kComputeF32 = 68, kDefault = -1;
    const float one = 1, beta = adds ? 1 : 0;
    check(multiply_(blas_, kTranspose, kAsIs, out, rows, in, &one, weight, kF16, in, x, kF16, in, &beta, y, kF32, out,
                    kComputeF32, kDefault),
          "cublasGemmEx");
  }
  void run(const EmbedArgs& args, long long count) override { launch(embed_, args, count); }
  void run(const NormArgs& args, long long count) override { launch(norm_, args, count); }
  void run(const BiasRopeArgs& args, long long count) override { launch(rope_, args, count); }
  void run(const GateArgs& args, long long count) override { launch(gate_, args, count); }
  void run(const LossArgs& args, long long count) override { launch(loss_, args, count); }

 private:
  using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                     void**);
  using Gemm = int(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                   const void*, void*, int, int, int, int);

  template <class Args>
  void launch(void* function, Args args, long long count) {
    constexpr int kThreads = 128;
    void* parameters[] = {&args, &count};
    check(launch_(function, static_cast<unsigned>((count + kThreads - 1) / kThreads), 1, 1, kThreads, 1, 1, 0, nullptr,
                  parameters, nullptr),
          "cuLaunchKernel");
  }

  Launch* launch_ = nullptr;
  Gemm* multiply_ = nullptr;
  void *blas_ = nullptr, *embed_ = nullptr, *norm_ = nullptr, *rope_ = nullptr, *gate_ = nullptr, *loss_ = nullptr;
};

}  // namespace

std::unique_ptr<Math> cuda_math(int ordinal, const char* arch) { return std::make_unique<CudaMath>(ordinal, arch); }

}  // namespace engine
