"""Devices of the tests, and attention in double precision.

Tests run on the CPU back-end; those with the marker `gpu` run on a GPU, and are skipped without one.
"""
import numpy as np
import pytest

import kvjit


def _gpu_reason():
    try:
        kvjit.Context("cuda")
    except kvjit.Error as problem:
        return problem.message
    return None


@pytest.fixture(scope="session")
def gpu_reason():
    return _gpu_reason()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, gpu_reason):
    if request.param == "cuda" and gpu_reason:
        pytest.skip(gpu_reason)
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def attention(q, k, v, *, lengths=None, scale=None, mask=None, is_causal=False):
    """Attention in double: q [s, n, h, d], k and v [s, t, kv_heads, d]; also the log-sum-exp [s, n, h]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    sequences, queries, heads, dim = q.shape
    tokens, kv_heads = k.shape[1:3]
    k, v = (np.repeat(x, heads // kv_heads, axis=2) for x in (k, v))
    scores = np.einsum("snhd,sthd->shnt", q, k) * (dim**-0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    lengths = np.full(sequences, tokens) if lengths is None else np.asarray(lengths)
    at = np.arange(tokens)
    hidden = at[None, None, :] >= lengths[:, None, None]
    if is_causal:
        position = lengths[:, None] - queries + np.arange(queries)[None]
        hidden = hidden | (at[None, None] > position[:, :, None])
    scores = np.where(np.broadcast_to(hidden[:, None], scores.shape), -np.inf, scores)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(-1, keepdims=True)
    lse = (np.log(total) + most)[..., 0].transpose(0, 2, 1)
    return np.einsum("shnt,sthd->snhd", weights / total, v), lse


def error(got, want):
    """The distance relative to the expected output."""
    return np.linalg.norm(np.asarray(got, np.float64) - want) / np.linalg.norm(want)
