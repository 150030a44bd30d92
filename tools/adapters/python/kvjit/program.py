"""Programs: the kernels of one spec on one device.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import dataclasses
import pathlib
import threading
from typing import Any

from . import _abi, arrays, context as contexts, errors
from .library import Closable, Handle, call, functions, sized
from .spec import Spec

_TYPES = {number: name for name, number in arrays.NUMBERS.items()}
SIDES = {"k": _abi.K, "v": _abi.V}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A loaded kernel. `origin` is "memory", "disk", "compiled", "bundle", "callback" or "remote"."""
    name: str
    role: str
    key: str
    origin: str
    registers: int
    stack_bytes: int
    spill_bytes: int
    threads: int
    shared_bytes: int
    code_bytes: int
    ready_ms: float
    compile_ms: float


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of the cache: its format, and the bytes of one (token, KV head). Layout rows has `row_bytes`; layout
    planar has `code_row_bytes` and `scale_row_bytes`. `has_head_scales`: a cache needs a scale for each KV head."""
    format: str
    is_rotated: bool
    bits_per_value: float
    row_bytes: int
    code_row_bytes: int
    scale_row_bytes: int
    has_head_scales: bool


class Program(Closable):
    """The kernels of one spec, loaded: from memory, from a bundle, from the cache folder, or compiled, which takes
    fractions of a second.

    Args:
        spec: a Spec, or what its constructor takes.
        device: "cuda:0" ..., "cpu", or None: a GPU if there is one, else the CPU back-end.
        context: a Context, instead of the default one of the device.
        arch: "sm_90a" ...; None: the device's own.

    Attributes:
        id, title, arch, features: texts of kvjit_program_info.
        head_dim, head_dim_v, q_heads_per_kv, query_length, page_tokens, token_heads, tile_tokens: its numbers.
        is_planar, is_causal, is_varlen, appends, checks: its facts, as bool.
        q_type, out_type: "f16", "bf16" or "f32".
        k, v: the sides of the cache.
        device: "cuda:0" or "cpu".

    Raises:
        kvjit.BadInputError, kvjit.UnsupportedError: the spec; with the line, and what would be possible.
        kvjit.CompileError, kvjit.UnavailableError: the compiler, or the device.
    """

    id: str
    title: str
    arch: str
    features: str
    head_dim: int
    head_dim_v: int
    q_heads_per_kv: int
    query_length: int
    page_tokens: int
    token_heads: int
    tile_tokens: int
    is_planar: bool
    is_causal: bool
    is_varlen: bool
    appends: bool
    checks: bool
    q_type: str
    out_type: str
    k: Side
    v: Side

    def __init__(self, spec: Spec | str | pathlib.Path | dict[str, Any], device: Any = None, *,
                 context: contexts.Context | None = None, arch: str | None = None):
        if context is not None and device is not None:
            raise errors.UsageError("a program takes a device or a context, not both")
        self.spec = spec if isinstance(spec, Spec) else Spec(spec)
        self.context = context if context is not None else contexts.default(device)
        self.device = self.context.device
        owner = self.context._open()
        handle = self._owned = Handle(functions.kvjit_program_create, functions.kvjit_program_destroy, owner,
                                      self.spec.toml.encode(), self.spec.name.encode(),
                                      arch.encode() if arch else None, keeps=(owner,))
        info = sized(_abi.ProgramInfo)
        call(functions.kvjit_program_describe, handle, c.byref(info))
        for name, value in contexts.struct_dict(info).items():
            if name.startswith("is_") or name in ("appends", "checks"):
                value = bool(value)
            setattr(self, name, _TYPES[value] if name in ("q_type", "out_type") else value)
        self.k, self.v = (self._side(number) for number in SIDES.values())
        self._workspaces: dict[int, arrays.Array] = {}
        self._layouts: dict[tuple, tuple] = {}  # of caches, by their sizes and addresses
        self._lock = threading.Lock()

    def _side(self, number):
        info = sized(_abi.SideInfo)
        call(functions.kvjit_program_side, self._open(), number, c.byref(info))
        members = contexts.struct_dict(info)
        return Side(**(members | {name: bool(members[name]) for name in ("is_rotated", "has_head_scales")}))

    @property
    def is_paged(self) -> bool:
        return self.page_tokens > 0

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that are loaded, a Kernel each. Those of attention are loaded from the start."""
        handle, count, found = self._open(), c.c_int(), []
        call(functions.kvjit_program_kernel_count, handle, c.byref(count))
        for index in range(count.value):
            info = sized(_abi.KernelInfo)
            call(functions.kvjit_program_kernel, handle, index, c.byref(info))
            found.append(Kernel(**contexts.struct_dict(info)))
        return found

    def workspace(self, bytes: int, stream: int = 0) -> arrays.Array:
        """Memory of at least `bytes` for calls on one stream, whose counters are zero. It is kept for later calls and
        grows. A CUDA graph needs a workspace of the caller's own, which does not move."""
        with self._lock:
            found = self._workspaces.get(stream)
            if found is None or found.nbytes < bytes or found.is_closed:
                found = make_workspace(self.context, bytes)
                self._workspaces[stream] = found
            return found

    def close(self):
        self._workspaces.clear()
        super().close()

    def __repr__(self):
        return f"<kvjit.Program {self.id} on {self.device}>" if not self.is_closed else "<kvjit.Program, closed>"


def make_workspace(context: contexts.Context, bytes: int) -> arrays.Array:
    """An Array of at least `bytes` whose first KVJIT_COUNTER_BYTES are zero."""
    made = arrays.Array(context, [max(bytes, _abi.COUNTER_BYTES)], "u8")
    zeros = b"\0" * _abi.COUNTER_BYTES
    call(functions.kvjit_copy_to_device, context._open(), made.data, zeros, len(zeros))
    return made
