"""Exceptions. Each carries the library's message, its notes and the place in the spec.

A status of kvjit.h is a class here. `kvjit.Error` is the base of all of them.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

from collections.abc import Iterable

from . import _abi


class Error(RuntimeError):
    """A failure of the library.

    Attributes:
        message: one sentence: what is wrong, and what would be possible.
        notes: alternatives, refused candidates or messages of a compiler, one string each.
        file, line, column: the place in the spec; line and column count from 1, and 0 means unknown.
    """

    def __init__(self, message: str, notes: Iterable[str] = (), file: str = "", line: int = 0, column: int = 0):
        self.message, self.notes = message, list(notes)
        self.file, self.line, self.column = file, line, column
        place = f"{file}:{line}:{column}: " if line else ""
        super().__init__("\n  ".join([place + message, *self.notes]))


class InternalError(Error):
    """A bug of the library."""


class UsageError(Error, ValueError):
    """A call that makes no sense."""


class BadInputError(Error, ValueError):
    """A broken spec, or sizes, strides or alignments that no kernel could take."""


class UnsupportedError(Error):
    """The request is valid, but no kernel serves it. The notes name alternatives."""


class CompileError(Error):
    """The kernel compiler refused the text. The notes hold its messages."""


class DiffersError(Error):
    """Results are outside the promised error."""


class UnavailableError(Error):
    """Something is missing: a GPU, NVRTC, a C++ compiler, memory."""


class IntegrityError(Error):
    """A stored kernel is damaged or foreign, or a bundle is not signed by a trusted key."""


class CancelledError(Error):
    """The request was cancelled."""


class SealedError(Error):
    """A kernel would have to be compiled after `Context.seal`."""


class ClosedError(Error, ValueError):
    """A handle was used after `close`."""


class ForkedError(Error):
    """A handle was used in a process that was forked after the handle was made. Contexts do not survive a fork."""


class ArrayError(Error, TypeError, ValueError):
    """An array of the wrong type, shape, strides or device."""


BY_STATUS = {
    _abi.INTERNAL: InternalError, _abi.USAGE: UsageError, _abi.BAD_INPUT: BadInputError,
    _abi.UNSUPPORTED: UnsupportedError, _abi.COMPILE: CompileError, _abi.DIFFERS: DiffersError,
    _abi.ENVIRONMENT: UnavailableError, _abi.INTEGRITY: IntegrityError, _abi.CANCELLED: CancelledError,
    _abi.SEALED: SealedError,
}
