"""What the tests of the ggml plugin share: runs of llama.cpp's programs, with the plugin and without.
SPDX-License-Identifier: MIT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parents[2]
WINDOW = 64  # tokens that every second layer of the model with sliding windows sees
# Scenarios of tests/texts.cpp, by model. llama.cpp does not shift a small cache of sliding windows.
SCENARIOS = {"tinylm": ["one", "odd", "several", "several+unified", "copies", "copies+unified", "idle+unified", "shift",
                        "state"],
             "window": ["odd", "odd+full", "several+unified", "shift+full", "state"]}
RACES = {"tinylm": ["one", "several+unified"], "window": ["odd"]}

failures = []


def check(is_right, what):
    print(f"{'ok    ' if is_right else 'FAILED'}  {what}", flush=True)
    if not is_right:
        failures.append(what)


def run(command, may_fail=False, **keys):
    """Runs a command and returns its output. A failure ends the test with the end of the output, unless it may be."""
    keys = {"stderr": subprocess.STDOUT, **keys}
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, errors="replace", **keys)
    if done.returncode != 0 and not may_fail:
        print(done.stdout[-4000:])
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return done.stdout


def environment(folder, library, kernels, **variables):
    """The variables of a program in `folder`. kernels: the folder of compiled kernels."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("KVJIT_", "GGML_"))}
    paths = [str(folder), *filter(None, [own.get("LD_LIBRARY_PATH")])]
    own.update(LD_LIBRARY_PATH=":".join(paths), KVJIT_LIBRARY=str(library), KVJIT_GGML_STATS="1",
               KVJIT_CACHE_DIR=str(kernels), GGML_NO_BACKTRACE="1")
    own.update(variables)
    return own


def served(output):
    """Nodes that kvjit served, and nodes that it left, by the plugin's own count."""
    found = re.search(r"kvjit: (\d+) attention nodes served, (\d+) left", output)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def models(folder, python):
    """The small model of the examples as GGUF, and the same with sliding windows."""
    source = ROOT / "tools/examples/host_engine/tinylm.safetensors"
    files = {"tinylm": folder / "tinylm.gguf", "window": folder / "window.gguf"}
    for name, file in files.items():
        run([python, HERE / "models/tinylm_to_gguf.py", source, file, *(["--window", WINDOW] * (name == "window"))])
    return files


def texts(folder, model, types, scenarios, text, variables, gpu_layers=0):
    """The lines of tests/texts.cpp by scenario, and all that it says."""
    output = run([folder / "texts", model, *types, gpu_layers, *scenarios, "--text", text], env=variables)
    return dict(re.findall(r"^([a-z+]+): (.*\| )$", output, re.MULTILINE)), output


def check_texts(what, expected, found, output, scenarios):
    """Each scenario has the expected text, and kvjit served every node."""
    for scenario in scenarios:
        is_same = found.get(scenario) == expected.get(scenario) is not None
        check(is_same, f"{what}: text of {scenario}")
        if not is_same:
            print(f"        with the plugin: {found.get(scenario)}\n        ggml's own:      {expected.get(scenario)}")
    nodes, left = served(output)
    check(nodes > 0 and left == 0, f"{what}: {nodes} nodes, {left} left")
