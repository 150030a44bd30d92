"""The plain interface against attention in double, over the values that the cache holds."""
import numpy as np
import pytest
from conftest import attention, error

import kvjit

LIMIT = 2e-3  # of f16 outputs; the arithmetic of kernels is judged by the project's own tests


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(np.float16)


def filled(program, k, v, **sizes):
    cache = kvjit.Cache(program, sequences=k.shape[0], kv_heads=k.shape[2], capacity=k.shape[1], **sizes)
    kvjit.append(cache, on(program, k), on(program, v))
    return cache


def on(program, x):
    """A NumPy array as an array on the program's device."""
    x = np.ascontiguousarray(x)
    names = {"float16": "f16", "float32": "f32", "int32": "i32", "int64": "i64", "uint8": "u8", "uint32": "u32"}
    return kvjit.Array(program.context, x.shape, names[x.dtype.name]).fill(x.tobytes())


def stored(cache, side, shape):
    """What the cache holds, in the caller's domain."""
    out = kvjit.Array(cache.program.context, shape, "f32")
    return kvjit.read(cache, side, out).numpy()


@pytest.mark.parametrize("formats", [("kv4", "kv4"), ("q8_0", "q4_0"), ("f16", "f16"), ("bf16", "fp8_e4m3")])
@pytest.mark.parametrize("layout", ["planar", "rows"])
def test_decode(device, rng, formats, layout):
    spec = kvjit.Spec(k=formats[0], v=formats[1], head_dim=128, q_heads_per_kv=4, out_type="f16", layout=layout)
    program = kvjit.Program(spec, device)
    k, v, q = draw(rng, 2, 150, 2, 128), draw(rng, 2, 150, 2, 128), draw(rng, 2, 1, 8, 128)
    cache = filled(program, k, v)
    assert cache.tokens == 150
    out, report = kvjit.attention(cache, on(program, q), with_report=True)
    assert report.kernels == (program.kernels[0].name,) and (report.k_reader, report.v_reader) == formats
    want, _ = attention(q, stored(cache, "k", k.shape), stored(cache, "v", v.shape))
    assert error(out.numpy(), want) < LIMIT
    assert error(out.numpy(), attention(q, k, v)[0]) < 0.3


@pytest.mark.parametrize("layout", ["planar", "rows"])
def test_a_scale_for_each_head(device, rng, layout):
    spec = kvjit.Spec(k="vllm_fp8_per_head", v="kv8", head_dim=128, q_heads_per_kv=2, layout=layout)
    program = kvjit.Program(spec, device)
    assert program.k.has_head_scales and not program.v.has_head_scales
    scales = np.array([0.02, 1.5], np.float32)
    k, v, q = draw(rng, 1, 70, 2, 128), draw(rng, 1, 70, 2, 128), draw(rng, 1, 1, 4, 128)
    cache = kvjit.Cache(program, kv_heads=2, capacity=128, k_head_scales=on(program, scales))
    kvjit.append(cache, on(program, k), on(program, v))
    held = stored(cache, "k", k.shape)
    assert error(held, k) < 0.04  # of E4M3
    want, _ = attention(q, held, stored(cache, "v", v.shape))
    assert error(kvjit.attention(cache, on(program, q)).numpy(), want) < LIMIT


def test_lengths_mask_and_lse(device, rng):
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, q_heads_per_kv=2, features=["mask", "lse"])
    program = kvjit.Program(spec, device)
    k, v, q = draw(rng, 2, 90, 2, 64), draw(rng, 2, 90, 2, 64), draw(rng, 2, 1, 4, 64)
    mask = np.where(rng.random((2, 1, 1, 90)) < 0.3, -np.inf, 0).astype(np.float16)
    cache = filled(program, k, v)
    lse = kvjit.Array(program.context, [2, 1, 4], "f32")
    out = kvjit.attention(cache, on(program, q), lengths=on(program, np.array([90, 41], np.int32)),
                          mask=on(program, mask), lse=lse)
    want, want_lse = attention(q, stored(cache, "k", k.shape), stored(cache, "v", v.shape), lengths=[90, 41],
                               mask=mask.astype(np.float64))
    assert error(out.numpy(), want) < LIMIT and error(lse.numpy(), want_lse) < LIMIT


def test_any_number_of_queries_and_ragged_batches(device, rng):
    spec = kvjit.Spec(k="kv4", v="kv4", head_dim=128, q_heads_per_kv=2, query_length="any", max_query_length=16,
                      features=["causal"], out_type="f16")
    program = kvjit.Program(spec, device)
    k, v = draw(rng, 2, 40, 1, 128), draw(rng, 2, 40, 1, 128)
    cache = filled(program, k, v)
    held = [stored(cache, side, k.shape) for side in "kv"]
    for queries in (1, 5):
        q = draw(rng, 2, queries, 2, 128)
        want, _ = attention(q, *held, is_causal=True)
        assert error(kvjit.attention(cache, on(program, q)).numpy(), want) < LIMIT
    rows = draw(rng, 7, 2, 128)
    out = kvjit.attention(cache, on(program, rows), query_starts=on(program, np.array([0, 1, 7], np.int32)), queries=6)
    for sequence, (begin, end) in enumerate([(0, 1), (1, 7)]):
        want, _ = attention(rows[None, begin:end], *(x[sequence:sequence + 1] for x in held), is_causal=True)
        assert error(out.numpy()[begin:end], want[0]) < LIMIT


def test_append_in_the_call(device, rng):
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, q_heads_per_kv=2, append=True)
    program = kvjit.Program(spec, device)
    k, v = draw(rng, 1, 21, 1, 64), draw(rng, 1, 21, 1, 64)
    cache = kvjit.Cache(program, kv_heads=1, capacity=30)
    kvjit.append(cache, on(program, k[:, :20]), on(program, v[:, :20]))
    q = draw(rng, 1, 1, 2, 64)
    out = kvjit.attention(cache, on(program, q), new_k=on(program, k[:, 20:]), new_v=on(program, v[:, 20:]))
    assert cache.tokens == 21
    want, _ = attention(q, stored(cache, "k", k.shape), stored(cache, "v", v.shape))
    assert error(out.numpy(), want) < LIMIT
    assert error(stored(cache, "k", k.shape), k) < 0.02


def test_pages(device, rng):
    spec = kvjit.Spec(k="kv4", v="kv4", head_dim=128, q_heads_per_kv=4, layout="paged", page_tokens=16)
    program = kvjit.Program(spec, device)
    cache = kvjit.PagedCache(program, pages=12, kv_heads=2)
    k, v, q = draw(rng, 2, 60, 2, 128), draw(rng, 2, 60, 2, 128), draw(rng, 2, 1, 8, 128)
    table = rng.permutation(12)[:8].astype(np.int32).reshape(2, 4)
    token = np.arange(60)
    slots = table[:, token // 16].astype(np.int64) * 16 + token % 16
    kvjit.append(cache, on(program, k), on(program, v), slots=on(program, slots))
    on_table, lengths = on(program, table), on(program, np.array([60, 33], np.int32))
    out = kvjit.attention(cache, on(program, q), table=on_table, lengths=lengths)
    held = [kvjit.read(cache, side, kvjit.Array(program.context, k.shape, "f32"), table=on_table).numpy()
            for side in "kv"]
    assert error(held[0], k) < 0.2
    want, _ = attention(q, *held, lengths=[60, 33])
    assert error(out.numpy(), want) < LIMIT
    other = kvjit.PagedCache(program, pages=12, kv_heads=2)
    skipped = slots.copy()
    skipped[1] = -1  # negative slots store nothing
    kvjit.append(other, on(program, k), on(program, v), slots=on(program, skipped))
    first = kvjit.Array(program.context, [1, 60, 2, 128], "f32")
    assert np.array_equal(kvjit.read(other, "k", first, table=on(program, table[:1])).numpy(), held[0][:1])


@pytest.mark.parametrize("format", ["kv4", "f16", "q8_0", "fp8_e4m3"])
@pytest.mark.parametrize("checks", [False, True])
def test_freed_pages(device, rng, format, checks):
    """An engine frees the pages before a sliding window, whose table then says anything."""
    tokens, page, window, pages = 200, 16, 20, 13
    spec = kvjit.Spec(k=format, v=format, head_dim=128, q_heads_per_kv=4, layout="paged", page_tokens=page,
                      window=[window, 0], checks=checks)
    program = kvjit.Program(spec, device)
    memory = tuple(on(program, np.full(size, 0xFF, np.uint8))
                   for size in kvjit.PagedCache.sizes(program, pages=pages + 1, kv_heads=1))
    cache = kvjit.PagedCache(program, pages=pages + 1, kv_heads=1, memory=memory)
    first = (tokens - 1 - window) // page  # the first page that the query sees; those before it were never written
    k, v, q = draw(rng, 1, tokens, 1, 128), draw(rng, 1, tokens, 1, 128), draw(rng, 1, 1, 4, 128)
    table = 1 + np.arange(pages, dtype=np.int32)[None]
    record = on(program, np.zeros(64, np.uint8)) if checks else None
    kvjit.append(cache, on(program, k[:, first * page:]), on(program, v[:, first * page:]), first_token=first * page,
                 table=on(program, table), check=record)
    held = [kvjit.read(cache, side, kvjit.Array(program.context, [1, tokens - first * page, 1, 128], "f32"),
                       first_token=first * page, table=on(program, table), check=record).numpy() for side in "kv"]
    want, _ = attention(q, *(x[:, tokens - 1 - window - first * page:] for x in held))
    for freed in (0, -1, 1000000, np.iinfo(np.int32).min):  # page 0 is a null page of 0xFF
        table[0, :first] = freed
        out = kvjit.attention(cache, on(program, q), tokens=tokens, table=on(program, table), check=record)
        assert error(out.numpy(), want) < LIMIT
        if checks:
            assert kvjit.read_check(program, record) is None
    if checks:
        table[0, first] = 1000000
        kvjit.attention(cache, on(program, q), tokens=tokens, table=on(program, table), check=record)
        assert kvjit.read_check(program, record)["index"] == first


def test_copy_between_formats_and_layouts(device, rng):
    source = kvjit.Program(kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, layout="rows"), device)
    target = kvjit.Program(kvjit.Spec(k="q8_0", v="q4_0", head_dim=64), device)
    k, v = draw(rng, 1, 40, 2, 64), draw(rng, 1, 40, 2, 64)
    cache = filled(source, k, v)
    copied = kvjit.Cache(target, kv_heads=2, capacity=40)
    kinds = kvjit.copy(cache, copied, tokens=30, source_token=10, target_token=5)
    assert kinds == {"k": "bytes", "v": "rotated"}  # neither format rotates
    found = kvjit.read(copied, "k", kvjit.Array(target.context, [1, 30, 2, 64], "f32"), first_token=5).numpy()
    assert np.array_equal(found, stored(cache, "k", k.shape)[:, 10:])


def test_shift_is_rope_at_the_later_position(device, rng):
    program = kvjit.Program(kvjit.Spec(k="f16", v="f16", head_dim=64), device)
    k = draw(rng, 1, 20, 1, 64)
    positions = np.arange(20, dtype=np.int32)[None]
    caches = []
    for offset in (0, 7):
        cache = kvjit.Cache(program, kv_heads=1, capacity=20)
        rope = kvjit.Rope(dims=64, positions=on(program, positions + offset))
        kvjit.append(cache, on(program, k), on(program, k), rope=rope)
        caches.append(cache)
    kvjit.shift(caches[0], kvjit.Rope(dims=64, positions=7), tokens=20)
    shifted, direct = (stored(cache, "k", k.shape) for cache in caches)
    assert error(shifted, direct) < 2e-3 and error(direct, k) > 0.1


def test_merge_of_two_parts_of_a_context(device, rng):
    spec = kvjit.Spec(k="f16", v="f16", head_dim=64, q_heads_per_kv=2, features=["lse"])
    program = kvjit.Program(spec, device)
    k, v, q = draw(rng, 1, 50, 2, 64), draw(rng, 1, 50, 2, 64), draw(rng, 1, 1, 4, 64)
    parts = []
    for begin, end in ((0, 20), (20, 50)):
        cache = filled(program, k[:, begin:end], v[:, begin:end])
        lse = kvjit.Array(program.context, [1, 1, 4], "f32")
        parts.append((kvjit.attention(cache, on(program, q), lse=lse), lse))
    lse = kvjit.Array(program.context, [1, 1, 4], "f32")
    want, want_lse = attention(q, k, v)
    assert error(kvjit.merge(program, parts, lse=lse).numpy(), want) < LIMIT
    assert error(lse.numpy(), want_lse) < LIMIT


def test_the_reference_kernel_agrees(device, rng):
    program = kvjit.Program(kvjit.Spec(k="kv4", v="kv4", q_heads_per_kv=4), device)
    cache = filled(program, draw(rng, 1, 70, 2, 128), draw(rng, 1, 70, 2, 128))
    q = on(program, draw(rng, 1, 1, 8, 128))
    out = kvjit.attention(cache, q)
    slow, report = kvjit.attention(cache, q, is_reference=True, with_report=True)
    assert any(name.startswith("reference.") for name in report.kernels) and error(out.numpy(), slow.numpy()) < LIMIT


def test_checks_on_the_device(device, rng):
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, checks=True)
    program = kvjit.Program(spec, device)
    record = kvjit.Array(program.context, [64], "u8").fill(bytes(64))
    k = draw(rng, 1, 10, 1, 64)
    cache = kvjit.Cache(program, kv_heads=1, capacity=10)
    kvjit.append(cache, on(program, k), on(program, k), check=record)
    assert kvjit.read_check(program, record) is None
    kvjit.attention(cache, on(program, draw(rng, 1, 1, 1, 64)), lengths=on(program, np.array([11], np.int32)),
                    check=record)
    found = kvjit.read_check(program, record)
    assert (found["array"], found["index"], found["value"], found["most"]) == ("lengths", 0, 11, 10)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_checks_by_slots(device, rng, dtype):
    """The slots of a pool are those of its pages, and of another cache those of a sequence; calls by slots have no
    table."""
    k = draw(rng, 1, 5, 1, 64)
    for layout in ({"layout": "paged", "page_tokens": 16},
                   {"layout": "paged", "page_tokens": 16, "page_layout": "rows"}, {}):
        program = kvjit.Program(kvjit.Spec(k="f16", v="f16", head_dim=64, checks=True, **layout), device)
        cache = kvjit.PagedCache(program, pages=4, kv_heads=1) if layout else kvjit.Cache(program, kv_heads=1,
                                                                                          capacity=64)
        record = kvjit.Array(program.context, [64], "u8").fill(bytes(64))
        slots = on(program, np.array([[16, 1, 18, -1, 63]], dtype))
        kvjit.append(cache, on(program, k), on(program, k), slots=slots, check=record)
        kvjit.append(cache, on(program, k), None, slots=slots, check=record, rope=kvjit.Rope(dims=64, positions=0))
        out = kvjit.Array(program.context, k.shape, "f16")
        kvjit.read(cache, "k", out, slots=slots, check=record)
        assert kvjit.read_check(program, record) is None
        k[:, 3] = 0  # a negative slot
        assert np.array_equal(out.numpy(), k)
        wrong = on(program, np.array([[16, 1, 64, -1, 63]], dtype))
        kvjit.append(cache, on(program, k), on(program, k), slots=wrong, check=record)
        found = kvjit.read_check(program, record)
        assert (found["array"], found["index"], found["value"], found["most"]) == ("slots", 2, 64, 63)


def test_a_mask_in_bits(device, rng):
    spec = kvjit.Spec(k="f16", v="f16", head_dim=64, query_length=3, features=["packed_mask"])
    program = kvjit.Program(spec, device)
    k, v, q = draw(rng, 1, 70, 1, 64), draw(rng, 1, 70, 1, 64), draw(rng, 1, 3, 1, 64)
    seen = rng.random((3, 40)) < 0.5  # of the last 40 tokens
    bits = np.packbits(np.pad(seen, ((0, 0), (0, 24))), axis=1, bitorder="little").view("<u4")
    cache = filled(program, k, v)
    out = kvjit.attention(cache, on(program, q), packed_mask=on(program, bits[None, None]), packed_tokens=40)
    mask = np.where(np.pad(seen, ((0, 0), (30, 0)), constant_values=True), 0, -np.inf)
    assert error(out.numpy(), attention(q, k, v, mask=mask)[0]) < LIMIT
    with pytest.raises(kvjit.ArrayError, match="packed_mask has shape"):
        kvjit.attention(cache, on(program, q), packed_mask=on(program, bits[None, None, :, :1]), packed_tokens=40)


def test_slopes_positions_and_ranges(device, rng):
    spec = kvjit.Spec(k="f16", v="f16", head_dim=64, q_heads_per_kv=2, q_type="f32",
                      features=["causal", "alibi", "position_offset", "token_ranges"])
    program = kvjit.Program(spec, device)
    k, v = draw(rng, 2, 50, 1, 64), draw(rng, 2, 50, 1, 64)
    q = rng.standard_normal((2, 1, 2, 64)).astype(np.float32)
    slopes = np.array(kvjit.alibi_slopes(8.0, 2), np.float32)
    assert slopes.tolist() == [2**-4, 2**-8]
    cache = filled(program, k, v)
    ranges = np.array([[5, 50], [0, 30]], np.int32)
    out = kvjit.attention(cache, on(program, q), slopes=on(program, slopes), position_offset=3,
                          token_ranges=on(program, ranges))
    at = np.arange(50)
    mask = -slopes[None, :, None, None] * np.abs(at - (49 + 3)) + np.where(
        (at >= ranges[:, :1]) & (at < ranges[:, 1:]), 0, -np.inf)[:, None, None]
    assert error(out.numpy(), attention(q, k, v, mask=mask)[0]) < LIMIT


def test_ranges_of_a_mask(device, rng):
    spec = kvjit.Spec(k="f16", v="f16", head_dim=64, features=["mask", "token_ranges"])
    program = kvjit.Program(spec, device)
    k, v, q = draw(rng, 2, 90, 1, 64), draw(rng, 2, 90, 1, 64), draw(rng, 2, 1, 1, 64)
    mask = np.full((2, 1, 1, 90), -np.inf, np.float16)
    mask[0, ..., 40:61], mask[1, ..., 7] = 0, 0
    cache = filled(program, k, v)
    ranges = kvjit.mask_ranges(cache, on(program, mask))
    assert ranges.numpy().tolist() == [[40, 61], [7, 8]]
    out = kvjit.attention(cache, on(program, q), mask=on(program, mask), token_ranges=ranges)
    assert error(out.numpy(), attention(q, k, v, mask=mask.astype(np.float64))[0]) < LIMIT


@pytest.mark.gpu
def test_cupy_on_a_stream_of_its_own(gpu_reason, rng):
    """A stream that does not wait for the default one: calls on it see what was written on it."""
    cupy = pytest.importorskip("cupy")
    if gpu_reason:
        pytest.skip(gpu_reason)
    program = kvjit.Program(kvjit.Spec(k="f16", v="f16", head_dim=64), "cuda")
    cache = kvjit.Cache(program, sequences=1, kv_heads=2, capacity=4096)
    q, k, v = (rng.standard_normal((1, tokens, 2, 64), np.float32) for tokens in (1, 4096, 4096))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        busy = cupy.ones((4096, 4096), cupy.float32)
        for _ in range(20):
            busy = busy @ busy * 1e-4
        kvjit.append(cache, cupy.asarray(k) + 0 * busy[0, 0], cupy.asarray(v) + 0 * busy[0, 0], stream=stream.ptr)
        out = kvjit.attention(cache, cupy.asarray(q).astype(cupy.float16), stream=stream.ptr)
        stream.synchronize()
    assert error(cupy.asarray(out).get(), attention(q, k, v)[0]) < 2e-3
