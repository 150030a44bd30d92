// Math: the engine's computations besides attention, on the device of kvjit's context: products of activations and
// weights, and the operations of ops.cuh. kvjit allocates the memory; on the CPU back-end device pointers are host
// pointers.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>

#include "ops.cuh"
#include "runtime/kvjit.hpp"

namespace engine {

class Math {
 public:
  virtual ~Math() = default;
  // Computes y[rows][out] = x[rows][in] * weight[out][in]^T, or adds it to y if `adds`.
  virtual void multiply(const half_bits* x, const half_bits* weight, float* y, int rows, int in, int out,
                        bool adds) = 0;
  // Each run computes an operation of ops.cuh at the indices 0 .. count - 1.
  virtual void run(const EmbedArgs& args, long long count) = 0;
  virtual void run(const NormArgs& args, long long count) = 0;
  virtual void run(const BiasRopeArgs& args, long long count) = 0;
  virtual void run(const GateArgs& args, long long count) = 0;
  virtual void run(const LossArgs& args, long long count) = 0;
};

std::unique_ptr<Math> host_math();
// Uses cuBLAS for products and NVRTC for ops.cuh. Both are opened at run time; throws std::runtime_error if one is
// missing.
std::unique_ptr<Math> cuda_math(int ordinal, const char* arch);

}  // namespace engine
