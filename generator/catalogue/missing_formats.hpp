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
    {"octave_k3v4", "vLLM 0.33", "segments of K (vllm_octave_4 is V)", "ops/rocm_octave.py"},
    {"octave_k3v3", "vLLM 0.33", "segments, and a reader of V's planes of single bits", "ops/rocm_octave.py"},
    {"octave_k3v3_compact", "vLLM 0.33", "a reader of V's planes of single bits", "ops/rocm_octave.py"},
    {"fp8_ds_mla (656 bytes)", "vLLM 0.33", "segments", "csrc/libtorch_stable/cache_kernels.cu"},
    {"fp8_ds_mla (584 bytes)", "vLLM 0.33", "segments, a page of data rows and scale rows",
     "models/deepseek_v41/common/ops/cache_utils.py"},
    {"nvfp4_ds_mla (352 bytes)", "vLLM 0.33", "segments, an order of scales",
     "csrc/libtorch_stable/nvfp4_ds_mla_cache_kernels.cu"},
    {"nvfp4 pages of SM100", "vLLM 0.33", "a swizzle of V's scale plane",
     "csrc/libtorch_stable/nvfp4_kv_cache_kernels.cu"},
    {"turboquant_k8v4 below sm_89", "vLLM 0.33", "an E4M3 of bias 15", "ops/triton_turboquant_store.py"},
    {"fp8 with a scale a KV head", "vLLM 0.33", "a scale for each head", "csrc/libtorch_stable/cache_kernels.cu"},
    {"fp8_inc", "vLLM 0.33", "its definition is not public", "config/cache.py"},
    {"q8_KV", "ik_llama.cpp", "one scale for a row of all heads", "ggml/src/ggml-quants.c"},
    {"turbo3_tcq", "buun-llama-cpp", "a trellis", "ggml/src/ggml-cuda/turbo-quant-cuda.cuh"},
    {"turbo2_tcq", "buun-llama-cpp", "a trellis", "ggml/src/ggml-cuda/turbo-quant-cuda.cuh"},
    {"turbo1_tcq", "buun-llama-cpp", "a trellis", "ggml/src/ggml-cuda/turbo-quant-cuda.cuh"},
    {"rk4v4-e8", "ninfer-4090", "vector codes (to write; ninfer_rk4 reads it)", "src/ops/kernel/e8_*.cuh"},
    {"rk2v4-e8", "ninfer-4090", "vector codes", "src/ops/kernel/e8_*.cuh"},
};

}  // namespace kvjit
