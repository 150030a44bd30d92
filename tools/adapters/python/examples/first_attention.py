#!/usr/bin/env python3
"""The first attention: fills a cache of 4-bit keys and values, and attends to it.

The script compares the output with attention over the numbers as they were: the difference is the error of four bits.
It needs no other package. On the CPU back-end it takes seconds.

    python first_attention.py [--device cuda|cpu] [--tokens 200]

SPDX-License-Identifier: MIT
"""
import argparse
import math
import random
import struct
import time

import kvjit

SEQUENCES, KV_HEADS, GROUP, DIM = 2, 2, 4, 128


def halves(context, shape, numbers):
    """An array of f16 on the device."""
    return kvjit.Array(context, shape, "f16").fill(struct.pack(f"<{len(numbers)}e", *numbers))


def expected(q, k, v, tokens):
    """Attention in plain Python, over lists in the order of the shapes."""
    out = []
    for sequence in range(SEQUENCES):
        for head in range(KV_HEADS * GROUP):
            row = q[(sequence * KV_HEADS * GROUP + head) * DIM:][:DIM]
            at = [((sequence * tokens + token) * KV_HEADS + head // GROUP) * DIM for token in range(tokens)]
            scores = [sum(map(float.__mul__, row, k[place:place + DIM])) / math.sqrt(DIM) for place in at]
            most = max(scores)
            weights = [math.exp(score - most) for score in scores]
            total = sum(weights)
            out += [sum(weight * v[place + i] for weight, place in zip(weights, at)) / total for i in range(DIM)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cuda, cuda:1 or cpu; default: a GPU if there is one")
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()

    began = time.perf_counter()
    spec = kvjit.Spec(k="kv4", v="kv4", head_dim=DIM, q_heads_per_kv=GROUP, out_type="f16")
    program = kvjit.Program(spec, args.device)
    print(f"program    {program.id} on {program.context.info.name}: {program.kernels[0].origin}, "
          f"{time.perf_counter() - began:.2f} s")

    rng = random.Random(1)
    draw = lambda *shape: [rng.gauss(0, 1) for _ in range(math.prod(shape))]
    q = draw(SEQUENCES, 1, KV_HEADS * GROUP, DIM)
    k, v = (draw(SEQUENCES, args.tokens, KV_HEADS, DIM) for _ in range(2))

    cache = kvjit.Cache(program, sequences=SEQUENCES, kv_heads=KV_HEADS, capacity=args.tokens)
    shape = [SEQUENCES, args.tokens, KV_HEADS, DIM]
    kvjit.append(cache, halves(program.context, shape, k), halves(program.context, shape, v))
    out, report = kvjit.attention(cache, halves(program.context, [SEQUENCES, 1, KV_HEADS * GROUP, DIM], q),
                                  with_report=True)
    print(f"cache      {cache.nbytes} bytes, {2 * 2 * len(k)} as fp16")
    print(f"kernels    {', '.join(report.kernels)}")

    got = struct.unpack(f"<{math.prod(out.shape)}e", out.tobytes())
    want = expected(q, k, v, args.tokens)
    error = math.dist(got, want) / math.hypot(*want)
    print(f"difference {error:.3f} of the output, from attention over the numbers as they were")
    print(f"seconds    {time.perf_counter() - began:.2f}")
    return 0 if error < 0.2 else 1


if __name__ == "__main__":
    raise SystemExit(main())
