// Math: what the engine computes besides attention - products of activations and weights, and the ops of ops.cuh - on
// the device that kvjit uses. Memory is kvjit's: on the CPU back-end device pointers are host pointers.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>

#include "ops.cuh"
#include "runtime/kvjit.hpp"

namespace engine {

class Math {
 public:
  virtual ~Math() = default;
  // y[rows][out] = x[rows][in] * weight[out][in]^T, added to what y holds if `adds`.
  virtual void multiply(const half_bits* x, const half_bits* weight, float* y, int rows, int in, int out,
                        bool adds) = 0;
  virtual void run(const EmbedArgs& args, long long count) = 0;
  virtual void run(const NormArgs& args, long long count) = 0;
  virtual void run(const BiasRopeArgs& args, long long count) = 0;
  virtual void run(const GateArgs& args, long long count) = 0;
  virtual void run(const LossArgs& args, long long count) = 0;
};

std::unique_ptr<Math> host_math();
// cuBLAS for products, NVRTC for ops.cuh, both opened at run time; throws std::runtime_error that names what is
// missing.
std::unique_ptr<Math> cuda_math(int ordinal, const char* arch);

}  // namespace engine
