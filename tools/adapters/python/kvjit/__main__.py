"""`python -m kvjit doctor`: what of the package, of devices and of compilers works, and what is to do.
SPDX-License-Identifier: MIT
"""
import argparse
import importlib.metadata
import platform
import struct
import sys
import time

import kvjit
from kvjit import library

SPEC = kvjit.Spec(k="kv4", v="kv4", head_dim=128, q_heads_per_kv=4, out_type="f16")
HELP = {"cuda": "a GPU needs NVIDIA's driver, and NVRTC: pip install nvidia-cuda-nvrtc (torch brings it)",
        "cpu": "the CPU back-end needs a C++20 compiler for kernels that no bundle has: apt install g++"}


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _attention(context):
    """Attention over zeros."""
    program = kvjit.Program(SPEC, context=context)
    cache = kvjit.Cache(program, kv_heads=1, capacity=64)
    x = context.empty([1, 64, 1, 128], "f16").fill(bytes(64 * 128 * 2))
    kvjit.append(cache, x, x)
    out = kvjit.attention(cache, context.empty([1, 1, 4, 128], "f16").fill(bytes(4 * 128 * 2)))
    if any(struct.unpack("<512e", out.tobytes())):
        raise kvjit.InternalError("attention over zeros is not zero")
    return program.kernels[0]


def doctor():
    """Prints a line for each part. Returns whether a device works."""
    print(f"kvjit         {kvjit.__version__}, {library.path}")
    print(f"python        {platform.python_version()} on {platform.platform()}")
    for package in ("torch", "transformers", "nvidia-cuda-nvrtc"):
        print(f"{package:<13} {_version(package)}")
    works = False
    for device in ("cuda", "cpu"):
        began = time.perf_counter()
        try:
            context = kvjit.Context(device)
            kernel = _attention(context)
            print(f"{device:<13} {context.info.name}, {context.info.arch}: works; kernel from {kernel.origin}, "
                  f"{time.perf_counter() - began:.2f} s")
            works = True
        except kvjit.Error as problem:
            print(f"{device:<13} {problem.message}")
            for note in problem.notes:
                print(f"{'':<13}   {note}")
            print(f"{'':<13}   {HELP[device]}")
    return works


def main():
    parser = argparse.ArgumentParser(prog="python -m kvjit", description="attention over low-bit KV caches")
    parser.add_argument("verb", choices=["doctor"], help="doctor: what works here, and what is to do")
    parser.parse_args()
    return 0 if doctor() else 1


if __name__ == "__main__":
    sys.exit(main())
