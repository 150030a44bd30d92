"""vLLM's paged cache: operations that store to it and attend to it, with vLLM's shapes and names (vLLM 0.33).

A cache is [blocks, block_size, kv_heads, bytes] (NHD), or a transposed view of [blocks, kv_heads, block_size, bytes]
(HND): strides are free. Caches of `turboquant_*`, `ultraquant_4bit` and `int4_`, `int8_` and `fp8_per_token_head`
hold the bytes of K and of V of a token behind each other in one slot; the others are a cache of K and one of V. A slot
is block * block_size + place; a negative one stores nothing.

    reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, "fp8", k_scale, v_scale)
    turboquant_store(key, value, kv_cache, slot_mapping, "turboquant_4bit_nc")
    paged_attention(output, query, kv_cache, None, block_table, seq_lens, query_start_loc, ..., "turboquant_4bit_nc")

They only queue work on the current stream. `register` is the entry point of vLLM's plugins: see vllm_backend.py.
SPDX-License-Identifier: MIT
"""
import functools
import os
import sys

import torch

from . import cache as caches, errors, operations
from . import torch as operators
from .spec import Spec

VERSION = "0.33"  # of vLLM's interface
# The formats of K and of V by vLLM's --kv-cache-dtype.
CACHE_DTYPES = {
    "float16": ("f16", "f16"), "bfloat16": ("bf16", "bf16"),
    "fp8": ("fp8_e4m3", "fp8_e4m3"), "fp8_e4m3": ("fp8_e4m3", "fp8_e4m3"), "fp8_e5m2": ("fp8_e5m2", "fp8_e5m2"),
    "turboquant_k8v4": ("fp8_e4m3", "vllm_v4"), "turboquant_4bit_nc": ("vllm_k4_nc", "vllm_v4"),
    "turboquant_k3v4_nc": ("vllm_k3_nc", "vllm_v4"), "turboquant_3bit_nc": ("vllm_k3_nc", "vllm_v3"),
    "int8_per_token_head": ("vllm_int8_per_token_head",) * 2, "fp8_per_token_head": ("vllm_fp8_per_token_head",) * 2,
    "int4_per_token_head": ("vllm_int4_per_token_head",) * 2,
    "ultraquant_4bit": ("vllm_ultraquant_k", "vllm_ultraquant_v"),
}
_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


def _formats(kv_cache_dtype, dtype, device):
    """The formats of K and V. vLLM rotates int4_per_token_head in the type of the model, and on GPUs before sm_89 its
    Triton has another 8-bit float for keys."""
    name = {torch.float16: "float16", torch.bfloat16: "bfloat16"}.get(dtype) if kv_cache_dtype == "auto" \
        else kv_cache_dtype
    if name not in CACHE_DTYPES:
        raise errors.UnsupportedError(f"kvjit does not serve the cache dtype {kv_cache_dtype!r}",
                                      [f"it serves {', '.join(CACHE_DTYPES)}"])
    if name == "turboquant_k8v4" and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        return "vllm_k8_sm80", "vllm_v4"
    if name == "int4_per_token_head" and dtype == torch.bfloat16:
        return ("vllm_int4_per_token_head_bf16",) * 2
    return CACHE_DTYPES[name]


@functools.lru_cache(maxsize=1024)
def _spec(formats, head_size, block_size, group, dtype, is_decode, features, window, softcap):
    return Spec(k=formats[0], v=formats[1], head_dim=head_size, q_heads_per_kv=group, layout="paged",
                page_layout="rows", page_tokens=block_size, q_type=_TYPES[dtype], out_type=_TYPES[dtype],
                query_length=1 if is_decode else "any", features=list(features) or None,
                window=[window - 1, 0] if window else None, softcap=softcap or None)


def _cache(program, key_cache, value_cache, scales):
    """The PagedCache of one combined cache, or of one of K and one of V."""
    if value_cache is None:
        k_bytes, v_bytes = program.k.row_bytes, program.v.row_bytes
        if key_cache.shape[-1] < k_bytes + v_bytes:
            raise errors.ArrayError(f"a slot of {key_cache.shape[-1]} bytes; K and V take {k_bytes + v_bytes}")
        key_cache, value_cache = key_cache[..., :k_bytes], key_cache[..., k_bytes:k_bytes + v_bytes]
    kinds = ["head_scales" if getattr(program, side).has_head_scales else "tensor_scale" for side in "kv"]
    return caches.PagedCache.over(program, _bytes(key_cache), _bytes(value_cache),
                                  **{f"{side}_{kind}": scale for side, kind, scale in zip("kv", kinds, scales)})


def _scaled_formats(formats, scales):
    """The formats of fp8 whose scales are in device memory, if they are."""
    in_memory = [isinstance(scale, torch.Tensor) for scale in scales]
    if any(in_memory) and formats != ("fp8_e4m3",) * 2:
        raise errors.UnsupportedError("scales as tensors are served for fp8 (fp8_e4m3)", ["numbers are for all types"])
    return tuple("vllm_fp8_per_head" if one else name for one, name in zip(in_memory, formats))


def _bytes(x):
    return x if x.dtype == torch.uint8 else x.view(torch.uint8)


def _store(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, scales):
    if key.dtype not in _TYPES:
        raise errors.ArrayError(f"key is {key.dtype}; float16, bfloat16 and float32 are served")
    tokens = slot_mapping.shape[0]
    if tokens == 0:
        return
    formats = _scaled_formats(_formats(kv_cache_dtype, key.dtype, key.device), scales)
    spec = _spec(formats, key.shape[2], key_cache.shape[1], 1, key.dtype, True, (), 0, 0.0)
    cache = _cache(operators.program_of(spec, key.device), key_cache, value_cache, scales)
    operations.append(cache, key[None, :tokens], value[None, :tokens], slots=slot_mapping[None],
                      stream=operators.current_stream(key))


def reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale=1.0, v_scale=1.0):
    """Stores tokens to a cache of K and one of V.

    Args:
        key, value: [tokens, kv_heads, head_size], float16, bfloat16 or float32; may be longer than slot_mapping.
        key_cache, value_cache: [blocks, block_size, kv_heads, head_size] of the cache's type, or bytes of it.
        slot_mapping: int64 [tokens].
        kv_cache_dtype: "auto", "float16", "bfloat16", "fp8", "fp8_e4m3" or "fp8_e5m2".
        k_scale, v_scale: numbers (vLLM: layer._k_scale_float): value = stored number * scale. Of fp8 also float32
            tensors, [1] or [kv_heads] (vLLM: layer._k_scale).
    """
    _store(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, (k_scale, v_scale))


def turboquant_store(key, value, kv_cache, slot_mapping, kv_cache_dtype):
    """Stores tokens to a combined cache: bytes [blocks, block_size, kv_heads, slot]. It serves turboquant_*,
    ultraquant_4bit and int4_, int8_ and fp8_per_token_head, whose slots have the bytes of K, then those of V."""
    _store(key, value, kv_cache, None, slot_mapping, kv_cache_dtype, (1.0, 1.0))


_workspaces: dict[tuple, torch.Tensor] = {}


def _workspace(program, q, sequences, kv_heads, tokens, queries, given):
    needs = _workspace_bytes(program, sequences, kv_heads, tokens, queries)
    if given is not None:
        if given.numel() < needs:
            raise errors.ArrayError(f"a workspace of {given.numel()} bytes; {needs} are needed")
        return given
    place = (q.device, operators.current_stream(q))
    found = _workspaces.get(place)
    if found is None or found.numel() < needs:
        found = _workspaces[place] = torch.zeros(needs, dtype=torch.uint8, device=q.device)
    return found


@functools.lru_cache(maxsize=65536)
def _workspace_bytes(program, sequences, kv_heads, tokens, queries):
    return operators.workspace_bytes(program, sequences=sequences, kv_heads=kv_heads, tokens=tokens, queries=queries)


def paged_attention(output, query, key_cache, value_cache, block_table, seq_lens, query_start_loc, max_query_len,
                    max_seq_len, scale, kv_cache_dtype, *, k_scale=1.0, v_scale=1.0, sliding_window=None,
                    logits_soft_cap=0.0, alibi_slopes=None, sinks=None, workspace=None):
    """Causal attention of a batch of prompts, parts of prompts and decode steps over the cache.

    Args:
        output: [tokens, heads, head_size], written.
        query: [tokens, heads, head_size] of float16 or bfloat16.
        key_cache, value_cache: as in reshape_and_cache_flash; a combined cache and None for turboquant_*.
        block_table: int32 [requests, blocks of a request].
        seq_lens: int32 [requests]: tokens of each request, its queries included.
        query_start_loc: int32 [requests + 1], as cu_seqlens.
        max_query_len, max_seq_len: host numbers, at least the largest of the batch.
        scale: factor of the scores.
        k_scale, v_scale: as in reshape_and_cache_flash.
        sliding_window: tokens that a query sees, its own included; None or 0: all.
        workspace: bytes of the caller's, zeros at first; a CUDA graph needs one that stays. None: one for each stream.
    """
    tokens, heads, head_size = query.shape
    kv_heads, block_size, requests = key_cache.shape[2], key_cache.shape[1], seq_lens.shape[0]
    if query.dtype not in _TYPES:
        raise errors.ArrayError(f"query is {query.dtype}; float16 and bfloat16 are served")
    is_decode = max_query_len == 1 and tokens == requests
    features = [] if is_decode else ["causal"]
    features += ["alibi"] if alibi_slopes is not None else []
    features += ["sinks"] if sinks is not None else []
    formats = _scaled_formats(_formats(kv_cache_dtype, query.dtype, query.device), (k_scale, v_scale))
    spec = _spec(formats, head_size, block_size, heads // kv_heads, query.dtype, is_decode, tuple(features),
                 sliding_window or 0, float(logits_soft_cap or 0))
    program = operators.program_of(spec, query.device)
    cache = _cache(program, key_cache, value_cache, (k_scale, v_scale))
    most = min(max_seq_len, block_table.shape[1] * block_size)
    shape = {"q": query[:, None], "out": output[:, None]} if is_decode else {
        "q": query, "out": output, "query_starts": query_start_loc, "queries": max_query_len}
    operations.attention(
        cache, tokens=most, lengths=seq_lens, table=block_table, scale=scale, slopes=alibi_slopes, sinks=sinks,
        workspace=_workspace(program, query, requests, kv_heads, most, max_query_len, workspace),
        stream=operators.current_stream(query), **shape)
    return output


def register():
    """The entry point of vLLM's plugins. KVJIT_VLLM=1 gives TURBOQUANT to kvjit; else vLLM keeps its own backend."""
    if os.environ.get("KVJIT_VLLM") != "1":
        return
    import vllm
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    if not vllm.__version__.startswith(VERSION + "."):
        raise errors.UnsupportedError(f"kvjit's backend is written for vLLM {VERSION}; this is {vllm.__version__}",
                                      ["unset KVJIT_VLLM to use vLLM's own backend"])
    register_backend(AttentionBackendEnum.TURBOQUANT, "kvjit.vllm_backend.KvjitTurboQuantBackend")
    print("kvjit: serves attention of turboquant_* caches in vLLM", file=sys.stderr)
