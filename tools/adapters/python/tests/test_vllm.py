"""vLLM's paged caches: every served cache dtype, both orders of dimensions, batches of prompts and decode steps; and
the backend class against a fake of vLLM 0.33's interface. It was never run inside vLLM."""
import importlib
import sys
import types

import numpy as np
import pytest
from conftest import attention, error

import kvjit

torch = pytest.importorskip("torch")
import kvjit.vllm as kv  # noqa: E402

BLOCK, BLOCKS, KV_HEADS, HEADS, DIM = 16, 24, 2, 4, 128
LENGTHS, QUERIES = [50, 33, 20, 64], [1, 5, 20, 1]  # a step, a part of a prompt, a prompt, a step
SLOTS = {"turboquant_k8v4": 196, "turboquant_4bit_nc": 134, "turboquant_k3v4_nc": 118, "turboquant_3bit_nc": 102,
         "int8_per_token_head": 264, "fp8_per_token_head": 264, "int4_per_token_head": 136,
         "ultraquant_4bit": 136}


class Batch:
    """Requests with pages in any order, and keys and values of all their tokens."""

    def __init__(self, device, lengths=LENGTHS, queries=QUERIES, dtype=torch.float16):
        rng = np.random.default_rng(4)
        draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype).to(device)
        self.lengths, self.queries, self.device, self.dtype = lengths, queries, device, dtype
        pages, at = rng.permutation(BLOCKS), 0
        self.table = np.zeros((len(lengths), 4), np.int32)
        for row, length in enumerate(lengths):
            count = -(-length // BLOCK)
            self.table[row, :count] = pages[at:at + count]
            at += count
        self.slots = np.concatenate([self.table[row, np.arange(length) // BLOCK].astype(np.int64) * BLOCK +
                                     np.arange(length) % BLOCK for row, length in enumerate(lengths)])
        self.k, self.v = (draw(sum(lengths), KV_HEADS, DIM) for _ in range(2))
        self.q = draw(sum(queries), HEADS, DIM)
        on = lambda x: torch.from_numpy(np.asarray(x)).to(device)
        self.slot_mapping, self.block_table = on(self.slots), on(self.table)
        self.seq_lens = on(np.array(lengths, np.int32))
        self.query_start_loc = on(np.array([0, *np.cumsum(queries)], np.int32))

    def attend(self, key_cache, value_cache, dtype, **more):
        output = torch.empty_like(self.q)
        return kv.paged_attention(output, self.q, key_cache, value_cache, self.block_table, self.seq_lens,
                                  self.query_start_loc, max(self.queries), max(self.lengths), DIM**-0.5, dtype, **more)

    def expected(self, k, v):
        begin, rows = 0, []
        for length, queries, first in zip(self.lengths, self.queries, np.cumsum([0, *self.queries])):
            parts = [x[begin:begin + length].double().cpu().numpy()[None] for x in (k, v)]
            rows.append(attention(self.q[first:first + queries].double().cpu().numpy()[None], *parts,
                                  is_causal=True)[0][0])
            begin += length
        return np.concatenate(rows)


def tensor(device, order, width, dtype=torch.uint8):
    """A cache of zeros, seen as [blocks, block_size, kv_heads, width]."""
    if order == "NHD":
        return torch.zeros(BLOCKS, BLOCK, KV_HEADS, width, dtype=dtype, device=device)
    return torch.zeros(BLOCKS, KV_HEADS, BLOCK, width, dtype=dtype, device=device).transpose(1, 2)


def held(batch, cache_dtype, key_cache, value_cache, scales=(1.0, 1.0)):
    """What the cache holds of all tokens."""
    formats = kv._scaled_formats(kv._formats(cache_dtype, batch.dtype, batch.k.device), scales)
    spec = kv._spec(formats, DIM, BLOCK, 1, batch.dtype, True, (), 0, 0.0)
    cache = kv._cache(kvjit.torch.program_of(spec, batch.device), key_cache, value_cache, scales)
    return [kvjit.read(cache, side, torch.empty_like(batch.k)[None], slots=batch.slot_mapping[None])[0]
            for side in "kv"]


@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize("cache_dtype", SLOTS)
def test_turboquant(device, cache_dtype, order):
    batch = Batch(device, dtype=torch.bfloat16)
    cache = tensor(device, order, SLOTS[cache_dtype])
    kv.turboquant_store(batch.k, batch.v, cache, batch.slot_mapping, cache_dtype)
    out = batch.attend(cache, None, cache_dtype)
    k, v = held(batch, cache_dtype, cache, None)
    assert error(out.double().cpu().numpy(), batch.expected(k, v)) < 1e-2  # bfloat16
    assert error(k.double().cpu().numpy(), batch.k.double().cpu().numpy()) < 0.25


@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize("cache_dtype, stored, scales", [
    ("auto", torch.float16, (1.0, 1.0)), ("bfloat16", torch.bfloat16, (1.0, 1.0)),
    ("fp8", torch.uint8, (0.02, 0.03)), ("fp8_e5m2", torch.float8_e5m2, (1.0, 1.0))])
def test_a_cache_of_keys_and_one_of_values(device, cache_dtype, stored, scales, order):
    batch = Batch(device)
    key_cache, value_cache = (tensor(device, order, DIM, stored) for _ in range(2))
    named = dict(zip(("k_scale", "v_scale"), scales))
    kv.reshape_and_cache_flash(batch.k, batch.v, key_cache, value_cache, batch.slot_mapping, cache_dtype, *scales)
    out = batch.attend(key_cache, value_cache, cache_dtype, **named)
    want = batch.expected(*held(batch, cache_dtype, key_cache, value_cache, scales))
    assert error(out.double().cpu().numpy(), want) < 2e-3
    if cache_dtype == "auto":
        assert torch.equal(key_cache.reshape(-1, KV_HEADS, DIM)[batch.slot_mapping], batch.k)


@pytest.mark.parametrize("heads", [1, KV_HEADS])
def test_fp8_with_scales_in_device_memory(device, heads):
    batch = Batch(device)
    key_cache, value_cache = (tensor(device, "NHD", DIM) for _ in range(2))
    scales = [torch.tensor(values[:heads], device=device) for values in ([0.02, 0.5], [0.03, 0.007])]
    kv.reshape_and_cache_flash(batch.k, batch.v, key_cache, value_cache, batch.slot_mapping, "fp8", *scales)
    for x, cache, scale in ((batch.k, key_cache, scales[0]), (batch.v, value_cache, scales[1])):
        want = (x.float() / scale.reshape(1, -1, 1)).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(cache.reshape(-1, KV_HEADS, DIM)[batch.slot_mapping], want)
    out = batch.attend(key_cache, value_cache, "fp8", k_scale=scales[0], v_scale=scales[1])
    want = batch.expected(*held(batch, "fp8", key_cache, value_cache, scales))
    assert error(out.double().cpu().numpy(), want) < 2e-3
    # Values follow scales that change in place, as those of a CUDA graph do.
    scales[1] *= 2
    out = batch.attend(key_cache, value_cache, "fp8", k_scale=scales[0], v_scale=scales[1])
    assert error(out.double().cpu().numpy(), 2 * want) < 2e-3


def test_steps_windows_and_softcap(device):
    batch = Batch(device, queries=[1, 1, 1, 1])
    cache = tensor(device, "NHD", 134)
    kv.turboquant_store(batch.k, batch.v, cache, batch.slot_mapping, "turboquant_4bit_nc")
    k, v = held(batch, "turboquant_4bit_nc", cache, None)
    out = batch.attend(cache, None, "turboquant_4bit_nc")
    assert error(out.double().cpu().numpy(), batch.expected(k, v)) < 2e-3
    windowed = batch.attend(cache, None, "turboquant_4bit_nc", sliding_window=8)
    begin = 0
    for row, length in enumerate(batch.lengths):
        parts = [x[begin + length - 8:begin + length].double().cpu().numpy()[None] for x in (k, v)]
        want = attention(batch.q[row].double().cpu().numpy()[None, None], *parts)[0][0, 0]
        assert error(windowed[row].double().cpu().numpy(), want) < 2e-3
        begin += length
    assert not torch.equal(batch.attend(cache, None, "turboquant_4bit_nc", logits_soft_cap=1.0), out)


def test_negative_slots_store_nothing(device):
    batch = Batch(device)
    cache = tensor(device, "NHD", 134)
    slots = batch.slot_mapping.clone()
    slots[::2] = -1
    kv.turboquant_store(batch.k, batch.v, cache, slots, "turboquant_4bit_nc")
    rows = cache.reshape(-1, KV_HEADS * 134)
    assert not rows[batch.slot_mapping[::2]].any() and rows[batch.slot_mapping[1::2]].any(1).all()


def test_refusals(device):
    batch, cache = Batch(device), tensor(device, "NHD", 134)
    with pytest.raises(kvjit.UnsupportedError, match="'octave_k3v4'"):
        kv.turboquant_store(batch.k, batch.v, cache, batch.slot_mapping, "octave_k3v4")
    with pytest.raises(kvjit.ArrayError, match="a slot of 134 bytes; K and V take 196"):
        kv.turboquant_store(batch.k, batch.v, cache, batch.slot_mapping, "turboquant_k8v4")
    scale = torch.ones(1, device=device)
    with pytest.raises(kvjit.UnsupportedError, match="scales as tensors are served for fp8"):
        kv.reshape_and_cache_flash(batch.k, batch.v, cache, cache, batch.slot_mapping, "fp8_e5m2", scale, scale)
    with pytest.raises(kvjit.ArrayError, match="workspace"):
        batch.attend(cache, None, "turboquant_4bit_nc", workspace=torch.zeros(8, dtype=torch.uint8, device=device))


# ---- The backend, in a fake of vLLM ----

VERSION = "0.33.0"


def fake_vllm(version=VERSION):
    """Modules with the names and signatures of vLLM 0.33 that the backend uses."""
    class TurboQuantAttentionImpl:
        def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                     kv_cache_dtype="auto", logits_soft_cap=None, attn_type="decoder",
                     kv_sharing_target_layer_name=None, **kwargs):
            self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
            self.num_kv_heads = num_kv_heads or num_heads

        def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
            raise AssertionError("vLLM's own kernels were called")

        forward = do_kv_cache_update

    class TurboQuantAttentionBackend:
        @staticmethod
        def get_name():
            return "TURBOQUANT"

        @staticmethod
        def get_impl_cls():
            return TurboQuantAttentionImpl

    registered = {}
    contents = {
        "vllm": {"__version__": version},
        "vllm.v1": {}, "vllm.v1.attention": {}, "vllm.v1.attention.backends": {},
        "vllm.v1.attention.backends.turboquant_attn": {"TurboQuantAttentionImpl": TurboQuantAttentionImpl,
                                                       "TurboQuantAttentionBackend": TurboQuantAttentionBackend},
        "vllm.v1.attention.backends.registry": {
            "AttentionBackendEnum": types.SimpleNamespace(TURBOQUANT="TURBOQUANT"),
            "register_backend": lambda backend, path=None, is_mamba=False: registered.update({backend: path})}}
    modules = {}
    for name, members in contents.items():
        modules[name] = types.ModuleType(name)
        vars(modules[name]).update(members)
    return modules, registered


@pytest.fixture
def vllm(monkeypatch):
    modules, registered = fake_vllm()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "kvjit.vllm_backend", raising=False)
    return registered


def test_the_backend_serves_a_layer(device, vllm, monkeypatch, capsys):
    kv.register()
    assert vllm == {}  # vLLM keeps its own backend unless it is asked
    monkeypatch.setenv("KVJIT_VLLM", "1")
    kv.register()
    assert "kvjit: serves" in capsys.readouterr().err
    module, _, name = vllm["TURBOQUANT"].rpartition(".")
    backend = getattr(importlib.import_module(module), name)
    assert backend.get_name() == "TURBOQUANT"
    layer = backend.get_impl_cls()(HEADS, DIM, DIM**-0.5, KV_HEADS, kv_cache_dtype="turboquant_4bit_nc")
    batch = Batch(device, dtype=torch.bfloat16)
    cache = torch.zeros(BLOCKS, KV_HEADS, BLOCK, 134, dtype=torch.uint8, device=device)  # as vLLM gives it to layers
    flat = lambda x: x.reshape(x.shape[0], -1)
    layer.do_kv_cache_update(None, flat(batch.k), flat(batch.v), cache, batch.slot_mapping)
    metadata = types.SimpleNamespace(
        seq_lens=batch.seq_lens, slot_mapping=batch.slot_mapping, block_table=batch.block_table,
        query_start_loc=batch.query_start_loc, num_actual_tokens=sum(QUERIES), max_query_len=max(QUERIES),
        max_seq_len=max(LENGTHS), is_prefill=True)
    output = torch.full((sum(QUERIES) + 3, HEADS * DIM), 7.0, dtype=torch.bfloat16, device=device)  # 3 rows of padding
    query = torch.cat([flat(batch.q), torch.zeros(3, HEADS * DIM, dtype=torch.bfloat16, device=device)])
    assert layer.forward(None, query, None, None, cache, metadata, output) is output
    want = batch.attend(cache.transpose(1, 2), None, "turboquant_4bit_nc")
    assert torch.equal(output[:-3], flat(want)) and (output[-3:] == 7).all()
    assert not layer.forward(None, query, None, None, cache, None, output).any()


def test_another_version_of_vllm_is_refused(monkeypatch):
    modules, registered = fake_vllm("0.34.1")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("KVJIT_VLLM", "1")
    with pytest.raises(kvjit.UnsupportedError, match="vLLM 0.33; this is 0.34.1"):
        kv.register()
    assert not registered
