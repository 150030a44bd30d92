"""libkvjit.so: where it is, its functions, and statuses as exceptions.

The wheel has the library beside this file. KVJIT_LIBRARY names another one. ctypes releases the interpreter's lock
during each call, so threads may call at the same time.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import os
import pathlib
import threading

from . import _abi, errors

PACKAGED = pathlib.Path(__file__).parent / "libkvjit.so"


def _open():
    path = os.environ.get("KVJIT_LIBRARY") or str(PACKAGED)
    try:
        library = c.CDLL(path)
    except OSError as problem:
        raise ImportError(f"kvjit: {path} cannot be loaded: {problem}") from None
    for name, (result, parameters) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"kvjit: {path} has no {name}; it is older than this package") from None
        function.restype, function.argtypes = result, parameters
    return path, library


path, functions = _open()


class _Thread(threading.local):
    """The kvjit_error of a thread."""

    def __init__(self):
        self.error = sized(_abi.Error)
        self.reference = c.byref(self.error)


def sized(struct):
    """A struct of zeros whose member `size` is set, as the library requires."""
    value = struct()
    value.size = c.sizeof(struct)
    return value


_thread = _Thread()


def raise_error(status):
    """Raises what the last call of this thread left in its kvjit_error."""
    error = _thread.error
    text = {name: getattr(error, name).decode() for name in ("message", "notes", "file")}
    notes = [line for line in text["notes"].split("\n") if line]
    raise errors.BY_STATUS.get(status, errors.InternalError)(
        text["message"], notes, text["file"], error.line, error.column)


def call(function, *arguments):
    """Calls a function whose last parameter is a kvjit_error."""
    status = function(*arguments, _thread.reference)
    if status:
        raise_error(status)


def version():
    """The version of the library that is loaded: "0.1.0"."""
    number = functions.kvjit_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


forks = 0  # how often this process was forked from one that had loaded the library


def _count_fork():
    global forks
    forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Handle:
    """Owns one handle of the library. It is destroyed when nobody uses it any more, so a call that another thread has
    under way keeps it alive. A forked child destroys nothing: the handle is its parent's."""

    __slots__ = ("value", "_destroy", "_forks", "_keeps", "__weakref__")

    def __init__(self, create, destroy, *arguments, keeps=()):
        self._destroy, self._forks, self._keeps, self.value = destroy, forks, keeps, None
        place = c.c_void_p()
        call(create, *arguments, c.byref(place))
        self.value = place.value

    def is_foreign(self):
        return self._forks != forks

    def __del__(self):
        if self.value is not None and not self.is_foreign():
            self._destroy(self.value)


class Closable:
    """What owns a handle, or memory: `close`, `with`, and errors that say that it was closed."""

    _owned: Handle | None = None  # None once closed

    def _open(self):
        """The handle, for one call."""
        owned = self._owned
        if owned is None:
            raise errors.ClosedError(f"this {type(self).__name__} was closed")
        if owned.is_foreign():
            raise errors.ForkedError(
                f"this {type(self).__name__} was made before the process was forked",
                ["make contexts behind the fork, or start processes by `spawn`"])
        return owned

    @property
    def is_closed(self):
        return self._owned is None

    def close(self):
        """Gives up the handle. Calls under way in other threads end first. A second call does nothing."""
        self._owned = None

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *_):
        self.close()
