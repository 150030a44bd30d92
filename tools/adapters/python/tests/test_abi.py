"""The generated ctypes layer has the sizes and offsets that a C compiler gives kvjit.h."""
import ctypes as c
import pathlib
import shutil
import subprocess

import pytest

from kvjit import _abi, library

HEADER = pathlib.Path(__file__).resolve().parents[4] / "runtime/kvjit.h"


def structs():
    return [value for value in vars(_abi).values() if isinstance(value, type) and issubclass(value, c.Structure)]


def c_name(struct):
    return "kvjit_" + "".join("_" * (index > 0) + letter.lower() if letter.isupper() else letter
                              for index, letter in enumerate(struct.__name__))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_sizes_and_offsets(tmp_path):
    lines = []
    for struct in structs():
        lines.append(f'printf("{struct.__name__} %zu\\n", sizeof({c_name(struct)}));')
        for name, *_ in struct._fields_:
            lines.append(f'printf("{struct.__name__}.{name} %zu\\n", offsetof({c_name(struct)}, {name}));')
    source = tmp_path / "sizes.c"
    source.write_text(f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n' + "\n".join(lines) + "\n}\n")
    subprocess.run(["cc", source, "-o", tmp_path / "sizes"], check=True)
    expected = dict(line.split() for line in subprocess.run([tmp_path / "sizes"], capture_output=True, text=True,
                                                            check=True).stdout.splitlines())
    found = {}
    for struct in structs():
        found[struct.__name__] = str(c.sizeof(struct))
        for name, *_ in struct._fields_:
            found[f"{struct.__name__}.{name}"] = str(getattr(struct, name).offset)
    assert len(found) > 150
    assert found == expected


@pytest.mark.skipif(not HEADER.exists(), reason="the header is not beside these tests")
def test_every_declaration_is_translated():
    import re
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    assert {c_name(struct) for struct in structs()} == set(re.findall(r"^\} (kvjit_\w+);", text, re.MULTILINE)) - {
        "kvjit_status"}
    assert set(_abi.FUNCTIONS) == set(re.findall(r"\b(kvjit_\w+)\(", text))
    for name in set(re.findall(r"\bKVJIT_([A-Z0-9_]+) = \d+", text)):
        assert hasattr(_abi, name), name


def test_the_library_has_the_version_of_the_header():
    assert library.version() == f"{_abi.VERSION_MAJOR}.{_abi.VERSION_MINOR}.{_abi.VERSION_PATCH}"
