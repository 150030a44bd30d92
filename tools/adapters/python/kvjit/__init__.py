"""kvjit: attention over low-bit KV caches, by kernels generated and compiled for exactly the cache at hand.

    spec = kvjit.Spec(k="kv4", v="kv4", head_dim=128, q_heads_per_kv=4)
    program = kvjit.Program(spec)                                      # compiles in fractions of a second, once
    cache = kvjit.Cache(program, sequences=2, kv_heads=8, capacity=4096)
    kvjit.append(cache, k, v)                                          # [sequences, tokens, kv_heads, head_dim]
    out = kvjit.attention(cache, q)                                    # [sequences, 1, query heads, head_dim]

Arrays may be of PyTorch, CuPy, JAX or NumPy; nothing is copied. `kvjit.torch` has the same as operators of PyTorch,
`kvjit.transformers` a cache for its models.
SPDX-License-Identifier: MIT
"""
try:
    from . import _abi as _abi
except ImportError:
    raise ImportError(f"{__path__[0]} is the source of kvjit, without the files that its build makes: install the "
                      "wheel, and run Python in another folder") from None

from .arrays import Array
from .cache import Cache, PagedCache
from .context import Context, Device
from .errors import (ArrayError, BadInputError, CancelledError, ClosedError, CompileError, DiffersError,
                     UnavailableError, Error, ForkedError, IntegrityError, InternalError, SealedError,
                     UnsupportedError, UsageError)
from .library import version as _version
from .operations import (Report, Rope, alibi_slopes, append, attention, copy, mask_ranges, merge, read, read_check,
                         shift)
from .program import Kernel, Program, Side, make_workspace
from .spec import Spec, supported

__version__ = _version()
__all__ = [
    "Array", "ArrayError", "BadInputError", "Cache", "CancelledError", "ClosedError", "CompileError", "Context",
    "Device", "DiffersError", "UnavailableError", "Error", "ForkedError", "IntegrityError", "InternalError", "Kernel",
    "PagedCache", "Program", "Report", "Rope", "SealedError", "Side", "Spec", "UnsupportedError", "UsageError",
    "alibi_slopes", "append", "attention", "copy", "make_workspace", "mask_ranges", "merge", "read", "read_check",
    "shift", "supported",
]
