"""Arrays of other libraries, as kvjit sees them, and arrays of kvjit's own.

`view` takes tensors of PyTorch, and whatever has `__dlpack__`, `__cuda_array_interface__` or `__array_interface__`:
arrays of CuPy, JAX, Numba and NumPy. Nothing is copied. Work is queued on the caller's stream, so the memory must stay
as it is until that work has ended, as for kernels of the array's own library.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _abi, errors
from .library import Closable, Handle, call, functions

if TYPE_CHECKING:
    import numpy

    from .context import Context

ArrayLike = Any  # a tensor of PyTorch, or what has __dlpack__, __cuda_array_interface__ or __array_interface__
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "i64": 8, "u32": 4, "u8": 1}
NUMBERS = {"f16": _abi.F16, "bf16": _abi.BF16, "f32": _abi.F32}  # KVJIT_F16 ...
SLOTS = {"i64": _abi.INT64, "i32": _abi.INT32}
_TYPESTRS = {"f16": "<f2", "f32": "<f4", "i32": "<i4", "i64": "<i8", "u32": "<u4", "u8": "|u1"}


class View:
    """Where an array lies: a pointer, sizes, strides in elements, a type of BYTES, "cpu" or "cuda:0"."""

    __slots__ = ("data", "shape", "strides", "dtype", "device", "owner", "is_writable")

    def __init__(self, data, shape, strides, dtype, device, owner, is_writable=True):
        self.data, self.shape, self.strides, self.dtype, self.device = data, shape, strides, dtype, device
        self.owner, self.is_writable = owner, is_writable

    def __repr__(self):
        return f"{self.dtype}{list(self.shape)} on {self.device}"


def dense_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


# ---- Others' arrays ----


class _DLTensor(c.Structure):
    """DLTensor of dlpack.h, which stands first in a DLManagedTensor."""
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("dims", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged
_DL_TYPES = {(2, 16): "f16", (4, 16): "bf16", (2, 32): "f32", (0, 32): "i32", (0, 64): "i64", (1, 32): "u32",
             (1, 8): "u8"}  # (code, bits)
_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
_LEGACY_STREAM = 1  # how DLPack calls CUDA's default stream


def _torch_view(torch, x):
    names = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.int32: "i32",
             torch.int64: "i64", torch.uint32: "u32", torch.uint8: "u8", torch.bool: "u8"}
    if x.layout != torch.strided or x.is_conj() or x.is_neg():
        raise errors.ArrayError("a tensor that is not dense memory: sparse, conjugated or negated lazily")
    if x.dtype not in names:
        raise errors.ArrayError(f"a tensor of {x.dtype}; {', '.join(BYTES)} are read")
    device = str(x.device) if x.device.index is not None or x.device.type == "cpu" else f"{x.device.type}:0"
    return View(x.data_ptr(), tuple(x.shape), x.stride(), names[x.dtype], device, x)


def _dlpack_view(x, stream):
    kind, number = x.__dlpack_device__()
    if int(kind) not in _DL_DEVICES:
        raise errors.ArrayError(f"an array on a device of DLPack type {int(kind)}; CPUs and CUDA GPUs are served")
    device = _DL_DEVICES[int(kind)]
    capsule = x.__dlpack__(stream=stream or _LEGACY_STREAM) if device == "cuda" else x.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    dtype = _DL_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if not dtype:
        raise errors.ArrayError(f"an array of DLPack type {tensor.code} with {tensor.bits} bits; "
                                f"{', '.join(BYTES)} are read")
    shape = tuple(tensor.shape[i] for i in range(tensor.dims))
    strides = tuple(tensor.strides[i] for i in range(tensor.dims)) if tensor.strides else dense_strides(shape)
    data = (tensor.data or 0) + tensor.byte_offset
    return View(data, shape, strides, dtype, f"cuda:{number}" if device == "cuda" else "cpu", capsule)


def _interface_view(interface, device, owner):
    dtype = next((name for name, text in _TYPESTRS.items() if text == interface["typestr"]), None)
    if not dtype:
        raise errors.ArrayError(f"an array of {interface['typestr']}; {', '.join(BYTES)} are read")
    place = interface.get("data")
    if not isinstance(place, tuple):
        raise errors.ArrayError("an array interface whose data is no address")
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is not None and any(stride % BYTES[dtype] for stride in strides):
        raise errors.ArrayError("strides that are no whole elements")
    strides = tuple(stride // BYTES[dtype] for stride in strides) if strides is not None else dense_strides(shape)
    return View(place[0], shape, strides, dtype, device, owner, is_writable=not place[1])


def _pointer_device(data):
    """The GPU of a pointer, which `__cuda_array_interface__` does not say."""
    ordinal = c.c_int()
    cuda = c.CDLL("libcuda.so.1")
    # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL is 9.
    if data and cuda.cuPointerGetAttribute(c.byref(ordinal), 9, c.c_uint64(data)) == 0:
        return f"cuda:{ordinal.value}"
    return "cuda:0"


def _wait_for(theirs, ours):
    """Waits for the work on the stream that an array interface names, unless it is the stream of the call. 1 is the
    legacy default stream, 2 that of the thread: the driver has the same numbers."""
    if theirs is not None and theirs != (ours or _LEGACY_STREAM):
        c.CDLL("libcuda.so.1").cuStreamSynchronize(c.c_void_p(theirs))


def view(x, stream=0):
    """The View of an array of any library. Raises ArrayError for what is no array, or of another type or device."""
    if isinstance(x, View):
        return x
    if isinstance(x, Array):
        return x.view()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _torch_view(torch, x)
    refusal = None
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        try:
            return _dlpack_view(x, stream)
        except (BufferError, RuntimeError) as problem:  # NumPy refuses arrays that are read only
            if isinstance(problem, errors.Error):
                raise
            refusal = problem
    for name, device in (("__cuda_array_interface__", "cuda"), ("__array_interface__", "cpu")):
        try:
            interface = getattr(x, name)
        except (AttributeError, RuntimeError):
            continue
        found = _interface_view(interface, device, x)
        if device == "cuda":
            found.device = _pointer_device(found.data)
            _wait_for(interface.get("stream"), stream)
        return found
    raise errors.ArrayError(f"{type(x).__name__} is no array that kvjit reads: it has no __dlpack__, no "
                            f"__cuda_array_interface__ and no __array_interface__" +
                            (f"; {refusal}" if refusal else ""))


def check(x, what, *, shape=None, dtypes=None, device=None, writes=False, stream=0):
    """A view whose shape, type and device are right, and whose last dimension is dense. `what` names it in messages.

    Args:
        shape: sizes, or None where any size is right; None: any shape.
        writes: the call writes the array.
    """
    found = view(x, stream)
    if writes and not found.is_writable:
        raise errors.ArrayError(f"{what} is written, and this array is read only")
    if dtypes is not None and found.dtype not in dtypes:
        raise errors.ArrayError(f"{what} is {found.dtype}; {' or '.join(dtypes)} is served")
    if device is not None and found.device != device:
        raise errors.ArrayError(f"{what} is on {found.device}, the program on {device}")
    if shape is not None:
        fits = len(found.shape) == len(shape) and all(want in (None, has) for want, has in zip(shape, found.shape))
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise errors.ArrayError(f"{what} has shape {list(found.shape)}; [{wanted}] is expected")
    if found.shape and found.shape[-1] > 1 and found.strides[-1] != 1:
        raise errors.ArrayError(f"{what}: elements of the last dimension lie {found.strides[-1]} apart; they must be "
                                "dense")
    return found


# ---- kvjit's arrays ----


class _Memory(Handle):
    """Device memory of a context."""

    __slots__ = ()

    def __init__(self, context, bytes):
        handle = context._open()
        super().__init__(lambda *rest: functions.kvjit_allocate(handle.value, bytes, *rest),
                         lambda pointer: functions.kvjit_release(handle.value, pointer), keeps=(handle,))


class Array(Closable):
    """A dense array in memory of kvjit's own: outputs, if the caller gives none, caches and workspaces.

    Other libraries take it without a copy: `torch.as_tensor(array, device="cuda")`, `cupy.asarray(array)`,
    `numpy.asarray(array)` on the CPU back-end. The memory lives as long as the array.
    """

    def __init__(self, context: Context, shape: Sequence[int], dtype: str):
        if dtype not in BYTES:
            raise errors.ArrayError(f"{dtype!r} is no type; the types are {', '.join(BYTES)}")
        self.context, self.shape, self.dtype = context, tuple(int(size) for size in shape), dtype
        if any(size < 0 for size in self.shape):
            raise errors.ArrayError(f"a shape with a negative size: {list(self.shape)}")
        self._owned = _Memory(context, self.nbytes)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * BYTES[self.dtype]

    @property
    def device(self) -> str:
        return self.context.device

    @property
    def data(self) -> int:
        """The address."""
        return self._open().value

    def view(self):
        memory = self._open()  # the View holds it, so that a call under way does, too
        return View(memory.value, self.shape, dense_strides(self.shape), self.dtype, self.device, memory)

    def _interface(self, wants_gpu):
        if (self.device != "cpu") != wants_gpu:
            raise AttributeError("this memory is on " + self.device)
        if self.dtype not in _TYPESTRS:
            raise AttributeError(f"array interfaces have no {self.dtype}")
        return {"shape": self.shape, "typestr": _TYPESTRS[self.dtype], "data": (self.data, False), "version": 3}

    @property
    def __cuda_array_interface__(self):
        return self._interface(True)

    @property
    def __array_interface__(self):
        return self._interface(False)

    def fill(self, content: bytes) -> Array:
        """Copies `content`, bytes of the whole array, to the device, and waits for it."""
        content = bytes(content)
        if len(content) != self.nbytes:
            raise errors.ArrayError(f"{len(content)} bytes for an array of {self.nbytes}")
        call(functions.kvjit_copy_to_device, self.context._open(), self._open(), content, self.nbytes)
        return self

    def tobytes(self) -> bytes:
        """Waits for the default stream, and copies the array to the host."""
        content = c.create_string_buffer(max(self.nbytes, 1))
        handle = self.context._open()
        memory = self._open()
        call(functions.kvjit_synchronize, handle, None)
        call(functions.kvjit_copy_to_host, handle, content, memory, self.nbytes)
        return content.raw[:self.nbytes]

    def numpy(self) -> numpy.ndarray:
        """A copy as numpy.ndarray. NumPy has no bfloat16, so those become float32."""
        import numpy
        if self.dtype != "bf16":
            return numpy.frombuffer(self.tobytes(), _TYPESTRS[self.dtype]).reshape(self.shape).copy()
        halves = numpy.frombuffer(self.tobytes(), "<u2").astype("<u4") << 16
        return halves.view("<f4").reshape(self.shape)

    def __repr__(self):
        return f"<kvjit.Array {self.dtype}{list(self.shape)} on {self.device}>"
