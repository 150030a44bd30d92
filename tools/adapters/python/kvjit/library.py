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


_uses = threading.RLock()  # a finalizer may run in a thread that holds it


class Handle:
    """Owns one handle of the library. It is destroyed when nobody uses it any more: a call under way holds it, and so
    do the handles that were made from it. Python finalizes the objects of a cycle in any order, so users are counted.
    A forked child destroys nothing: the handle is its parent's.

    ctypes takes a Handle as a parameter."""

    __slots__ = ("value", "_as_parameter_", "_destroy", "_forks", "_parents", "_keeps", "_users", "__weakref__")

    def __init__(self, create, destroy, *arguments, keeps=()):
        self._destroy, self._forks, self._keeps, self.value, self._users = destroy, forks, keeps, None, 1
        self._parents = [keep for keep in keeps if isinstance(keep, Handle)]
        with _uses:
            for parent in self._parents:
                parent._users += 1
        place = c.c_void_p()
        call(create, *arguments, c.byref(place))
        self.value = self._as_parameter_ = place.value or 0

    def is_foreign(self):
        return self._forks != forks

    def _leave(self):
        with _uses:
            self._users -= 1
            if self._users:
                return
        if self.value and not self.is_foreign():
            self._destroy(self.value)
        for parent in self._parents:
            parent._leave()

    def __del__(self):
        self._leave()

    def __deepcopy__(self, memo):
        return self


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

    def __deepcopy__(self, memo):
        return self  # a handle of the library is no value
