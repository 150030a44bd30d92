#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `kvjit bench` with PyTorch, FlexAttention, FlashInfer and FlashAttention 3, on the same shapes in one run.

Peers keep K and V in fp16. If a peer would read them once for each query head, the query heads of a KV head are packed
as rows of one head. All are timed in the same way: the median of the replays of CUDA graphs of 20 calls, which
alternate over caches that together exceed the L2. A peer's output is compared with attention in float32 before it is
timed. A peer that is not installed, or refuses a shape, is printed as missing with the reason.

Calls by prefill are compared by TFLOP/s, behind 150 ms of calls, which bring the board to its power limit. cuDNN has no
causal mask by PyTorch for fewer queries than tokens: there it attends without a mask, and its products count whole.

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
# Calls that are bound by arithmetic bring the board to its power limit within this time.
WARM_UP_MS = 150


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
    is_prefill: bool  # kvjit attends by prefill

    @staticmethod
    def of(row: dict[str, Any]) -> Shape:
        """The shape of a row of `kvjit bench --json`."""
        return Shape(row["batch"], row["kv_heads"], row["tokens"], row["head_dim"], row["q_heads_per_kv"],
                     row["query_length"], row["is_causal"] and row["query_length"] > 1, row["is_prefill"])

    @property
    def cache_bytes(self) -> int:
        """Bytes of K and V in fp16."""
        return 2 * 2 * self.batch * self.kv_heads * self.tokens * self.head_dim

    def flop(self, sees_all: bool) -> float:
        """Floating-point operations of both products; sees_all: without a mask."""
        pairs = self.queries * self.tokens - (self.queries * (self.queries - 1) / 2
                                              if self.is_causal and not sees_all else 0)
        return 4.0 * self.head_dim * self.batch * self.kv_heads * self.group * pairs


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
    sees_all: bool = False  # attends without a mask, though the shape is causal


@dataclass
class Timing:
    """Microseconds of one call over the replays."""

    variant: str
    median_us: float
    low_us: float
    high_us: float
    flop: float  # of the call


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


def of_heads(run: Callable[[int], Tensor], shape: Shape, caches: Caches, sees_all: bool) -> Peer:
    """A peer whose results are [batch, query heads, queries, head_dim]."""
    return Peer(run, lambda out: out[0, :shape.group], caches.k[0, 0, 0], caches.v[0, 0, 0], sees_all)


def cudnn_prefill(shape: Shape, caches: Caches) -> Peer:
    q = caches.q.flatten(1, 2)
    is_square = shape.queries == shape.tokens

    def run(copy: int) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, caches.k[copy], caches.v[copy],
                                                  is_causal=shape.is_causal and is_square, enable_gqa=True)

    return of_heads(run, shape, caches, shape.is_causal and not is_square)


def flash_prefill(shape: Shape, caches: Caches) -> Peer:
    bias = importlib.import_module("torch.nn.attention.bias")
    q = caches.q.flatten(1, 2)
    # With its own causal mask PyTorch takes FlashAttention if all heads are there.
    k, v = (x.repeat_interleave(shape.group, 2) for x in (caches.k[:1], caches.v[:1]))
    mask = bias.causal_lower_right(shape.queries, shape.tokens) if shape.is_causal else None

    def run(_copy: int) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k[0], v[0], attn_mask=mask)

    return of_heads(run, shape, caches, False)


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


# The same for calls by prefill.
PREFILL_PEERS: dict[str, dict[str, Callable[[Shape, Caches], Peer]]] = {
    "cuDNN": {"": cudnn_prefill},
    "flash": {"": flash_prefill},
    "FA3": {"": flash_attention_3},
}


def error_of(peer: Peer, shape: Shape, caches: Caches) -> float:
    """Relative L2 error of the first KV head's output against attention in float32."""
    # Some query heads are enough where there are many queries.
    heads = 1 if shape.is_prefill else shape.group
    scores = caches.q[0, 0, :heads].float() @ peer.keys.float().T / math.sqrt(shape.head_dim)
    if shape.is_causal and not peer.sees_all:
        last = torch.arange(shape.queries, device=scores.device)[:, None] + shape.tokens - shape.queries
        scores.masked_fill_(torch.arange(shape.tokens, device=scores.device) > last, -math.inf)
    want = scores.softmax(-1) @ peer.values.float()
    return float((peer.first(peer.run(0))[:heads].float() - want).norm() / want.norm())


def timed(variant: str, peer: Peer, shape: Shape, copies: int, calls: int, repeats: int) -> Timing:
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
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay(repeat: int) -> float:
        start.record()
        graphs[repeat % len(graphs)].replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop)  # ms

    warm_ms = 0.0
    while shape.is_prefill and warm_ms < WARM_UP_MS:
        warm_ms += replay(0)
    times = [1000 * replay(repeat) / calls for repeat in range(repeats)]
    return Timing(variant, statistics.median(times), min(times), max(times), shape.flop(peer.sees_all))


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
    peers = PREFILL_PEERS if shape.is_prefill else PEERS
    for name, variant, prepare in [(n, v, p) for n, variants in peers.items() for v, p in variants.items()]:
        try:
            peer = prepare(shape, caches)
            if not (wrong := error_of(peer, shape, caches)) <= MOST_ERROR:
                raise Missing(f"its result is wrong: relative error {wrong:.1e}")
            timing = timed(variant, peer, shape, caches.k.shape[0], calls, repeats)
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
    prefill = [["program", "batch", "heads", "tokens", "kvjit us", "TFLOP/s",
                *(f"{name} us  TFLOP/s  kvjit's share" for name in PREFILL_PEERS)]]
    for row in data["results"]:
        shape = Shape.of(row)
        if shape not in peers:
            peers[shape] = measure_all(shape, data["pool_bytes"], row["calls_a_repeat"], data["repeats"], missing)
        line = [row["program"], *map(str, (shape.batch, shape.kv_heads, shape.tokens)), f"{row['median_us']:.2f}"]
        if shape.is_prefill:
            line.append(f"{row['tflop_per_s']:.0f}")
            for name in PREFILL_PEERS:
                timing = peers[shape].get(name)
                rate = timing.flop / timing.median_us / 1e6 if timing else 0.0
                line.append(f"{timing.median_us:.2f}  {rate:4.0f}  {row['tflop_per_s'] / rate:5.2f}"
                            if timing else "missing")
            prefill.append(line)
            continue
        line.append(f"{row['gb_per_s']:.0f}")
        for name in PEERS:
            timing = peers[shape].get(name)
            line.append(f"{timing.variant} {timing.median_us:.2f}  {timing.median_us / row['median_us']:5.2f}"
                        if timing else "missing")
        lines.append(line)
    tables = [table(rows) for rows in (lines, prefill) if len(rows) > 1]
    print(versions(args.kvjit), *tables, *(f"missing: {reason}" for reason in dict.fromkeys(missing)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
