"""What a program does: store tokens, attend, read, copy, shift, merge. Every function only queues work on the stream.

Shapes. Tensors of tokens are [sequences, tokens, heads, head_dim], queries [sequences, queries, query heads, head_dim];
a sequence alone may leave out the first dimension. The last dimension is dense, the others have any strides. A ragged
batch has all its rows behind each other: [rows, heads, head_dim]. `stream` is a CUstream as a number (torch:
`torch.cuda.current_stream().cuda_stream`); 0 is the default stream.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import dataclasses
from collections.abc import Sequence
from typing import Any

from . import _abi, arrays, errors
from .arrays import ArrayLike, check
from .cache import Cache, PagedCache
from .library import call, functions, sized
from .program import SIDES, Program

_PAIRS = {"neighbours": _abi.ROPE_NEIGHBOURS, "halves": _abi.ROPE_HALVES}
_COPIES = {_abi.COPY_BYTES: "bytes", _abi.COPY_ROTATED: "rotated", _abi.COPY_DEQUANTIZED: "dequantized"}
_FLOATS = tuple(arrays.NUMBERS)


@dataclasses.dataclass
class Rope:
    """Rotary positions: kvjit_rope.

    Attributes:
        pairs: "halves" (neox: values i and i + dims/2) or "neighbours" (ggml's normal: 2 i and 2 i + 1).
        dims: values of a head that are rotated; first: the first of them.
        base, scale, magnitude: as in kvjit_rope; 0 is the default.
        positions: i32 [sequences, tokens] on the device, or one number for all.
        factors: f32 [dims / 2] on the device, or None.
        extrapolation, beta_fast, beta_slow, trained_tokens: YaRN.
    """
    dims: int
    positions: ArrayLike | int
    pairs: str = "halves"
    first: int = 0
    base: float = 0.0
    scale: float = 0.0
    magnitude: float = 0.0
    factors: ArrayLike | None = None
    extrapolation: float = 0.0
    beta_fast: float = 0.0
    beta_slow: float = 0.0
    trained_tokens: int = 0

    def _struct(self, program, shape, keeps, stream):
        if self.pairs not in _PAIRS:
            raise errors.UsageError(f"pairs of rope are {' or '.join(_PAIRS)}, not {self.pairs!r}")
        rope = sized(_abi.Rope)
        rope.pairs = _PAIRS[self.pairs]
        for name in ("first", "dims", "base", "scale", "magnitude", "extrapolation", "beta_fast", "beta_slow",
                     "trained_tokens"):
            setattr(rope, name, getattr(self, name))
        if isinstance(self.positions, int):
            rope.position = self.positions
        else:
            rope.positions = _dense(self.positions, "rope.positions", program, "i32", shape, keeps, stream)
        if self.factors is not None:
            rope.factors = _dense(self.factors, "rope.factors", program, "f32", [self.dims // 2], keeps, stream)
        keeps.append(rope)
        return c.pointer(rope)


def _dense(x, what, program, dtype, shape, keeps, stream=0, writes=False):
    """The pointer of a dense array."""
    view = check(x, what, shape=shape, dtypes=[dtype], device=program.device, writes=writes, stream=stream)
    if any(size > 1 and has != want
           for size, has, want in zip(view.shape, view.strides, arrays.dense_strides(view.shape))):
        raise errors.ArrayError(f"{what} is not dense: its strides are {list(view.strides)}")
    keeps.append(view)
    return view.data


def _batched(view):
    """[tokens, heads, head_dim] as one sequence."""
    if len(view.shape) != 3:
        return view
    step = view.strides[0] * max(view.shape[0], 1)
    return arrays.View(view.data, (1, *view.shape), (step, *view.strides), view.dtype, view.device, view.owner)


def _rows(view):
    return _abi.Rows(view.data or None, *view.strides[:3])


def _tokens_view(x, what, program, shape, dtypes, keeps, stream, writes=False):
    view = _batched(check(x, what, dtypes=dtypes, device=program.device, writes=writes, stream=stream))
    view = check(view, what, shape=shape)
    keeps.append(view)
    return view


def _pages(table, cache, sequences, keeps, stream):
    """kvjit_pages of a block table i32 [sequences, entries]. Calls by slots have none, but the pool has its pages."""
    if table is None:
        return _abi.Pages(None, 0, cache.pages if isinstance(cache, PagedCache) else 0)
    view = check(table, "table", shape=[sequences, None], dtypes=["i32"], device=cache.program.device, stream=stream)
    keeps.append(view)
    return _abi.Pages(view.data, view.strides[0], cache.pages)


def _needs_table(cache, table, slots=None):
    is_paged = isinstance(cache, PagedCache)
    if is_paged and table is None and slots is None:
        raise errors.UsageError("a paged cache needs `table`, the pages of each sequence, or `slots`")
    if not is_paged and table is not None:
        raise errors.UsageError("`table` is for paged caches")


def _slots(slots, shape, program, keeps, stream):
    """(pointer, type) of slots i32 or i64 [sequences, tokens]."""
    view = check(slots, "slots", dtypes=list(arrays.SLOTS), device=program.device, stream=stream)
    if len(view.shape) == 1 and shape[0] == 1:
        view = arrays.View(view.data, (1, *view.shape), (view.shape[0], *view.strides), view.dtype, view.device, view)
    pointer = _dense(view, "slots", program, view.dtype, list(shape), keeps)
    return pointer, arrays.SLOTS[view.dtype]


# ---- The write path ----


def _codec(cache, side, x, first_token, slots, table, rope, stream, keeps, check_record, writes=False):
    program = cache.program
    _needs_table(cache, table, slots)
    head_dim = program.head_dim if side == "k" else program.head_dim_v
    view = _tokens_view(x, side, program, [None, None, cache.kv_heads, head_dim], _FLOATS, keeps, stream, writes)
    sequences, tokens = view.shape[:2]
    codec = sized(_abi.CodecCall)
    codec.x, codec.x_type, codec.cache = _rows(view), arrays.NUMBERS[view.dtype], cache.side(side)
    codec.sequences, codec.tokens, codec.heads = sequences, tokens, cache.kv_heads
    codec.stream, codec.tensor_scale = stream or None, cache.tensor_scale(side)
    codec.pages = _pages(table, cache, sequences, keeps, stream)
    keeps.append(cache.memory())
    if slots is not None:
        _check_sequences(cache, sequences)
        codec.slots, codec.slot_type = _slots(slots, (sequences, tokens), program, keeps, stream)
        codec.slot_count = cache.capacity
    else:
        codec.first_token = first_token
        _check_room(cache, sequences, first_token + tokens, table)
    if rope is not None:
        codec.rope = rope._struct(program, [sequences, tokens], keeps, stream)
    if check_record is not None:
        codec.check = _dense(check_record, "check", program, "u8", [_abi.CHECK_BYTES], keeps, stream, writes=True)
    return codec


def _check_sequences(cache, sequences):
    if isinstance(cache, Cache) and sequences > cache.sequences:
        raise errors.ArrayError(f"{sequences} sequences for a cache of {cache.sequences}")


def _check_room(cache, sequences, end, table=None):
    _check_sequences(cache, sequences)
    if isinstance(cache, PagedCache):
        entries = arrays.view(table).shape[1] if table is not None else 0
        room, what = entries * cache.program.page_tokens, f"{entries} pages a sequence"
    else:
        room, what = cache.capacity, f"a capacity of {cache.capacity}"
    if end > room:
        raise errors.ArrayError(f"tokens up to {end} for {what}: {room} tokens")


def append(cache: Cache | PagedCache, k: ArrayLike | None, v: ArrayLike | None, *, first_token: int | None = None,
           slots: ArrayLike | None = None, table: ArrayLike | None = None, rope: Rope | None = None,
           check: ArrayLike | None = None, stream: int = 0) -> None:
    """Stores tokens.

    Args:
        cache: a Cache or a PagedCache.
        k, v: f16, bf16 or f32 [sequences, tokens, kv_heads, head_dim]; either may be None.
        first_token: where the tokens of every sequence begin. None, for a Cache: behind those appended before.
        slots: i32 or i64 [sequences, tokens], instead of `first_token`: the place of each token; a negative one skips
            the token. Cache: its number in the sequence. PagedCache: page * page_tokens + place in the page.
        table: PagedCache without slots: i32 [sequences, entries], the pages of each sequence.
        rope: a Rope: rows of K are rotated to their positions before they are stored.
        check: u8 [64] of zeros, for specs with target.checks; see `read_check`.

    Raises:
        kvjit.ArrayError: a wrong shape, type or device, or no room.
    """
    keeps: list[Any] = []
    follows = first_token is None and slots is None
    if follows:
        if not isinstance(cache, Cache):
            raise errors.UsageError("a paged cache needs `first_token` or `slots`")
        first_token = cache.tokens
    calls = [(side, _codec(cache, side, x, first_token, slots, table, rope if side == "k" else None, stream, keeps,
                           check))
             for side, x in (("k", k), ("v", v)) if x is not None]
    if not calls:
        raise errors.UsageError("append needs k or v")
    if len({(codec.sequences, codec.tokens) for _, codec in calls}) > 1:
        raise errors.ArrayError("k and v have different numbers of sequences or tokens")
    for side, codec in calls:
        call(functions.kvjit_quantize, cache.program._open(), SIDES[side], c.byref(codec))
    if follows and isinstance(cache, Cache):
        cache.tokens = first_token + calls[0][1].tokens


def read(cache: Cache | PagedCache, side: str, out: ArrayLike, *, first_token: int = 0, slots: ArrayLike | None = None,
         table: ArrayLike | None = None, keep_rotated: bool = False, check: ArrayLike | None = None,
         stream: int = 0) -> ArrayLike:
    """Reads tokens: dequantizes them to `out`, f16, bf16 or f32 [sequences, tokens, kv_heads, head_dim].

    Args:
        side: "k" or "v".
        keep_rotated: values of the rotated domain, as attention sees them.
        first_token, slots, table, check: as in `append`; a negative slot gives zeros.

    Returns:
        out.
    """
    if side not in SIDES:
        raise errors.UsageError(f'a side is "k" or "v", not {side!r}')
    keeps: list[Any] = []
    codec = _codec(cache, side, out, first_token, slots, table, None, stream, keeps, check, writes=True)
    codec.keep_rotated = keep_rotated
    call(functions.kvjit_dequantize, cache.program._open(), SIDES[side], c.byref(codec))
    return out


def _cache_tokens(cache, side, sequences, tokens, first_token, slots, table, keeps, stream):
    _needs_table(cache, table, slots)
    made = sized(_abi.CacheTokens)
    made.cache, made.tensor_scale = cache.side(side), cache.tensor_scale(side)
    made.pages = _pages(table, cache, sequences, keeps, stream)
    keeps.append(cache.memory())
    if slots is not None:
        _check_sequences(cache, sequences)
        made.slots, made.slot_type = _slots(slots, (sequences, tokens), cache.program, keeps, stream)
        made.slot_count = cache.capacity
    else:
        made.first_token = first_token
        _check_room(cache, sequences, first_token + tokens, table)
    keeps.append(made)
    return c.pointer(made)


def copy(source: Cache | PagedCache, target: Cache | PagedCache, *, sequences: int = 1, tokens: int,
         source_token: int = 0, target_token: int = 0, source_slots: ArrayLike | None = None,
         target_slots: ArrayLike | None = None, source_table: ArrayLike | None = None,
         target_table: ArrayLike | None = None, sides: Sequence[str] = ("k", "v"), stream: int = 0) -> dict[str, str]:
    """Copies tokens of one cache to another, of any format and layout, on the device.

    Args:
        source, target: caches of programs of one context and one head size. They may be the same, if no byte is both
            read and written.
        sequences, tokens: how many; tokens of each sequence.
        source_token, target_token: the first ones; or source_slots, target_slots as in `append`.

    Returns:
        How each side was copied: {"k": "bytes", ...}: "bytes", or encoded anew from "rotated" or "dequantized" values.
    """
    kinds = {}
    for side in sides:
        keeps: list[Any] = []
        request, report = sized(_abi.CopyCall), sized(_abi.CopyReport)
        setattr(request, "from", _cache_tokens(source, side, sequences, tokens, source_token, source_slots,
                                               source_table, keeps, stream))
        request.to = _cache_tokens(target, side, sequences, tokens, target_token, target_slots, target_table, keeps,
                                   stream)
        request.sequences, request.tokens, request.heads = sequences, tokens, source.kv_heads
        request.stream = stream or None
        if source.kv_heads != target.kv_heads:
            raise errors.ArrayError(f"{source.kv_heads} KV heads cannot be copied to {target.kv_heads}")
        call(functions.kvjit_copy, source.program._open(), SIDES[side], target.program._open(),
             SIDES[side], c.byref(request), c.byref(report))
        kinds[side] = _COPIES[report.kind]
    return kinds


def shift(cache: Cache | PagedCache, rope: Rope, *, sequences: int = 1, tokens: int, first_token: int = 0,
          slots: ArrayLike | None = None, table: ArrayLike | None = None, stream: int = 0) -> None:
    """Moves keys that were stored with rotary positions to other positions, in place (llama.cpp: K-shift).

    Args:
        rope: a Rope whose positions are added to those of the stored rows; 0 keeps a row's bytes.
        sequences, tokens, first_token, slots, table: which tokens, as in `copy`.
    """
    keeps: list[Any] = []
    request = sized(_abi.ShiftCall)
    request.cache = _cache_tokens(cache, "k", sequences, tokens, first_token, slots, table, keeps, stream)
    request.rope = rope._struct(cache.program, [sequences, tokens], keeps, stream)
    request.sequences, request.tokens, request.heads = sequences, tokens, cache.kv_heads
    request.stream = stream or None
    call(functions.kvjit_shift, cache.program._open(), SIDES["k"], c.byref(request))


# ---- Attention ----


@dataclasses.dataclass(frozen=True)
class Report:
    """What an attention call ran: kernels in launch order, the formats in which K and V were read, the bytes of the
    cache that it had to read, bytes that prefill in two passes converted, blocks of the attention kernel."""
    kernels: tuple[str, ...]
    k_reader: str
    v_reader: str
    cache_bytes: int
    converted_bytes: int
    blocks: int
    features: str


def _report(report):
    return Report(tuple(name.decode() for name in report.kernels[:report.kernel_count]), report.k_reader.decode(),
                  report.v_reader.decode(), report.cache_bytes, report.converted_bytes, report.blocks,
                  report.features.decode())


def _set_mask(request, member, x, dtype, width, program, sequences, q_heads, keeps, stream):
    """A mask [sequences or 1, query heads or 1, queries or 1, at least `width`]."""
    view = check(x, member, dtypes=[dtype], device=program.device, stream=stream)
    queries = request.query_rows or request.queries or program.query_length
    sizes = (1 if request.query_rows else sequences, q_heads, queries)
    fits = len(view.shape) == 4 and view.shape[3] >= width and all(
        has in (1, size) for has, size in zip(view.shape, sizes))
    if not fits:
        raise errors.ArrayError(f"{member} has shape {list(view.shape)}; [{sizes[0]} or 1, {q_heads} or 1, {queries} "
                                f"or 1, at least {width}] is expected")
    prefix = member.removesuffix("_mask")
    for axis, name in enumerate(("sequence", "head", "query")):
        setattr(request, f"{prefix}_{name}_stride", view.strides[axis] if view.shape[axis] > 1 else 0)
    keeps.append(view)
    setattr(request, member, view.data)


def _set_features(request, program, inputs, sequences, q_heads, keeps, stream):
    """Inputs of features, arrays on the device."""
    if inputs.get("mask") is not None:
        _set_mask(request, "mask", inputs["mask"], "f16", request.tokens, program, sequences, q_heads, keeps, stream)
    if inputs.get("packed_mask") is not None:
        request.packed_tokens = inputs["packed_tokens"]
        words = -(-(request.packed_tokens or request.tokens) // 32)
        _set_mask(request, "packed_mask", inputs["packed_mask"], "u32", words, program, sequences, q_heads, keeps,
                  stream)
    for name, dtype, shape in (("slopes", "f32", [q_heads]), ("sinks", "f32", [q_heads]),
                               ("position_offsets", "i32", [sequences]), ("token_ranges", "i32", [sequences, 2])):
        if inputs.get(name) is not None:
            setattr(request, name, _dense(inputs[name], name, program, dtype, shape, keeps, stream))


class _Attention:
    """One attention call, checked and ready: the struct, and what it points to."""

    __slots__ = ("request", "out", "keeps", "program", "stored")

    def __init__(self, cache, q, *, out=None, tokens=None, lengths=None, table=None, query_starts=None, queries=None,
                 scale=None, leaves_sinks=False, position_offset=0, lse=None, new_k=None, new_v=None, blocks=0,
                 check_record=None, stream=0, context_chunk_bytes=0, **features):
        program, keeps = cache.program, []
        self.program, self.keeps, self.stored = program, keeps, 0
        _needs_table(cache, table)
        if (new_k is None) != (new_v is None) or (new_k is not None) != program.appends:
            raise errors.UsageError("new_k and new_v are for specs with attention.append, which need both")
        given = arrays.check(q, "q", dtypes=[program.q_type], device=program.device, stream=stream)
        q_heads = cache.kv_heads * program.q_heads_per_kv
        if query_starts is not None:
            starts = arrays.check(query_starts, "query_starts", shape=[None], dtypes=["i32"], device=program.device,
                                  stream=stream)
            sequences = starts.shape[0] - 1
            if queries is None:
                raise errors.UsageError("a ragged batch needs `queries`, the most queries of a sequence")
            view = _batched(arrays.check(given, "q", shape=[None, q_heads, program.head_dim]))
        else:
            view = arrays.check(_batched(given), "q", shape=[None, None, q_heads, program.head_dim])
            sequences, queries = view.shape[0], view.shape[1]
            if not program.is_varlen and queries != program.query_length:
                raise errors.ArrayError(f"q has {queries} queries a sequence; the spec has query_length = "
                                        f"{program.query_length}")
        keeps += [view, cache.memory()]
        request = self.request = sized(_abi.AttentionCall)
        request.q, request.k, request.v = _rows(view), cache.side("k"), cache.side("v")
        out_shape = [*given.shape[:-1], program.head_dim_v]
        self.out = arrays.Array(program.context, out_shape, program.out_type) if out is None else out
        out_view = arrays.check(self.out, "out", shape=out_shape, dtypes=[program.out_type], device=program.device,
                                writes=True, stream=stream)
        keeps.append(out_view)
        request.out = _rows(_batched(out_view))
        tokens = self._tokens(cache, tokens, table, queries if new_k is not None else 0)
        _check_room(cache, sequences, tokens, table)
        request.tokens, request.sequences, request.kv_heads, request.blocks = tokens, sequences, cache.kv_heads, blocks
        request.scale, request.stream = scale or 0.0, stream or None
        request.k_tensor_scale, request.v_tensor_scale = cache.k_tensor_scale, cache.v_tensor_scale
        if lengths is not None:
            request.lengths = _dense(lengths, "lengths", program, "i32", [sequences], keeps, stream)
        if table is not None:
            request.k_pages = request.v_pages = _pages(table, cache, sequences, keeps, stream)
        if program.is_varlen:
            request.queries = queries
        if query_starts is not None:
            request.query_starts = _dense(starts, "query_starts", program, "i32", [sequences + 1], keeps)
            request.query_rows = given.shape[0]
        self._set_new(cache, new_k, new_v, sequences, queries, stream)
        request.leaves_sinks, request.position_offset = leaves_sinks, position_offset
        request.context_chunk_bytes = context_chunk_bytes
        _set_features(request, program, features, sequences, q_heads, keeps, stream)
        if lse is not None:
            request.lse = _dense(lse, "lse", program, "f32", out_shape[:-1], keeps, stream, writes=True)
        if check_record is not None:
            request.check = _dense(check_record, "check", program, "u8", [_abi.CHECK_BYTES], keeps, stream,
                                   writes=True)

    @staticmethod
    def _tokens(cache, tokens, table, new):
        if tokens is not None:
            return tokens
        if isinstance(cache, Cache):
            return cache.tokens + new
        return arrays.view(table).shape[1] * cache.program.page_tokens

    def _set_new(self, cache, new_k, new_v, sequences, queries, stream):
        """K and V of the new tokens, which the call stores."""
        program = self.program
        if new_k is None:
            return
        for name, x, head_dim in (("new_k", new_k, program.head_dim), ("new_v", new_v, program.head_dim_v)):
            view = _tokens_view(x, name, program, [sequences, queries, cache.kv_heads, head_dim], _FLOATS, self.keeps,
                                stream)
            setattr(self.request, name, _rows(view))
            number = arrays.NUMBERS[view.dtype]
            if self.request.new_type not in (0, number):
                raise errors.ArrayError("new_k and new_v are of different types")
            self.request.new_type = number
        self.stored = self.request.tokens

    def workspace_bytes(self):
        bytes = c.c_size_t()
        call(functions.kvjit_workspace_bytes, self.program._open(), c.byref(self.request), c.byref(bytes))
        return bytes.value

    def set_workspace(self, workspace):
        memory = arrays.check(workspace, "workspace", shape=[None], dtypes=["u8"], device=self.program.device,
                              writes=True, stream=self.request.stream or 0)
        self.keeps.append(memory)
        self.request.workspace, self.request.workspace_bytes = memory.data, memory.shape[0]

    def run(self, is_reference=False):
        report = sized(_abi.Report)
        function = functions.kvjit_reference if is_reference else functions.kvjit_attention
        call(function, self.program._open(), c.byref(self.request), c.byref(report))
        return report


def attention(cache: Cache | PagedCache, q: ArrayLike, *, out: ArrayLike | None = None, tokens: int | None = None,
              lengths: ArrayLike | None = None, table: ArrayLike | None = None, query_starts: ArrayLike | None = None,
              queries: int | None = None, scale: float | None = None, mask: ArrayLike | None = None,
              slopes: ArrayLike | None = None, sinks: ArrayLike | None = None, leaves_sinks: bool = False,
              position_offset: int = 0, position_offsets: ArrayLike | None = None,
              token_ranges: ArrayLike | None = None, packed_mask: ArrayLike | None = None, packed_tokens: int = 0,
              lse: ArrayLike | None = None, new_k: ArrayLike | None = None, new_v: ArrayLike | None = None,
              blocks: int = 0, context_chunk_bytes: int = 0, workspace: ArrayLike | None = None,
              check: ArrayLike | None = None, with_report: bool = False, is_reference: bool = False,
              stream: int = 0) -> ArrayLike:
    """Attention of queries over a cache, fused: the kernel reads the packed cache.

    Args:
        cache: a Cache or a PagedCache.
        q: [sequences, queries, query heads, head_dim] of the spec's q_type. Query head h reads KV head
            h // q_heads_per_kv. With query_starts: [rows, query heads, head_dim].
        out: receives the output, of the spec's out_type, shaped as q with head_dim_v; None: an Array is made.
        tokens: the largest number of tokens of a sequence; None: what was appended (Cache), or what the table has.
        lengths: i32 [sequences] on the device: tokens of each sequence, at most `tokens`; None: `tokens` for all.
        table: PagedCache: i32 [sequences, entries], the pages of each sequence. Entries of pages of which no query sees
            a token (by length, causal, window, token_ranges and positions, not by masks) may hold anything.
        query_starts: i32 [sequences + 1] on the device, as cu_seqlens: a ragged batch (query_length = "any").
        queries: ragged batches: the most queries of a sequence.
        scale: factor of the scores; None: 1/sqrt(head_dim).
        mask: f16 [sequences, query heads, queries, tokens], added to the scores; a size of 1 serves all.
        packed_mask, packed_tokens: u32 [sequences, query heads, queries, words]: bit t % 32 of word t / 32 says whether
            the query sees token t of the last packed_tokens tokens (0: of all).
        slopes, sinks: f32 [query heads]: slopes of ALiBi, logits of sinks.
        position_offset, position_offsets: one number for all, i32 [sequences]: as in kvjit_attention_call.
        token_ranges: i32 [sequences, 2]: the first token that is seen, and the one behind the last.
        lse: f32 [sequences, queries, query heads], written.
        leaves_sinks: another call, over another part of the context, counts the sinks.
        new_k, new_v: of specs with append: [sequences, queries, kv_heads, head_dim], which the call stores as the last
            tokens and attends to.
        blocks: the most blocks of the kernel; 0: chosen for the device.
        context_chunk_bytes: the most memory of a chunk of the context in prefill in two passes; 0: 128 MiB.
        workspace: u8 array, 16-byte aligned, whose first 32768 bytes are zero; None: the program's own for the stream.
        check: u8 [64] of zeros, for specs with target.checks; see `read_check`.
        with_report: return (out, Report).
        is_reference: the plain, slow kernel, to check the fast one against.

    Returns:
        out, or (out, Report).
    """
    ready = _Attention(cache, q, out=out, tokens=tokens, lengths=lengths, table=table, query_starts=query_starts,
                       queries=queries, scale=scale, leaves_sinks=leaves_sinks, position_offset=position_offset,
                       lse=lse, new_k=new_k, new_v=new_v, blocks=blocks, check_record=check, stream=stream, mask=mask,
                       slopes=slopes, sinks=sinks, position_offsets=position_offsets, token_ranges=token_ranges,
                       packed_mask=packed_mask, packed_tokens=packed_tokens, context_chunk_bytes=context_chunk_bytes)
    ready.set_workspace(cache.program.workspace(ready.workspace_bytes(), stream) if workspace is None else workspace)
    report = ready.run(is_reference)
    if ready.stored and isinstance(cache, Cache):
        cache.tokens = max(cache.tokens, ready.stored)
    return (ready.out, _report(report)) if with_report else ready.out


def mask_ranges(cache: Cache | PagedCache, mask: ArrayLike, *, tokens: int | None = None,
                lengths: ArrayLike | None = None, out: ArrayLike | None = None, stream: int = 0) -> ArrayLike:
    """Finds the tokens that a mask shows to any query: token_ranges for calls with that mask, i32 [sequences, 2]. For
    specs with the features mask and token_ranges. An engine whose layers share a mask asks once a step.

    Args:
        mask, tokens, lengths: as in `attention`; the mask has an entry for each sequence.
        out: receives the ranges; None: an Array is made.
    """
    program, keeps = cache.program, []  # type: tuple[Program, list[Any]]
    request = sized(_abi.AttentionCall)
    view = check(mask, "mask", shape=[None, None, None, None], dtypes=["f16"], device=program.device, stream=stream)
    request.sequences, request.kv_heads, request.stream = view.shape[0], cache.kv_heads, stream or None
    request.queries = view.shape[2] if program.is_varlen else 0
    request.tokens = cache.tokens if tokens is None and isinstance(cache, Cache) else tokens or 0
    _set_mask(request, "mask", view, "f16", request.tokens, program, request.sequences,
              cache.kv_heads * program.q_heads_per_kv, keeps, stream)
    if lengths is not None:
        request.lengths = _dense(lengths, "lengths", program, "i32", [request.sequences], keeps, stream)
    if out is None:
        out = arrays.Array(program.context, [request.sequences, 2], "i32")
    call(functions.kvjit_mask_ranges, program._open(), c.byref(request),
         _dense(out, "out", program, "i32", [request.sequences, 2], keeps, stream, writes=True))
    return out


def alibi_slopes(max_bias: float, heads: int) -> list[float]:
    """The slopes that ggml uses for ALiBi: max_bias 0 to 126, where 0 makes every slope 1; heads 1 to 65536."""
    if not 1 <= heads <= 65536:
        raise errors.UsageError(f"{heads} heads; 1 to 65536 are served")
    slopes = (c.c_float * heads)()
    call(functions.kvjit_alibi_slopes, max_bias, heads, slopes)
    return list(slopes)


def merge(program: Program, parts: Sequence[tuple[ArrayLike, ArrayLike]], *, out: ArrayLike | None = None,
          lse: ArrayLike | None = None, stream: int = 0) -> ArrayLike:
    """Merges outputs over parts of a context into the output over all of it, for specs with the feature lse.

    Args:
        parts: (out, lse) of each call; outputs [sequences, queries, query heads, head_dim_v] of the spec's out_type,
            lse f32 [sequences, queries, query heads].
        out: receives the merged output; None: an Array is made.
        lse: receives the lse over the whole context, or None.
    """
    keeps, contexts, shape = [], (_abi.MergeContext * max(len(parts), 1))(), None
    for index, (part, part_lse) in enumerate(parts):
        view = _batched(check(part, f"output {index}", dtypes=[program.out_type], device=program.device, stream=stream))
        shape = list(view.shape) if shape is None else shape
        check(view, f"output {index}", shape=shape)
        keeps.append(view)
        contexts[index].out = _rows(view)
        lse_shape = list(arrays.view(part).shape[:-1])
        contexts[index].lse = _dense(part_lse, f"lse {index}", program, "f32", lse_shape, keeps, stream)
    if shape is None:
        raise errors.UsageError("nothing to merge")
    if len(shape) != 4 or shape[2] % program.q_heads_per_kv or shape[3] != program.head_dim_v or (
            not program.is_varlen and shape[1] != program.query_length):
        queries = "queries" if program.is_varlen else program.query_length
        raise errors.ArrayError(f"outputs have shape {shape}; [sequences, {queries}, query heads, "
                                f"{program.head_dim_v}] is expected")
    given = arrays.view(parts[0][0]).shape
    if out is None:
        out = arrays.Array(program.context, given, program.out_type)
    view = _batched(check(out, "out", shape=list(given), dtypes=[program.out_type], device=program.device, writes=True,
                          stream=stream))
    keeps.append(view)
    request = sized(_abi.MergeCall)
    request.contexts, request.context_count = contexts, len(parts)
    request.sequences, request.kv_heads = shape[0], shape[2] // program.q_heads_per_kv
    request.out, request.stream = _rows(view), stream or None
    request.queries = shape[1] if program.is_varlen else 0
    if lse is not None:
        request.lse = _dense(lse, "lse", program, "f32", list(given[:-1]), keeps, stream, writes=True)
    call(functions.kvjit_merge, program._open(), c.byref(request))
    return out


def read_check(program: Program, record: ArrayLike, stream: int = 0) -> dict[str, Any] | None:
    """Waits for the stream, and says what a check record holds: None, or a dict of the members of kvjit_check."""
    found = sized(_abi.Check)
    keeps: list[Any] = []
    pointer = _dense(record, "record", program, "u8", [_abi.CHECK_BYTES], keeps)
    call(functions.kvjit_read_check, program._open(), pointer, stream or None, c.byref(found))
    if not found.array:
        return None
    return {"array": found.array.decode(), "index": found.index, "value": found.value, "least": found.least,
            "most": found.most, "count": found.count}
