"""kvjit as operators of PyTorch: `torch.ops.kvjit.append`, `.attention`, `.attention_lse` and `.append_attention`.

They run on the current stream, allocate by torch's allocator, have fake kernels, and can be captured in CUDA graphs and
compiled with `fullgraph=True`. An operator gets the spec as text (`Spec.line`), the memory of the cache as tensors of
bytes, and the sizes of the cache. `Cache` holds all of those, and `append` and `attention` here take it:

    cache = kvjit.torch.Cache(spec, sequences=2, kv_heads=8, capacity=4096, device="cuda")
    kvjit.torch.append(cache, k, v, first_token=0)       # [sequences, tokens, kv_heads, head_dim]
    out = kvjit.torch.attention(cache, q, tokens=100)    # [sequences, 1, query heads, head_dim]

There is no backward: inputs that require a gradient raise. The first call with new shapes checks everything and fills
the struct of the C interface; later ones with these shapes replace pointers only.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import functools
import threading
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_compiling

from . import _abi, cache as caches, errors, library, operations
from .library import call, functions
from .program import Program
from .spec import Spec

_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


@functools.lru_cache(maxsize=1024)
def _program_of(spec, device, forks):
    return Program(spec, device)


def _program(spec, device):
    return _program_of(spec, device, library.forks)  # a forked child makes its own


def program_of(spec, device):
    """The Program of a spec on a torch.device. It is made once."""
    return _program(spec if isinstance(spec, Spec) else Spec(spec), _name(device))


def _name(device):
    device = torch.device(device)
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}:{device.index if device.index is not None else torch.cuda.current_device()}"


def current_stream(x):
    """The stream of torch that work on this tensor belongs to, as a number."""
    return torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else 0


def mark_static(tensor):
    """Tells compiled functions that the tensor stays where it is. It does what torch._dynamo.mark_static_address does,
    whose module takes seconds to import."""
    tensor._dynamo_static_input_type = "unguarded"


# ---- The cache ----


class Cache:
    """The memory of a cache and a workspace, as tensors of bytes. Layers of a model may share a workspace.

    Args:
        spec: a kvjit.Spec, or what its constructor takes.
        sequences, kv_heads, capacity: sizes of layouts planar and rows; capacity counts tokens of a sequence.
        pages: layout paged: the pages of the pool, instead of sequences and capacity.
        batch: the most sequences of a call; None: `sequences`.
        queries: with query_length = "any": the most queries of a sequence in a call; None: the spec's.
        device: a torch.device; None: the current GPU, or the CPU where there is none.
        workspace: the workspace of another Cache of this spec and these sizes, or a larger one; None: allocated.
        k_tensor_scale, v_tensor_scale: of formats with one scale for the whole tensor (fp8).

    Attributes:
        k, v, workspace: tensors of bytes. Their addresses stay, so CUDA graphs may hold them.
        shape: [sequences, kv_heads, capacity].
    """

    def __init__(self, spec: Spec | str | dict[str, Any], *, sequences: int = 1, kv_heads: int,
                 capacity: int | None = None, pages: int | None = None, batch: int | None = None,
                 queries: int | None = None, device: torch.device | str | None = None,
                 workspace: torch.Tensor | None = None, k_tensor_scale: float = 1.0, v_tensor_scale: float = 1.0):
        self.spec = spec if isinstance(spec, Spec) else Spec(spec)
        self.spec.line  # is made now: compilers trace what `append` and `attention` do, and this is no part of it
        device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.program = program_of(self.spec, device)
        if (pages is None) == self.program.is_paged or (capacity is None) != self.program.is_paged:
            raise errors.UsageError("a cache takes `pages` if the layout is paged, else `capacity`")
        tokens = int(capacity or 0)
        if pages is not None:
            sequences, tokens = 1, pages * self.program.page_tokens
            sizes = caches.PagedCache.sizes(self.program, pages=pages, kv_heads=kv_heads)
        else:
            sizes = caches.Cache.sizes(self.program, sequences=sequences, kv_heads=kv_heads, capacity=tokens)
        self.shape = [sequences, kv_heads, tokens]
        self.k, self.v = (torch.empty(size, dtype=torch.uint8, device=device) for size in sizes)
        self.scales = {"k_tensor_scale": k_tensor_scale, "v_tensor_scale": v_tensor_scale}
        if workspace is None:
            workspace = make_workspace(self.program, sequences=batch or sequences, kv_heads=kv_heads,
                                       tokens=tokens, queries=queries, device=device)
        self.workspace = workspace
        self.calls: dict[tuple, _Checked] = {}
        self.last = _Last()
        for tensor in (self.k, self.v, self.workspace):
            mark_static(tensor)

    @property
    def nbytes(self) -> int:
        return self.k.numel() + self.v.numel()

    def __deepcopy__(self, memo):
        """A copy of the memory. The workspace is shared, as among layers."""
        made = Cache.__new__(Cache)
        vars(made).update(vars(self) | {"k": self.k.clone(), "v": self.v.clone(), "calls": {}, "last": _Last()})
        mark_static(made.k), mark_static(made.v)
        return made

    def planes(self) -> list[torch.Tensor]:
        """Views of the memory: tensors of bytes [sequences, kv_heads, capacity, bytes of a row], one for the codes and
        one for the scales of each side. To select sequences, or to move tokens to a larger cache of these formats."""
        cache = _cache_of(self.spec.line, self.shape, self.k, self.v, tuple(self.scales.values()))
        views = []
        for name, memory in (("k", self.k), ("v", self.v)):
            side, layout = cache.side(name), getattr(self.program, name)
            if self.program.is_planar:
                parts = [(0, layout.code_row_bytes, side.codes_sequence_stride, side.codes_head_stride,
                          side.codes_token_stride)]
                if layout.scale_row_bytes:
                    parts.append((side.scales - side.codes, layout.scale_row_bytes, side.scales_sequence_stride,
                                  side.scales_head_stride, side.scales_token_stride))
            else:
                parts = [(0, layout.row_bytes, side.codes_sequence_stride, side.codes_head_stride,
                          side.codes_token_stride)]
            views += [memory.as_strided([*self.shape, row], [*strides, 1], offset) for offset, row, *strides in parts]
        return views


def workspace_bytes(program: Program, *, sequences: int, kv_heads: int, tokens: int, queries: int | None = None) -> int:
    """Bytes of the workspace of a call of these sizes, and of all smaller ones."""
    request, most = operations.sized(_abi.AttentionCall), 0
    request.tokens, request.sequences, request.kv_heads = tokens, sequences, kv_heads
    for has_lengths in (0, 1):
        request.lengths = has_lengths  # whether lengths are in device memory; the address is not followed
        for count in _numbers_of_queries(program, queries):
            request.queries = count
            bytes = c.c_size_t()
            call(functions.kvjit_workspace_bytes, program._open(), c.byref(request), c.byref(bytes))
            most = max(most, bytes.value)
    return most


def _numbers_of_queries(program, queries):
    """Numbers of queries around which another kernel may serve a call: more queries may need less memory. Kernels serve
    ranges of query rows that end at powers of two."""
    if not program.is_varlen:
        return [0]
    most = min(queries or program.query_length, program.query_length)
    edges = [(1 << bit) // program.q_heads_per_kv + more for bit in range(4, 17) for more in (0, 1)]
    return sorted({1, most, *(edge for edge in edges if 0 < edge < most)})


def make_workspace(program: Program, *, sequences: int, kv_heads: int, tokens: int, queries: int | None = None,
                   device: torch.device | str) -> torch.Tensor:
    """A workspace for calls up to these sizes, of torch's allocator, with counters of zero."""
    size = workspace_bytes(program, sequences=sequences, kv_heads=kv_heads, tokens=tokens, queries=queries)
    return torch.zeros(size, dtype=torch.uint8, device=device)


# ---- Operators ----

_CACHE = "str spec, int[] cache_shape"
_SCALES = "float k_tensor_scale=1.0, float v_tensor_scale=1.0"
_CALL = (f"{_CACHE}, SymInt tokens, *, Tensor? lengths=None, Tensor? table=None, Tensor? query_starts=None, "
         "SymInt queries=0, float scale=0.0, Tensor? mask=None, Tensor? slopes=None, Tensor? sinks=None, "
         "bool leaves_sinks=False, SymInt position_offset=0, Tensor? position_offsets=None, "
         f"Tensor? token_ranges=None, Tensor? packed_mask=None, SymInt packed_tokens=0, {_SCALES}")
_library = torch.library.Library("kvjit", "DEF")
_library.define(f"append(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, {_CACHE}, *, "
                f"SymInt first_token=0, Tensor? slots=None, Tensor? table=None, {_SCALES}) -> ()",
                tags=torch.Tag.pt2_compliant_tag)
_library.define(f"attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor(a!) workspace, {_CALL}) -> Tensor",
                tags=torch.Tag.pt2_compliant_tag)
_library.define("attention_lse(Tensor q, Tensor k_cache, Tensor v_cache, Tensor(a!) workspace, "
                f"{_CALL}) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag)
_library.define("append_attention(Tensor q, Tensor new_k, Tensor new_v, Tensor(a!) k_cache, Tensor(b!) v_cache, "
                f"Tensor(c!) workspace, {_CALL}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)


class _Calls(threading.local):
    """Calls that this thread has checked, by everything but addresses and the number of tokens."""

    def __init__(self):
        self.checked = {}


_calls = _Calls()
_MOST_CALLS = 4096  # prompts of many lengths make one each


def _meta(x):
    return None if x is None else (x.shape, x.stride(), x.dtype, x.get_device())


def _refuse_gradients(*inputs):
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        raise NotImplementedError("kvjit's attention has no backward: a quantized cache loses the gradient. Call it "
                                  "under torch.no_grad(), or detach its inputs")


_spec_of = functools.lru_cache(maxsize=1024)(Spec)  # of the text that operators get


def _cache_of(spec, cache_shape, k_cache, v_cache, scales):
    """A kvjit.Cache or PagedCache over the tensors."""
    program = _program(_spec_of(spec), _name(k_cache.device))
    sequences, kv_heads, capacity = cache_shape
    common = {"kv_heads": kv_heads, "memory": (k_cache, v_cache), "k_tensor_scale": scales[0],
              "v_tensor_scale": scales[1]}
    if program.is_paged:
        return caches.PagedCache(program, pages=capacity // program.page_tokens, **common)
    return caches.Cache(program, sequences=sequences, capacity=capacity, **common)


def _word(*names):
    """The place of a pointer in kvjit_attention_call, counted in words of 8 bytes."""
    struct, offset = _abi.AttentionCall, 0
    for name in names:
        offset += getattr(struct, name).offset
        struct = dict((field, kind) for field, kind, *_ in struct._fields_)[name]
    return offset // 8


_Q, _OUT, _STREAM, _LENGTHS = _word("q", "data"), _word("out", "data"), _word("stream"), _word("lengths")
_WORKSPACE = _word("workspace")
_K, _K_SCALES, _V, _V_SCALES = (_word(side, plane) for side in ("k", "v") for plane in ("codes", "scales"))
_empty_like, _run_attention = torch.empty_like, functions.kvjit_attention


class _Checked:
    """A checked call. Its struct is filled but for what changes from call to call: addresses, the number of tokens and
    the stream. Words of the struct are set by number, which is faster than by name."""

    __slots__ = ("request", "words", "reference", "program", "k_scales", "v_scales", "most_tokens", "shape", "dtype",
                 "is_like_q")

    def __init__(self, ready, q, out, most_tokens):
        self.request, self.program, self.most_tokens = ready.request, ready.program, most_tokens
        self.words, self.reference = memoryview(self.request).cast("B").cast("Q"), c.byref(self.request)
        self.k_scales, self.v_scales = (side.scales - side.codes if side.scales else None
                                        for side in (self.request.k, self.request.v))
        self.shape, self.dtype = tuple(out.shape), out.dtype
        self.is_like_q = q.is_contiguous() and (q.shape, q.dtype) == (out.shape, out.dtype)

    def set_memory(self, k, v):
        words, k_codes, v_codes = self.words, k.data_ptr(), v.data_ptr()
        words[_K], words[_V] = k_codes, v_codes
        if self.k_scales is not None:
            words[_K_SCALES] = k_codes + self.k_scales
        if self.v_scales is not None:
            words[_V_SCALES] = v_codes + self.v_scales

    def run(self, q, workspace, tokens, lengths):
        """Launches, and returns the output."""
        if not 0 < tokens <= self.most_tokens:
            raise errors.ArrayError(f"{tokens} tokens; the cache, its table and the mask have {self.most_tokens}")
        out = _empty_like(q) if self.is_like_q else q.new_empty(self.shape, dtype=self.dtype)
        words = self.words
        self.request.tokens, words[_STREAM] = tokens, current_stream(q)
        words[_Q], words[_OUT], words[_WORKSPACE] = q.data_ptr(), out.data_ptr(), workspace.data_ptr()
        if lengths is not None:
            words[_LENGTHS] = lengths.data_ptr()
        status = _run_attention(self.program._open(), self.reference, None, library._thread.reference)
        if status:
            library.raise_error(status)
        return out


def _most_tokens(cache, table, mask, packed_mask, packed_tokens):
    """How many tokens a call may have that differs in their number alone."""
    most = cache.capacity
    if table is not None:
        most = min(most, table.shape[1] * cache.program.page_tokens)
    if mask is not None:
        most = min(most, mask.shape[3])
    if packed_mask is not None and not packed_tokens:
        most = min(most, 32 * packed_mask.shape[3])
    return most


def _attend(tensors, spec, cache_shape, tokens, *, lengths=None, has_lse=False, **inputs):
    """(out, lse). tensors: q, the memory of K and of V, the workspace."""
    q, k_cache, v_cache, workspace = tensors
    key = (spec, library.forks, has_lse, *cache_shape, *map(_meta, tensors), _meta(lengths),
           *((name, _meta(x) if isinstance(x, torch.Tensor) else x) for name, x in inputs.items()))
    found = _calls.checked.get(key)
    if found is None:
        if len(_calls.checked) >= _MOST_CALLS:
            _calls.checked.clear()
        found = _calls.checked[key] = _check(tensors, spec, cache_shape, tokens, lengths=lengths, has_lse=has_lse,
                                             **inputs)
    found.set_memory(k_cache, v_cache)
    request, lse = found.request, None
    if has_lse:
        lse = q.new_empty(q.shape[:-1], dtype=torch.float32)
        request.lse = lse.data_ptr()
    for name, x in inputs.items():
        if not isinstance(x, torch.Tensor):
            continue
        if name == "table":
            request.k_pages.table = request.v_pages.table = x.data_ptr()
        elif name.startswith("new_"):
            getattr(request, name).data = x.data_ptr()
        else:
            setattr(request, name, x.data_ptr())
    return found.run(q, workspace, tokens, lengths), lse


def _check(tensors, spec, cache_shape, tokens, *, has_lse=False, table=None, queries=0, k_tensor_scale=1.0,
           v_tensor_scale=1.0, mask=None, packed_mask=None, packed_tokens=0, **inputs):
    """Checks a call, and fills its struct."""
    q, k_cache, v_cache, workspace = tensors
    cache = _cache_of(spec, cache_shape, k_cache, v_cache, (k_tensor_scale, v_tensor_scale))
    out = q.new_empty((*q.shape[:-1], cache.program.head_dim_v), dtype=_DTYPES[cache.program.out_type])
    lse = q.new_empty(q.shape[:-1], dtype=torch.float32) if has_lse else None
    ready = operations._Attention(cache, q, out=out, tokens=tokens, table=table, queries=queries or None, lse=lse,
                                  mask=mask, packed_mask=packed_mask, packed_tokens=packed_tokens,
                                  stream=current_stream(q), **inputs)
    ready.set_workspace(workspace)
    return _Checked(ready, q, out, _most_tokens(cache, table, mask, packed_mask, packed_tokens))


def _attention(q, k_cache, v_cache, workspace, spec, cache_shape, tokens, **inputs):
    return _attend((q, k_cache, v_cache, workspace), spec, cache_shape, tokens, **inputs)[0]


def _attention_lse(q, k_cache, v_cache, workspace, spec, cache_shape, tokens, **inputs):
    return _attend((q, k_cache, v_cache, workspace), spec, cache_shape, tokens, has_lse=True, **inputs)


def _append_attention(q, new_k, new_v, k_cache, v_cache, workspace, spec, cache_shape, tokens, **inputs):
    return _attend((q, k_cache, v_cache, workspace), spec, cache_shape, tokens, new_k=new_k, new_v=new_v, **inputs)[0]


def _append(k, v, k_cache, v_cache, spec, cache_shape, *, first_token=0, slots=None, table=None, k_tensor_scale=1.0,
            v_tensor_scale=1.0):
    cache = _cache_of(spec, cache_shape, k_cache, v_cache, (k_tensor_scale, v_tensor_scale))
    operations.append(cache, k, v, first_token=None if slots is not None else first_token, slots=slots, table=table,
                      stream=current_stream(k))


# ---- Fake kernels: the shapes of outputs, without a device ----


@functools.lru_cache(maxsize=1024)
def _output_of(spec):
    """(head_dim_v, type of the output) of a spec's text; defaults are those of spec.json."""
    attention = _spec_of(spec).to_dict().get("attention", {})
    return (attention.get("head_dim_v", attention.get("head_dim", 128)),
            _DTYPES[attention.get("out_type", "f32")])


def _fake_attention(q, *rest, **inputs):
    spec = next(value for value in rest if isinstance(value, str))
    head_dim, dtype = _output_of(spec)
    return q.new_empty((*q.shape[:-1], head_dim), dtype=dtype)


def _fake_attention_lse(q, *rest, **inputs):
    return _fake_attention(q, *rest), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _without_gradients(name):
    """The kernel of the key Autograd: it refuses, also where a compiler traces, or passes on."""
    def kernel(*inputs, **more):
        _refuse_gradients(*inputs, *more.values())
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.kvjit, name).default(*inputs, **more)
    return kernel


for _operator, _kernel, _fake in (("append", _append, lambda *inputs, **more: None),
                                  ("attention", _attention, _fake_attention),
                                  ("attention_lse", _attention_lse, _fake_attention_lse),
                                  ("append_attention", _append_attention, _fake_attention)):
    for _key in ("CUDA", "CPU"):
        _library.impl(_operator, _kernel, _key)
    _library.impl(_operator, _without_gradients(_operator), "Autograd")
    torch.library.register_fake(f"kvjit::{_operator}", _fake, lib=_library)


# ---- The same for a Cache ----


def append(cache: Cache, k: torch.Tensor, v: torch.Tensor, *, first_token: int = 0, slots: torch.Tensor | None = None,
           table: torch.Tensor | None = None) -> None:
    """Stores tokens: see kvjit.append. first_token is not remembered: a compiled function has no state."""
    torch.ops.kvjit.append(k, v, cache.k, cache.v, cache.spec.line, cache.shape, first_token=first_token, slots=slots,
                           table=table, **cache.scales)


def attention(cache: Cache, q: torch.Tensor, *, tokens: int | None = None, lengths: torch.Tensor | None = None,
              scale: float | None = None, new_k: torch.Tensor | None = None, new_v: torch.Tensor | None = None,
              with_lse: bool = False, spec: Spec | None = None, workspace: torch.Tensor | None = None,
              **inputs: Any) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of queries over a cache: see kvjit.attention for shapes and inputs of features.

    Args:
        tokens: the largest number of tokens of a sequence; None: the capacity, which needs `lengths`, a mask, or a full
            cache. A number that changes from step to step is no constant of a CUDA graph; `lengths` on the device are.
        new_k, new_v: of specs with append: the new tokens, which the call stores.
        with_lse: return (out, lse) of specs with the feature lse.
        spec: another Spec of these formats, layout and heads, whose program reads the same memory; None: the cache's.
        workspace: for another spec; None: the cache's.
    """
    tokens = cache.shape[2] if tokens is None else tokens
    if new_k is None and not with_lse and not inputs and type(q) is torch.Tensor and not is_compiling():
        last = cache.last
        if (lengths is last.lengths and spec is last.spec and workspace is last.workspace and scale == last.scale
                and q.shape == last.shape and q.stride() == last.strides and q.dtype is last.dtype
                and q.get_device() == last.device and get_ident() == last.thread and not q.requires_grad):
            return last.call.run(q, workspace if workspace is not None else cache.workspace, tokens, lengths)
        return _attend_now(cache, q, tokens, lengths, scale, spec, workspace)
    spec = cache.spec if spec is None else spec
    workspace = cache.workspace if workspace is None else workspace
    common = (workspace, spec.line, cache.shape, tokens)
    inputs |= {"lengths": lengths, "scale": scale or 0.0, **cache.scales}
    if new_k is not None:
        return torch.ops.kvjit.append_attention(q, new_k, new_v, cache.k, cache.v, *common, **inputs)
    operator = torch.ops.kvjit.attention_lse if with_lse else torch.ops.kvjit.attention
    return operator(q, cache.k, cache.v, *common, **inputs)


class _Last:
    """The inputs of the last call of a Cache, and the checked call. Comparing takes less time than a look-up."""

    __slots__ = ("call", "lengths", "spec", "workspace", "scale", "shape", "strides", "dtype", "device", "thread")

    def __init__(self, call=None, q=None, lengths=None, scale=None, spec=None, workspace=None):
        self.call, self.lengths, self.scale, self.spec, self.workspace = call, lengths, scale, spec, workspace
        self.shape, self.strides, self.dtype, self.device = (
            (q.shape, q.stride(), q.dtype, q.get_device()) if q is not None else (None,) * 4)
        self.thread = get_ident()


def _attend_now(cache, q, tokens, lengths, scale, spec, workspace):
    """Attention without torch's dispatcher, which takes longer than the call."""
    if q.requires_grad:
        _refuse_gradients(q)
    asked = q, lengths, scale, spec, workspace
    spec = cache.spec if spec is None else spec
    workspace = cache.workspace if workspace is None else workspace
    key = spec.toml, scale, get_ident(), workspace.numel(), _meta(q), _meta(lengths)
    found = cache.calls.get(key)
    if found is None:
        if len(cache.calls) >= _MOST_CALLS:
            cache.calls.clear()
        found = cache.calls[key] = _check((q, cache.k, cache.v, workspace), spec.line, cache.shape, tokens,
                                          lengths=lengths, scale=scale or 0.0, **cache.scales)
    cache.last = _Last(found, *asked)
    return found.run(q, workspace, tokens, lengths)
