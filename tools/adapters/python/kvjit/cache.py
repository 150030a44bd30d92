"""Caches of K and V in device memory.

`Cache` has room for a number of tokens of each sequence. `PagedCache` is a pool of pages, which block tables give to
sequences. Both allocate their memory, or lay themselves out in memory that the caller brings.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c

from . import _abi, arrays, errors
from .library import Closable, call, functions
from .arrays import ArrayLike
from .program import SIDES, Program

_MOST_LAYOUTS = 4096


def _layout(program, side, sequences, heads, capacity, base):
    """(kvjit_side, bytes) of kvjit_cache_layout. The program keeps them: operators of torch ask in each call."""
    key = side, sequences, heads, capacity, base
    kept = program._layouts.get(key)
    if kept is None:
        found, bytes = _abi.Side(), c.c_size_t()
        call(functions.kvjit_cache_layout, program._open(), SIDES[side], sequences, heads, capacity, base,
             c.byref(found), c.byref(bytes))
        if len(program._layouts) >= _MOST_LAYOUTS:
            program._layouts.clear()
        kept = program._layouts[key] = found, bytes.value
    return kept


class _Base(Closable):
    """What both caches share: the memory, and K and V as the library takes them."""

    def __init__(self, program, sequences, kv_heads, capacity, memory, scales, head_scales):
        if min(sequences, kv_heads, capacity) < 1:
            raise errors.ArrayError("sequences, KV heads and tokens of a cache are at least 1 each")
        if program.token_heads and program.token_heads != kv_heads:
            raise errors.ArrayError(f"the spec has cache.token_heads = {program.token_heads}, the cache {kv_heads} KV "
                                    "heads")
        self.program, self.kv_heads, self.capacity = program, kv_heads, capacity
        self.k_tensor_scale, self.v_tensor_scale = scales
        sizes = [_layout(program, side, sequences, kv_heads, capacity, None)[1] for side in SIDES]
        if memory is None:
            memory = [arrays.Array(program.context, [size], "u8") for size in sizes]
        self._memory = []
        self._sides = {}
        for side, given, size in zip(SIDES, memory, sizes):
            view = arrays.check(given, f"the memory of {side}", dtypes=["u8"], device=program.device, shape=[None],
                                writes=True)
            if view.shape[0] < size:
                raise errors.ArrayError(f"the memory of {side} has {view.shape[0]} bytes; {size} are needed")
            if view.shape[0] > 1 and view.strides[0] != 1:
                raise errors.ArrayError(f"the memory of {side} is not dense")
            self._memory.append(view)
            self._sides[side] = _layout(program, side, sequences, kv_heads, capacity, view.data)[0]
        self._take_head_scales(head_scales)
        self.nbytes = sum(sizes)
        self._owned = program._open()

    def _take_head_scales(self, head_scales):
        """Makes the sides point at the scales of KV heads, where formats have them."""
        for side, given in zip(SIDES, head_scales):
            name = f"{side}_head_scales"
            if not getattr(self.program, side).has_head_scales:
                if given is not None:
                    raise errors.UsageError(f"{name} for a format that has no scale for each KV head")
                continue
            if given is None:
                raise errors.UsageError(f"{name} is missing: the format has a scale for each KV head")
            view = arrays.check(given, name, shape=[None], dtypes=["f32"], device=self.program.device)
            if view.shape[0] not in (1, self.kv_heads):
                raise errors.ArrayError(f"{name} has {view.shape[0]} scales; 1 or {self.kv_heads} are possible")
            own = _abi.Side.from_buffer_copy(self._sides[side])
            own.scales, own.scales_sequence_stride, own.scales_token_stride = view.data, 0, 0
            own.scales_head_stride = 4 * view.strides[0] if view.shape[0] > 1 else 0
            self._memory.append(view)
            self._sides[side] = own

    @staticmethod
    def _sizes(program, sequences, kv_heads, capacity):
        return tuple(_layout(program, side, sequences, kv_heads, capacity, None)[1] for side in SIDES)

    def side(self, name):
        """kvjit_side of "k" or "v"."""
        self._open()
        self.program._open()
        return self._sides[name]

    def memory(self):
        """What a call holds while it is under way."""
        return tuple(self._memory)

    def tensor_scale(self, side):
        return self.k_tensor_scale if side == "k" else self.v_tensor_scale

    def close(self):
        """Frees the memory that the cache allocated, behind the work that uses it."""
        super().close()
        self._memory = []


class Cache(_Base):
    """K and V of some sequences, each of up to `capacity` tokens.

    Args:
        program: a Program of layout planar or rows.
        sequences, kv_heads, capacity: sizes; capacity counts tokens of a sequence.
        memory: two arrays of bytes, for K and for V, at least `Cache.sizes(...)` long; None: allocated.
        k_tensor_scale, v_tensor_scale: of formats with one scale for the whole tensor (fp8): value = number * scale.
        k_head_scales, v_head_scales: of formats with a scale for each KV head (vllm_fp8_per_head): float32 [kv_heads],
            or [1] for all heads, on the program's device. Calls read what they hold then.

    Attributes:
        tokens: how many tokens of each sequence `append` has stored. It may be set, e.g. to 0 to start again.
        nbytes: the memory, bytes.
    """

    def __init__(self, program: Program, *, sequences: int = 1, kv_heads: int, capacity: int,
                 memory: tuple[ArrayLike, ArrayLike] | None = None, k_tensor_scale: float = 1.0,
                 v_tensor_scale: float = 1.0, k_head_scales: ArrayLike | None = None,
                 v_head_scales: ArrayLike | None = None):
        if program.is_paged:
            raise errors.UsageError("the program has layout paged; PagedCache is its cache")
        super().__init__(program, sequences, kv_heads, capacity, memory, (k_tensor_scale, v_tensor_scale),
                         (k_head_scales, v_head_scales))
        self.sequences, self.tokens = sequences, 0

    @staticmethod
    def sizes(program: Program, *, sequences: int = 1, kv_heads: int, capacity: int) -> tuple[int, int]:
        """Bytes of the memory of K and of V."""
        return _Base._sizes(program, sequences, kv_heads, capacity)


class PagedCache(_Base):
    """A pool of pages for K and V. Page p has the slots p * page_tokens to (p + 1) * page_tokens - 1.

    Args:
        program: a Program of layout paged.
        pages, kv_heads: sizes; a page holds `program.page_tokens` tokens of all heads.
        memory: two arrays of bytes, for K and for V; None: allocated.
    """

    def __init__(self, program: Program, *, pages: int, kv_heads: int,
                 memory: tuple[ArrayLike, ArrayLike] | None = None, k_tensor_scale: float = 1.0,
                 v_tensor_scale: float = 1.0, k_head_scales: ArrayLike | None = None,
                 v_head_scales: ArrayLike | None = None):
        if not program.is_paged:
            raise errors.UsageError("the program's layout is not paged; Cache is its cache")
        super().__init__(program, 1, kv_heads, pages * program.page_tokens, memory, (k_tensor_scale, v_tensor_scale),
                         (k_head_scales, v_head_scales))
        self.pages = pages

    @staticmethod
    def sizes(program: Program, *, pages: int, kv_heads: int) -> tuple[int, int]:
        """Bytes of the memory of K and of V."""
        return _Base._sizes(program, 1, kv_heads, pages * program.page_tokens)

    @classmethod
    def over(cls, program: Program, k: ArrayLike, v: ArrayLike, *, k_tensor_scale: float = 1.0,
             v_tensor_scale: float = 1.0, k_head_scales: ArrayLike | None = None,
             v_head_scales: ArrayLike | None = None) -> PagedCache:
        """A cache over pages that an engine lays out, for page_layout = "rows".

        Args:
            k, v: bytes [pages, page_tokens, kv_heads, bytes of a row], with any strides but that of the last dimension.
                Both may be parts of one slot: K's bytes and V's bytes of a token behind each other.
        """
        if not program.is_paged or program.is_planar:
            raise errors.UsageError('PagedCache.over is for layout = "paged" with page_layout = "rows"')
        made = cls.__new__(cls)
        made.program, made._owned, made._memory, made._sides = program, program._open(), [], {}
        made.k_tensor_scale, made.v_tensor_scale = k_tensor_scale, v_tensor_scale
        for side, x in (("k", k), ("v", v)):
            row = getattr(program, side).row_bytes
            view = arrays.check(x, side, shape=[None, program.page_tokens, None, row], dtypes=["u8"],
                                device=program.device, writes=True)
            made._memory.append(view)
            page, token, head = view.strides[:3]
            made._sides[side] = _abi.Side(codes=view.data, codes_sequence_stride=page, codes_token_stride=token,
                                          codes_head_stride=head)
        if made._memory[0].shape[:3] != made._memory[1].shape[:3]:
            raise errors.ArrayError(f"pages of K are {list(made._memory[0].shape)}, those of V "
                                    f"{list(made._memory[1].shape)}")
        made.pages, _, made.kv_heads, _ = made._memory[0].shape
        made._take_head_scales((k_head_scales, v_head_scales))
        made.capacity, made.nbytes = made.pages * program.page_tokens, 0  # the memory is the engine's
        return made
