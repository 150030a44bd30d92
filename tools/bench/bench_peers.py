#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `kvjit bench` with PyTorch, FlexAttention, FlashInfer and FlashAttention 3, on the same shapes in one run.

Peers keep K and V in fp16. If a peer would read them once for each query head, the query heads of a KV head are packed
as rows of one head. All are timed in the same way: the median of the replays of CUDA graphs of 20 calls, which
alternate over caches that together exceed the L2. A peer's output is compared with attention in float32 before it is
timed. A peer that is not installed, or refuses a shape, is printed as missing with the reason.

    tools/bench/bench_peers.py --kvjit build/kvjit specs/attention/decode.toml --tokens 8192,32768 --kv-heads 8
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"bench_peers.py needs PyTorch 2.4 or later: {error}")

# Limit of the relative L2 error against float32. fp16 probabilities and outputs give about 5e-4, a wrong layout 1.
MOST_ERROR = 5e-3


class Missing(Exception):
    """Raised with the reason if a peer cannot be measured at a shape."""


@dataclass(frozen=True)
class Shape:
    """The sizes of an attention call."""

    batch: int  # sequences
    kv_heads: int
    tokens: int  # of each sequence
    head_dim: int
    group: int  # query heads of a KV head
    queries: int  # of each sequence
    is_causal: bool  # False for one query, which sees every token

    @staticmethod
    def of(row: dict[str, Any]) -> Shape:
        """The shape of a row of `kvjit bench --json`."""
        return Shape(row["batch"], row["kv_heads"], row["tokens"], row["head_dim"], row["q_heads_per_kv"],
                     row["query_length"], row["is_causal"] and row["query_length"] > 1)

    @property
    def cache_bytes(self) -> int:
        """Bytes of K and V in fp16."""
        return 2 * 2 * self.batch * self.kv_heads * self.tokens * self.head_dim


@dataclass
class Caches:
    """Queries, and as many copies of K and V as fill a pool that exceeds the L2."""

    q: Tensor  # [batch, kv_heads, group, queries, head_dim]
    k: Tensor  # [copies, batch, kv_heads, tokens, head_dim]
    v: Tensor  # like k

    @staticmethod
    def make(shape: Shape, pool_bytes: float) -> Caches:
        copies = max(1, math.ceil(pool_bytes / shape.cache_bytes))
        torch.manual_seed(1)

        def normal(*sizes: int) -> Tensor:
            return torch.empty(sizes, dtype=torch.float16, device="cuda").normal_()

        sizes = (copies, shape.batch, shape.kv_heads, shape.tokens, shape.head_dim)
        return Caches(normal(shape.batch, shape.kv_heads, shape.group, shape.queries, shape.head_dim),
                      normal(*sizes), normal(*sizes))


@dataclass
class Peer:
    """A peer's call at one shape, and how to check it."""

    run: Callable[[int], Tensor]  # one call over the copy with this number
    first: Callable[[Tensor], Tensor]  # slices the first KV head out of a result: [group, queries, head_dim]
    keys: Tensor  # K of that head in copy 0: [tokens, head_dim]
    values: Tensor  # V of that head in copy 0


@dataclass
class Timing:
    """Microseconds of one call over the replays."""

    variant: str
    median_us: float
    low_us: float
    high_us: float


def of_packed(run: Callable[[int], Tensor], shape: Shape, caches: Caches) -> Peer:
    """A peer whose query heads are packed as rows of one head."""
    rows = (shape.group, shape.queries, shape.head_dim)
    return Peer(run, lambda out: out[0, 0].reshape(rows), caches.k[0, 0, 0], caches.v[0, 0, 0])


def sdpa(backend: SDPBackend) -> Callable[[Shape, Caches], Peer]:
    """PyTorch's scaled_dot_product_attention with one of its back-ends."""

    def prepare(shape: Shape, caches: Caches) -> Peer:
        if shape.is_causal:
            raise Missing("it has no causal mask for several queries packed with their heads")
        q = caches.q.flatten(2, 3)

        def run(copy: int) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, caches.k[copy], caches.v[copy])

        return of_packed(run, shape, caches)

    return prepare


def flex(shape: Shape, caches: Caches) -> Peer:
    library = importlib.import_module("torch.nn.attention.flex_attention")
    q = caches.q.flatten(2, 3)

    def is_seen(_b: Tensor, _h: Tensor, row: Tensor, token: Tensor) -> Tensor:
        return token < shape.tokens - (shape.queries - 1 - row % shape.queries if shape.is_causal else 0)

    # The mask is passed even if every token is seen: without blocks to split, FlexAttention was 3 to 14 times as slow
    # (PyTorch 2.11, H200).
    mask = library.create_block_mask(is_seen, None, None, q.shape[2], shape.tokens, device=q.device)
    torch.compiler.reset()  # each shape gets its own kernel, as in an engine
    compiled = torch.compile(library.flex_attention, dynamic=False)
    return of_packed(lambda copy: compiled(q, caches.k[copy], caches.v[copy], block_mask=mask), shape, caches)


def flash_attention_3(shape: Shape, caches: Caches) -> Peer:
    attention = importlib.import_module("flash_attn_interface").flash_attn_with_kvcache
    q = caches.q.permute(0, 3, 1, 2, 4).flatten(2, 3).contiguous()  # [batch, queries, q_heads, head_dim]

    def run(copy: int) -> Tensor:
        out = attention(q, caches.k[copy].transpose(1, 2), caches.v[copy].transpose(1, 2), causal=shape.is_causal)
        return out[0] if isinstance(out, tuple) else out

    return Peer(run, lambda out: out[0, :, :shape.group].transpose(0, 1), caches.k[0, 0, 0], caches.v[0, 0, 0])


def flashinfer(shape: Shape, caches: Caches) -> Peer:
    library = importlib.import_module("flashinfer")
    page = 16  # tokens
    if shape.queries > 1 or shape.tokens % page:
        raise Missing(f"its decode takes one query, and tokens in pages of {page}")
    pages = shape.tokens // page
    device = caches.q.device
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(128 << 20, dtype=torch.uint8, device=device), "HND", use_tensor_cores=True)
    wrapper.plan(torch.arange(shape.batch + 1, dtype=torch.int32, device=device) * pages,
                 torch.arange(shape.batch * pages, dtype=torch.int32, device=device),
                 torch.full((shape.batch,), page, dtype=torch.int32, device=device), shape.kv_heads * shape.group,
                 shape.kv_heads, shape.head_dim, page, q_data_type=torch.float16, kv_data_type=torch.float16)
    q = caches.q.reshape(shape.batch, shape.kv_heads * shape.group, shape.head_dim)

    def paged(x: Tensor) -> Tensor:
        """The same bytes, read as pages of all heads."""
        return x.view(shape.batch * pages, shape.kv_heads, page, shape.head_dim)

    def first_head(x: Tensor) -> Tensor:
        return paged(x)[:pages, 0].reshape(shape.tokens, shape.head_dim)

    return Peer(lambda copy: wrapper.run(q, (paged(caches.k[copy]), paged(caches.v[copy]))),
                lambda out: out[0, :shape.group].unsqueeze(1), first_head(caches.k[0]), first_head(caches.v[0]))


# The columns of the table. Of several variants of a peer the fastest counts.
PEERS: dict[str, dict[str, Callable[[Shape, Caches], Peer]]] = {
    "SDPA": {"flash": sdpa(SDPBackend.FLASH_ATTENTION), "cuDNN": sdpa(SDPBackend.CUDNN_ATTENTION),
             "efficient": sdpa(SDPBackend.EFFICIENT_ATTENTION)},
    "Flex": {"": flex},
    "FlashInfer": {"": flashinfer},
    "FA3": {"": flash_attention_3},
}


def error_of(peer: Peer, shape: Shape, caches: Caches) -> float:
    """Relative L2 error of the first KV head's output against attention in float32."""
    scores = caches.q[0, 0].float() @ peer.keys.float().T / math.sqrt(shape.head_dim)
    if shape.is_causal:
        last = torch.arange(shape.queries, device=scores.device)[:, None] + shape.tokens - shape.queries
        scores.masked_fill_(torch.arange(shape.tokens, device=scores.device) > last, -math.inf)
    want = scores.softmax(-1) @ peer.values.float()
    return float((peer.first(peer.run(0)).float() - want).norm() / want.norm())


def timed(variant: str, peer: Peer, copies: int, calls: int, repeats: int) -> Timing:
    """Times one call by graphs of `calls` calls that alternate over the copies."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            peer.run(0)
    torch.cuda.synchronize()
    graphs: list[torch.cuda.CUDAGraph] = []
    call = 0
    for _ in range(math.ceil(copies / calls)):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            for _ in range(calls):
                peer.run(call % copies)
                call += 1
    for graph in graphs:
        graph.replay()
    times = []
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for repeat in range(repeats):
        start.record()
        graphs[repeat % len(graphs)].replay()
        stop.record()
        stop.synchronize()
        times.append(1000 * start.elapsed_time(stop) / calls)
    return Timing(variant, statistics.median(times), min(times), max(times))


def measure_all(shape: Shape, pool_bytes: float, calls: int, repeats: int, missing: list[str]) -> dict[str, Timing]:
    """Returns the fastest variant of each peer. Adds to `missing` why the others have no time."""
    best: dict[str, Timing] = {}
    where = f"batch {shape.batch}, {shape.kv_heads} KV heads, {shape.tokens} tokens"
    torch.cuda.empty_cache()
    try:
        caches = Caches.make(shape, pool_bytes)
    except torch.cuda.OutOfMemoryError:
        missing.append(f"all peers, {where}: no memory for {shape.cache_bytes} bytes of fp16 K and V a call")
        return best
    for name, variant, prepare in [(n, v, p) for n, variants in PEERS.items() for v, p in variants.items()]:
        try:
            peer = prepare(shape, caches)
            if not (wrong := error_of(peer, shape, caches)) <= MOST_ERROR:
                raise Missing(f"its result is wrong: relative error {wrong:.1e}")
            timing = timed(variant, peer, caches.k.shape[0], calls, repeats)
        except Exception as error:  # any exception of a library is a reason to print
            kind = "" if isinstance(error, Missing) else f"{type(error).__name__}: "
            reason = next(iter(str(error).strip().splitlines()), "no message")
            place = "" if isinstance(error, ImportError) else f", {where}"
            missing.append(f"{' '.join([name, variant]).strip()}{place}: {kind}{reason}")
            continue
        if name not in best or timing.median_us < best[name].median_us:
            best[name] = timing
    return best


def version_of(module: str) -> str:
    try:
        return str(getattr(importlib.import_module(module), "__version__", "of no stated version"))
    except ImportError as error:
        return f"missing: {error}"


def versions(kvjit: str) -> str:
    own = subprocess.run([kvjit, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return (f"{torch.cuda.get_device_name()}; {own}; PyTorch {torch.__version__} (CUDA {torch.version.cuda}, "
            f"cuDNN {torch.backends.cudnn.version()}); Triton {version_of('triton')}; "
            f"FlashInfer {version_of('flashinfer')}; FlashAttention 3 {version_of('flash_attn_interface')}")


def table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    parser.add_argument("--kvjit", required=True, help="the command")
    parser.add_argument("--tokens", default="8192,32768", metavar="N,M")
    parser.add_argument("--batch", default="1", metavar="B,C")
    parser.add_argument("--kv-heads", default="8", metavar="H")
    parser.add_argument("--repeats", default="20", metavar="R")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_peers.py needs a GPU that PyTorch can use")
    command = [args.kvjit, "bench", *args.specs, "--tokens", args.tokens, "--batch", args.batch, "--kv-heads",
               args.kv_heads, "--repeats", args.repeats, "--json", "--device", "gpu"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # stderr is passed through
    if ran.returncode != 0:
        return ran.returncode
    data = json.loads(ran.stdout)
    missing: list[str] = []
    peers: dict[Shape, dict[str, Timing]] = {}
    lines = [["program", "batch", "heads", "tokens", "kvjit us", "GB/s", *(f"{name} us  x kvjit" for name in PEERS)]]
    for row in data["results"]:
        shape = Shape.of(row)
        if shape not in peers:
            peers[shape] = measure_all(shape, data["pool_bytes"], row["calls_a_repeat"], data["repeats"], missing)
        line = [row["program"], *map(str, (shape.batch, shape.kv_heads, shape.tokens)), f"{row['median_us']:.2f}",
                f"{row['gb_per_s']:.0f}"]
        for name in PEERS:
            timing = peers[shape].get(name)
            line.append(f"{timing.variant} {timing.median_us:.2f}  {timing.median_us / row['median_us']:5.2f}"
                        if timing else "missing")
        lines.append(line)
    print(versions(args.kvjit), table(lines), *(f"missing: {reason}" for reason in dict.fromkeys(missing)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
