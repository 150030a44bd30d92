// Math on the host, in plain loops, for machines without a GPU.
// SPDX-License-Identifier: MIT
#include <vector>

#include "math.hpp"

namespace engine {
namespace {

class HostMath : public Math {
 public:
  void multiply(const half_bits* x, const half_bits* weight, float* y, int rows, int in, int out, bool adds) override {
    std::vector<float> row(in), weights(static_cast<std::size_t>(out) * in);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = from_half(weight[i]);
    for (long long r = 0; r < rows; ++r) {
      for (int i = 0; i < in; ++i) row[i] = from_half(x[r * in + i]);
      for (int o = 0; o < out; ++o) {
        const float* w = &weights[static_cast<std::size_t>(o) * in];
        float sum = adds ? y[r * out + o] : 0;
        for (int i = 0; i < in; ++i) sum += row[i] * w[i];
        y[r * out + o] = sum;
      }
    }
  }
  void run(const EmbedArgs& args, long long count) override { engine_embed(args, count); }
  void run(const NormArgs& args, long long count) override { engine_norm(args, count); }
  void run(const BiasRopeArgs& args, long long count) override { engine_bias_rope(args, count); }
  void run(const GateArgs& args, long long count) override { engine_gate(args, count); }
  void run(const LossArgs& args, long long count) override { engine_loss(args, count); }
};

}  // namespace

std::unique_ptr<Math> host_math() { return std::make_unique<HostMath>(); }

}  // namespace engine
