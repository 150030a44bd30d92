// Published cache types that kvjit does not serve: who has them, what a format file cannot state of them yet, and where
// they are defined. `kvjit formats --missing` prints the table. A type that is served is no longer in it: a test says
// so.
// SPDX-License-Identifier: MIT
#pragma once

namespace kvjit {

struct MissingFormat {
  const char *name, *project, *axis, *source;
};

inline constexpr MissingFormat kMissingFormats[] = {
    {"nvfp4 pages of SM100, NHD", "vLLM 0.33", "swizzled scales of tokens that are not dense (v.swizzle is for HND)",
     "csrc/libtorch_stable/nvfp4_kv_cache_kernels.cu"},
    {"octave_k3v4 with RoPE of other sizes", "vLLM 0.33", "a number of the model (vllm_octave_k: 64 channels)",
     "ops/rocm_octave.py"},
    {"fp8_inc", "vLLM 0.33", "its definition is not public", "config/cache.py"},
    {"q8_KV", "ik_llama.cpp", "one scale for a row of all heads", "ggml/src/ggml-quants.c"},
    {"turbo1_tcq as K", "buun-llama-cpp", "its table (buun_turbo1_tcq_v is V)",
     "ggml/src/ggml-cuda/turbo-quant-cuda.cuh"},
    {"turbo3_tcq of later versions", "buun-llama-cpp", "its tables for K and for V",
     "ggml/src/ggml-cuda/turbo-quant-cuda.cuh"},
    {"turbo2_tcq of later versions", "buun-llama-cpp", "its tables for K and for V",
     "ggml/src/ggml-cuda/turbo-quant-cuda.cuh"},
    {"rk4v4-e8 as K, to write", "ninfer-4090",
     "rounding to E8, which loses 2.3 times as much as ninfer_rk4, its reader", "src/ops/kernel/e8_*.cuh"},
};

}  // namespace kvjit
