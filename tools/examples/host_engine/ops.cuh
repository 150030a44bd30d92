// The operations that the engine computes itself, by elements or by rows: embedding, norm, rotary positions, SwiGLU and
// cross-entropy. One text serves the GPU (a thread for each index, compiled when the engine starts) and the host (a
// loop over the indices). Each function NAME_at computes one index.
// SPDX-License-Identifier: MIT
#pragma once
#if !defined(__CUDACC__)
#include <cmath>

#include "generator/base/minifloat.hpp"
#endif

namespace engine {

#if defined(__CUDACC__)
typedef unsigned short half_bits;
#define ENGINE_OP __device__ inline
#define ENGINE_ENTRY(name, Args)                                                       \
  extern "C" __global__ void engine_##name(engine::Args args, long long count) {       \
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; \
    if (i < count) engine::name##_at(args, i);                                         \
  }
ENGINE_OP float from_half(half_bits h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
ENGINE_OP half_bits to_half(float x) {
  half_bits h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
typedef unsigned short half_bits;
#define ENGINE_OP inline
#define ENGINE_ENTRY(name, Args)                                         \
  inline void engine_##name(const engine::Args& args, long long count) { \
    for (long long i = 0; i < count; ++i) engine::name##_at(args, i);    \
  }
ENGINE_OP float from_half(half_bits h) { return kvjit::float_from_f16(h); }
ENGINE_OP half_bits to_half(float x) { return kvjit::f16_from_float(x); }
#endif

// x[row][i] = table[token of row][i]. index: row * width + i
struct EmbedArgs {
  const int* tokens;
  const half_bits* table;
  float* x;
  int width;
};
ENGINE_OP void embed_at(const EmbedArgs& a, long long index) {
  a.x[index] = from_half(a.table[static_cast<long long>(a.tokens[index / a.width]) * a.width + index % a.width]);
}

// y[row] = x[row] / rms(x[row]) * weight. index: row
struct NormArgs {
  const float* x;
  const half_bits* weight;
  half_bits* y;
  int width;
};
ENGINE_OP void norm_at(const NormArgs& a, long long row) {
  const float* x = a.x + row * a.width;
  float sum = 0;
  for (int i = 0; i < a.width; ++i) sum += x[i] * x[i];
  const float factor = 1 / sqrtf(sum / a.width + 1e-5f);
  for (int i = 0; i < a.width; ++i) a.y[row * a.width + i] = to_half(x[i] * factor * from_half(a.weight[i]));
}

// x[row][head] += bias[head]. Then RoPE: channels j and j + head_dim / 2 are rotated by the angle
// position * theta^(-2 j / head_dim). index: (row * heads + head) * (head_dim / 2) + j
struct BiasRopeArgs {
  float* x;
  const half_bits* bias;
  int heads, head_dim;
  int chunk, first_position;  // a row's position is first_position + row % chunk
  float theta;                // 0: no RoPE, as for values
};
ENGINE_OP void bias_rope_at(const BiasRopeArgs& a, long long index) {
  const int half = a.head_dim / 2, j = static_cast<int>(index % half);
  const long long head_row = index / half;
  const int head = static_cast<int>(head_row % a.heads), place = static_cast<int>(head_row / a.heads % a.chunk);
  float *first = a.x + head_row * a.head_dim + j, *second = first + half;
  const half_bits* bias = a.bias + head * a.head_dim + j;
  const float x = *first + from_half(bias[0]), y = *second + from_half(bias[half]);
  const float angle =
      a.theta == 0 ? 0 : static_cast<float>(a.first_position + place) * powf(a.theta, -2.f * j / a.head_dim);
  const float c = cosf(angle), s = sinf(angle);
  *first = x * c - y * s;
  *second = y * c + x * s;
}

// y = silu(gate) * up. index: element
struct GateArgs {
  const float *gate, *up;
  half_bits* y;
};
ENGINE_OP void gate_at(const GateArgs& a, long long i) {
  a.y[i] = to_half(a.gate[i] / (1 + expf(-a.gate[i])) * a.up[i]);
}

// loss[row] = log(sum exp(logits[row])) - logits[row][target]. index: row
struct LossArgs {
  const float* logits;
  const int* targets;
  float* loss;
  int width;
};
ENGINE_OP void loss_at(const LossArgs& a, long long row) {
  const float* x = a.logits + row * a.width;
  float most = x[0], sum = 0;
  for (int i = 1; i < a.width; ++i) most = fmaxf(most, x[i]);
  for (int i = 0; i < a.width; ++i) sum += expf(x[i] - most);
  a.loss[row] = most + logf(sum) - x[a.targets[row]];
}

}  // namespace engine

ENGINE_ENTRY(embed, EmbedArgs)
ENGINE_ENTRY(norm, NormArgs)
ENGINE_ENTRY(bias_rope, BiasRopeArgs)
ENGINE_ENTRY(gate, GateArgs)
ENGINE_ENTRY(loss, LossArgs)
