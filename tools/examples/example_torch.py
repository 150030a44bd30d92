#!/usr/bin/env python3
"""One attention call on PyTorch tensors, through ctypes and kvjit's C interface.

The script fills a cache of 4-bit keys and values from fp16 tensors and computes attention of 32 query heads over it. It
compares the output with PyTorch's attention over the fp16 tensors. The difference is the error of four bits.

    python3 example_torch.py [libkvjit.so]

SPDX-License-Identifier: MIT
"""
import ctypes as c
import sys

import torch

SPEC = b"""
[k]
format = "tbq4_0"
[v]
format = "kv4"
[attention]
head_dim = 128
q_heads_per_kv = 4
out_type = "f16"
[cache]
layout = "planar"
"""
# Values of kvjit.h.
K, V = 0, 1  # KVJIT_K, KVJIT_V
F16 = 1  # KVJIT_F16
COUNTER_BYTES = 32768  # KVJIT_COUNTER_BYTES
INDEX = c.c_ssize_t  # kvjit_index


class Error(c.Structure):
    _fields_ = [("size", c.c_size_t), ("status", c.c_int), ("line", c.c_int), ("column", c.c_int),
                ("file", c.c_char * 256), ("message", c.c_char * 1024), ("notes", c.c_char * 3072)]


class Side(c.Structure):
    _fields_ = [("codes", c.c_void_p), ("scales", c.c_void_p),
                *((f"{plane}_{axis}_stride", INDEX)
                  for plane in ("codes", "scales") for axis in ("sequence", "head", "token"))]


class Rows(c.Structure):
    _fields_ = [("data", c.c_void_p), ("sequence_stride", INDEX), ("query_stride", INDEX), ("head_stride", INDEX)]


# Structs start with the caller's size of them, and only grow: members that are missing here are zero for the library.
class CodecCall(c.Structure):
    _fields_ = [("size", c.c_size_t), ("x", Rows), ("x_type", c.c_int), ("cache", Side), ("slots", c.c_void_p),
                ("first_token", INDEX), ("sequences", c.c_int), ("tokens", c.c_int), ("heads", c.c_int),
                ("keep_rotated", c.c_int), ("stream", c.c_void_p)]


class AttentionCall(c.Structure):
    _fields_ = [("size", c.c_size_t), ("q", Rows), ("k", Side), ("v", Side), ("out", Rows), ("lengths", c.c_void_p),
                ("tokens", c.c_int), ("sequences", c.c_int), ("kv_heads", c.c_int), ("blocks", c.c_int),
                ("scale", c.c_double), ("workspace", c.c_void_p), ("workspace_bytes", c.c_size_t),
                ("stream", c.c_void_p)]


def sized(struct):
    """A zeroed struct whose member `size` is set, as kvjit requires."""
    value = struct()
    value.size = c.sizeof(struct)
    return value


class Library:
    """The functions of libkvjit. A status that is not 0 becomes an exception with the library's message."""

    def __init__(self, path):
        self.library = c.CDLL(path)

    def __getattr__(self, name):
        def call(*args):
            error = sized(Error)
            if getattr(self.library, "kvjit_" + name)(*args, c.byref(error)):
                raise RuntimeError(error.message.decode() + "\n" + error.notes.decode())
        return call


def rows(x):
    """The kvjit_rows of a tensor [sequences, tokens, heads, head_dim]; only its last dimension must be dense."""
    assert x.stride(3) == 1
    return Rows(x.data_ptr(), x.stride(0), x.stride(1), x.stride(2))


def main():
    kvjit = Library(sys.argv[1] if len(sys.argv) > 1 else "libkvjit.so")
    torch.manual_seed(1)
    sequences, tokens, kv_heads, q_heads, dim = 2, 5000, 8, 32, 128
    make = lambda length, heads: torch.randn(sequences, length, heads, dim, device="cuda", dtype=torch.float16)
    q, k, v, out = make(1, q_heads), make(tokens, kv_heads), make(tokens, kv_heads), make(1, q_heads)
    stream = c.c_void_p(torch.cuda.current_stream().cuda_stream)

    context, program = c.c_void_p(), c.c_void_p()
    kvjit.context_create(None, c.byref(context))
    kvjit.program_create(context, c.c_char_p(SPEC), b"example_torch.py", None, c.byref(program))

    call, memory = sized(AttentionCall), []
    for side, x in ((K, k), (V, v)):
        size, cache = c.c_size_t(), Side()
        shape = (program, side, INDEX(sequences), INDEX(kv_heads), INDEX(tokens))
        kvjit.cache_layout(*shape, None, None, c.byref(size))
        memory.append(torch.empty(size.value, dtype=torch.uint8, device="cuda"))
        kvjit.cache_layout(*shape, c.c_void_p(memory[-1].data_ptr()), c.byref(cache), None)
        codec = sized(CodecCall)
        codec.x, codec.x_type, codec.cache, codec.stream = rows(x), F16, cache, stream
        codec.sequences, codec.tokens, codec.heads = sequences, tokens, kv_heads
        kvjit.quantize(program, side, c.byref(codec))
        setattr(call, "kv"[side], cache)

    call.q, call.out, call.stream = rows(q), rows(out), stream
    call.tokens, call.sequences, call.kv_heads = tokens, sequences, kv_heads
    size = c.c_size_t()
    kvjit.workspace_bytes(program, c.byref(call), c.byref(size))
    workspace = torch.zeros(size.value, dtype=torch.uint8, device="cuda")  # the first COUNTER_BYTES must be 0
    assert size.value >= COUNTER_BYTES
    call.workspace, call.workspace_bytes = workspace.data_ptr(), size.value
    kvjit.attention(program, c.byref(call), None)

    want = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True).transpose(1, 2)
    error = ((out.float() - want.float()).norm() / want.float().norm()).item()
    cosine = torch.nn.functional.cosine_similarity(out.float().flatten(), want.float().flatten(), dim=0).item()
    bytes_f16 = 2 * k.numel() * 2
    print(f"cache      {sum(m.numel() for m in memory)} bytes, {bytes_f16} as fp16")
    print(f"difference {error:.3f}, cosine {cosine:.4f}, from PyTorch over the tensors as they were")
    kvjit.library.kvjit_program_destroy(program)
    kvjit.library.kvjit_context_destroy(context)
    return 0 if cosine > 0.98 else 6


if __name__ == "__main__":
    sys.exit(main())
