"""Contexts: one device each, with its compiler and its store of kernels.

Most programs never make one: `Program(spec, device="cuda:0")` uses the default context of its device, which lives until
the process ends.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import dataclasses
import functools
import importlib.util
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import _abi, arrays, errors
from .library import Closable, Handle, call, functions, sized

BUNDLES = pathlib.Path(__file__).parent / "bundles"


def struct_dict(value):
    """The members of a struct of the library, without its size; texts are decoded."""
    members = {name: getattr(value, name) for name, *_ in value._fields_ if name != "size"}
    return {name: member.decode() if isinstance(member, bytes) else member for name, member in members.items()}


@dataclasses.dataclass(frozen=True)
class Device:
    """A device: `memory_bytes` is 0 and `driver_version` is 0 on the CPU back-end; 13000 is driver 13.0. `arch` is that
    of the kernels, `own_arch` that of the GPU, "" on the CPU back-end; they differ with `as_ptx`."""
    name: str
    arch: str
    is_gpu: bool
    multiprocessors: int
    driver_version: int
    memory_bytes: int
    own_arch: str
    runs_ptx: bool


def packaged_nvrtc():
    """Files of NVRTC in the packages of this Python, newest first: those that torch or nvidia-cuda-nvrtc brought."""
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found else ()
    files = [file for folder in folders for file in pathlib.Path(folder).glob("*/lib/libnvrtc.so.*")]
    files = [file for file in files if file.name.count(".") == 2 and file.name.rpartition(".")[2].isdecimal()]
    return [str(file) for file in sorted(files, key=lambda file: int(file.name.rpartition(".")[2]), reverse=True)]


@functools.cache
def _open_nvrtc():
    """Opens the packages' NVRTC. The library looks for NVRTC by its names, and finds what the process has open, whether
    or not the environment of this Python is active."""
    if not any(os.environ.get(name) for name in ("KVJIT_NVRTC", "KVJIT_CUDA")):
        for file in packaged_nvrtc()[:1]:
            try:
                c.CDLL(file)
            except OSError:
                pass  # the library says what it finds, and what not


def _strings(values):
    return (c.c_char_p * len(values))(*(str(value).encode() for value in values)) if values else None


class Context(Closable):
    """A device with its kernels.

    Args:
        device: "cuda:0" ..., "cpu" for the CPU back-end, or None: a GPU if there is one, else the CPU back-end. The
            CPU back-end is slow and meant for tests.
        cache_dir: the folder of compiled kernels; "off": memory only; None: the user's cache folder.
        bundles: files of `kvjit pack`, searched before the folder. Those of the wheel are added.
        specs_dirs: folders with formats, hooks and tuning of the caller's.
        trusted_keys: public keys of 64 hex digits; then every bundle must be signed by one of them.
        log: a function that gets warnings and progress, a str each, from any thread.
        arch: the arch that kernels are for, instead of the specs' and the device's: "sm_80".
        as_ptx: kernels for `arch` are compiled to PTX, which the driver compiles: the text for an older GPU runs on a
            newer one.

    Raises:
        kvjit.UnavailableError: no such device.
        kvjit.UnsupportedError: the device does not run `arch`.
    """

    def __init__(self, device: Any = None, *, cache_dir: str | pathlib.Path | None = None,
                 bundles: Iterable[str | pathlib.Path] = (), specs_dirs: Iterable[str | pathlib.Path] = (),
                 trusted_keys: Iterable[str] = (), log: Callable[[str], None] | None = None,
                 arch: str | None = None, as_ptx: bool = False):
        kind, ordinal = parse_device(device)
        if kind != _abi.DEVICE_CPU:
            _open_nvrtc()
        options = sized(_abi.ContextOptions)
        options.device, options.ordinal = kind, ordinal
        options.cache_dir = str(cache_dir).encode() if cache_dir is not None else None
        options.arch, options.as_ptx = arch.encode() if arch is not None else None, as_ptx
        bundles, trusted_keys = list(bundles), list(trusted_keys)
        packaged = [] if trusted_keys else sorted(BUNDLES.glob("*.kvb"))
        keeps = []
        for name, values in (("bundles", [*bundles, *packaged]), ("specs_dirs", list(specs_dirs)),
                             ("trusted_keys", trusted_keys)):
            strings = _strings(values)
            keeps.append(strings)
            setattr(options, name, c.cast(strings, c.c_void_p))
            count = {"bundles": "bundle_count", "specs_dirs": "specs_dir_count", "trusted_keys": "trusted_key_count"}
            setattr(options, count[name], len(values))
        if log is not None:
            options.log = type(options.log)(lambda user, message: log(message.decode(errors="replace")))
            keeps.append(options.log)
        handle = self._owned = Handle(functions.kvjit_context_create, functions.kvjit_context_destroy,
                                      c.byref(options), keeps=tuple(keeps))
        info = sized(_abi.DeviceInfo)
        call(functions.kvjit_context_device, handle, c.byref(info))
        members = struct_dict(info)
        self.info = Device(**(members | {name: bool(members[name]) for name in ("is_gpu", "runs_ptx")}))
        self.device = f"cuda:{ordinal}" if self.info.is_gpu else "cpu"
        if self.info.is_gpu and ordinal == 0:
            # The library takes GPU 0 for "no matter which", and then the variable's.
            chosen = os.environ.get("KVJIT_DEVICE_ORDINAL") or "0"
            self.device = f"cuda:{int(chosen)}"
            if int(chosen) != 0 and ":" in str(device or ""):
                self.close()
                raise errors.UsageError(f"{device} is asked for, and KVJIT_DEVICE_ORDINAL says {chosen}")

    def seal(self) -> None:
        """Forbids compiling from now on: a call that needs a kernel which no store has raises SealedError."""
        call(functions.kvjit_seal, self._open())

    def stats(self) -> dict[str, int]:
        """Where kernels came from: a dict of the members of kvjit_stats."""
        stats = sized(_abi.Stats)
        call(functions.kvjit_context_stats, self._open(), c.byref(stats))
        return struct_dict(stats)

    def synchronize(self, stream: int = 0) -> None:
        """Waits until all work on a stream has ended; 0 is the default stream."""
        call(functions.kvjit_synchronize, self._open(), stream or None)

    def empty(self, shape: Sequence[int], dtype: str) -> arrays.Array:
        """An Array whose numbers may be anything."""
        return arrays.Array(self, shape, dtype)

    def __repr__(self):
        return f"<kvjit.Context {self.device}: {self.info.name}>"


def parse_device(device):
    """The number of kvjit.h and the ordinal: of None, "cpu", "cuda", "cuda:1", or a torch.device."""
    text = str(device) if device is not None else ""
    if text == "":
        return _abi.DEVICE_AUTOMATIC, 0
    if text == "cpu":
        return _abi.DEVICE_CPU, 0
    kind, _, number = text.partition(":")
    if kind != "cuda" or number and not number.isdecimal():
        raise errors.UsageError(f'{text!r} is no device; "cuda", "cuda:1" and "cpu" are')
    return _abi.DEVICE_GPU, int(number or 0)


_defaults: dict[tuple[int, int], Context] = {}
_lock = threading.Lock()


def default(device: Any = None) -> Context:
    """The default context of a device, made at the first question."""
    key = parse_device(device)
    with _lock:
        found = _defaults.get(key)
        if found is None or found._owned is None or found._owned.is_foreign():
            found = _defaults[key] = Context(device)
        return found
