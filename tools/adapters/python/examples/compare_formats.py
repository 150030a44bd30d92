#!/usr/bin/env python3
"""Compares formats: the error of attention against the bits of a value, as a table and as a plot.

Keys, values and queries are drawn from N(0, 1), with a few channels of K that are ten times as large, as models have.

    python compare_formats.py [--device cuda|cpu] [--formats f16,q8_0,kv4] [-o formats.png]

SPDX-License-Identifier: MIT
"""
import argparse

import numpy as np

import kvjit

FORMATS = "f16,fp8_e4m3,q8_0,q5_1,q4_1,q4_0,iq4_nl,kv6,kv5,kv4,kv3,kv2"
KV_HEADS, GROUP, DIM, TOKENS = 2, 4, 128, 512
LARGE_CHANNELS, FACTOR = 4, 10


def drawn():
    """q [1, 1, heads, 128], k and v [1, tokens, kv_heads, 128], as f16."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(shape) for shape in
               [(1, 1, KV_HEADS * GROUP, DIM), (1, TOKENS, KV_HEADS, DIM), (1, TOKENS, KV_HEADS, DIM)])
    large = rng.permutation(DIM)[:LARGE_CHANNELS]
    k[..., large] *= FACTOR
    q[..., large] /= FACTOR
    return [x.astype(np.float16) for x in (q, k, v)]


def expected(q, k, v):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x[0], GROUP, axis=1) for x in (k, v))
    scores = np.einsum("hd,thd->ht", q[0, 0], k) / DIM**0.5
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.einsum("ht,thd->hd", weights / weights.sum(1, keepdims=True), v)


def measure(name, device, q, k, v):
    """(bits of a value, relative error of the output) of a format for K and V."""
    program = kvjit.Program(kvjit.Spec(k=name, v=name, head_dim=DIM, q_heads_per_kv=GROUP), device)
    on = lambda x: kvjit.Array(program.context, x.shape, "f16").fill(x.tobytes())
    cache = kvjit.Cache(program, kv_heads=KV_HEADS, capacity=TOKENS)
    kvjit.append(cache, on(k), on(v))
    out = kvjit.attention(cache, on(q)).numpy()[0, 0]
    want = expected(q, k, v)
    return program.k.bits_per_value, np.linalg.norm(out - want) / np.linalg.norm(want)


def plot(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.scatter([bits for _, bits, _ in rows], [error for *_, error in rows])
    for name, bits, error in rows:
        axes.annotate(name, (bits, error), xytext=(5, 3), textcoords="offset points", fontsize=8)
    axes.set(yscale="log", xlabel="bits of a value, scales included", ylabel="relative error of attention's output")
    axes.grid(True, which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cuda, cuda:1 or cpu; default: a GPU if there is one")
    parser.add_argument("--formats", default=FORMATS, help="names that `kvjit formats` lists, with commas")
    parser.add_argument("-o", "--output", help="a PNG file; default: no plot")
    args = parser.parse_args()
    inputs, rows = drawn(), []
    print(f"{'format':<12} {'bits':>6} {'error':>9}")
    for name in args.formats.split(","):
        bits, error = measure(name, args.device, *inputs)
        rows.append((name, bits, error))
        print(f"{name:<12} {bits:>6.3f} {error:>9.5f}", flush=True)
    if args.output:
        plot(rows, args.output)


if __name__ == "__main__":
    main()
