"""Specs: which attention a program computes, over which cache. Keys and values are those of a spec file.

Keywords need no table: `head_dim=64` is `head_dim` of [attention], because no other table has a key of that name. The
tables come from the JSON Schema of specs, which `kvjit schema` prints.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import ctypes as c
import difflib
import functools
import json
import pathlib
import re
import sys

from typing import Any

import tomli_w

from . import errors
from .library import functions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SIDES = ("k", "v")
_REASONS_BYTES = 1 << 16
_BEGIN = re.compile(r".*\berror: ")  # "sm_90a: spec:8:12: error: head_dim 96 is ..."


@functools.cache
def _tables():
    """The table of each keyword: {"head_dim": "attention", ...}; "" for keys outside of tables."""
    schema = json.loads((pathlib.Path(__file__).parent / "spec.json").read_text())
    found = {}
    for name, value in schema["properties"].items():
        if name in _SIDES or name in ("matrix", "layers"):
            continue
        if value["type"] == "object":
            found |= dict.fromkeys(value["properties"], name)
        else:
            found[name] = ""
    return found


def _is_path(text):
    return isinstance(text, pathlib.Path) or "\n" not in text and text.endswith(".toml")


class Spec:
    """A spec. It is immutable, and equal specs have equal `toml`.

        Spec(k="kv4", v="kv4", head_dim=128, q_heads_per_kv=4, features=["causal"])
        Spec("decode.toml")                # a file
        Spec('[k]\\nformat = "kv4"\\n...')   # TOML text
        Spec('{"k": {"format": "kv4"}, ...}')  # JSON text, as of `line`
        Spec({"k": {"format": "kv4"}, ...})

    Args:
        source: the path of a spec file, TOML or JSON text, or a dict of its tables; None: keywords alone.
        k, v: the name of a format (`kvjit formats` lists them), or a dict of the side's keys.
        **keywords: keys of [attention], [cache] and [target], which replace those of `source`.

    Raises:
        TypeError: a keyword that no table has.
        kvjit.BadInputError: text that is no TOML and no JSON. Other mistakes are found by `supported` and `Program`.
    """

    __slots__ = ("toml", "name", "_line")
    toml: str
    name: str
    _line: str | None

    def __init__(self, source: str | pathlib.Path | dict[str, Any] | None = None, *,
                 k: str | dict[str, Any] | None = None, v: str | dict[str, Any] | None = None, **keywords: Any):
        self_name, tables = "spec", {}
        if isinstance(source, (str, pathlib.Path)) and _is_path(source):
            self_name, source = str(source), pathlib.Path(source).read_text()
        if isinstance(source, str) and source.startswith("{"):
            try:
                source = json.loads(source)
            except json.JSONDecodeError as problem:
                raise errors.BadInputError(f"{self_name} is no JSON: {problem}") from None
        if isinstance(source, str):
            if k is None and v is None and not keywords:
                self._set(source, self_name)  # messages then count the lines of the caller's text
                return
            try:
                tables = tomllib.loads(source)
            except tomllib.TOMLDecodeError as problem:
                raise errors.BadInputError(f"{self_name} is no TOML: {problem}") from None
        elif source is not None:
            tables = json.loads(json.dumps(source))
        for side, value in zip(_SIDES, (k, v)):
            if value is not None:
                tables[side] = {"format": value} if isinstance(value, str) else dict(value)
        for key, value in keywords.items():
            table = _tables().get(key)
            if table is None:
                near = difflib.get_close_matches(key, _tables(), 1)
                raise TypeError(f"a spec has no key {key!r}" + (f"; is {near[0]!r} meant?" if near else ""))
            if value is not None:
                (tables.setdefault(table, {}) if table else tables)[key] = value
        self._set(tomli_w.dumps(tables), self_name)

    def _set(self, toml, name):
        object.__setattr__(self, "toml", toml)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_line", None)

    def __setattr__(self, name, value):
        raise AttributeError("a Spec is immutable; Spec(spec.to_dict(), key=value) makes another one")

    def to_dict(self) -> dict[str, Any]:
        """The tables of the spec."""
        return tomllib.loads(self.toml)

    @property
    def line(self) -> str:
        """The tables as one line of JSON. Operators of torch take it: compilers print their arguments into comments."""
        line = self._line
        if line is None:
            line = json.dumps(self.to_dict(), separators=(",", ":"))
            object.__setattr__(self, "_line", line)
        return line

    def __deepcopy__(self, memo):
        return self

    def __eq__(self, other):
        return isinstance(other, Spec) and self.toml == other.toml

    def __hash__(self):
        return hash(self.toml)

    def __repr__(self):
        return f"Spec({self.toml!r})"


def supported(spec: Spec | str | pathlib.Path | dict[str, Any], arch: str | None = None) -> list[str]:
    """Why kvjit does not serve a spec: a list of reasons, which is empty if it does. No device is needed.

    Args:
        spec: a Spec, or what its constructor takes.
        arch: "sm_90a" ...; None: every arch of the spec's [target], which then must name one.
    """
    spec = spec if isinstance(spec, Spec) else Spec(spec)
    reasons = c.create_string_buffer(_REASONS_BYTES)
    functions.kvjit_supported(spec.toml.encode(), arch.encode() if arch else None, reasons, _REASONS_BYTES)
    found = []
    for line in reasons.value.decode().splitlines():
        if _BEGIN.match(line):
            found.append(line)
        elif line and found:
            found[-1] += "\n" + line  # the line of the spec, and notes
    return found
