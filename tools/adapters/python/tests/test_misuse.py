"""Wrong devices, types, strides and shapes, closed handles, forks and threads: an exception, never a crash."""
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import kvjit

SPEC = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, q_heads_per_kv=2)


@pytest.fixture
def program(device):
    return kvjit.Program(SPEC, device)


@pytest.fixture
def cache(program):
    cache = kvjit.Cache(program, sequences=2, kv_heads=2, capacity=16)
    x = kvjit.Array(program.context, [2, 16, 2, 64], "f16").fill(bytes(2 * 16 * 2 * 64 * 2))
    kvjit.append(cache, x, x)
    return cache


def array(program, *shape, dtype="f16"):
    size = int(np.prod(shape)) * {"f16": 2, "f32": 4, "i32": 4, "u8": 1}[dtype]
    return kvjit.Array(program.context, shape, dtype).fill(bytes(size))


@pytest.mark.parametrize("make, message", [
    (lambda p: array(p, 2, 1, 4, 64, dtype="f32"), "q is f32; f16 is served"),
    (lambda p: array(p, 2, 1, 4, 32), r"q has shape \[2, 1, 4, 32\]; \[any, any, 4, 64\] is expected"),
    (lambda p: array(p, 2, 1, 3, 64), r"q has shape \[2, 1, 3, 64\]"),
    (lambda p: array(p, 3, 1, 4, 64), "3 sequences for a cache of 2"),
    (lambda p: array(p, 2, 2, 4, 64), "2 queries a sequence; the spec has query_length = 1"),
    (lambda p: array(p, 64), "q has shape"),
    (lambda p: [1.0], "list is no array"),
    (lambda p: None, "NoneType is no array"),
    (lambda p: np.zeros((2, 1, 4, 64), np.float64), "DLPack type 2 with 64 bits"),
])
def test_wrong_queries(program, cache, make, message):
    with pytest.raises(kvjit.ArrayError, match=message):
        kvjit.attention(cache, make(program))


def test_strides(cache):
    if cache.program.device != "cpu":
        pytest.skip("NumPy is on the CPU")
    wide = np.zeros((2, 1, 4, 128), np.float16)
    kvjit.attention(cache, wide[..., :64])  # any strides but the last
    with pytest.raises(kvjit.ArrayError, match="dense"):
        kvjit.attention(cache, wide[..., ::2])
    with pytest.raises(kvjit.ArrayError, match="lengths: .*dense"):
        kvjit.attention(cache, wide[..., :64], lengths=np.zeros(4, np.int32)[::2])
    backwards = np.zeros((2, 1, 4, 64), np.float16)[::-1]
    kvjit.attention(cache, backwards)


def test_another_device(program, cache):
    class Elsewhere:
        __cuda_array_interface__ = {"shape": (2, 1, 4, 64), "typestr": "<f2", "data": (1 << 40, False), "version": 3}

    if program.device != "cpu":
        with pytest.raises(kvjit.ArrayError, match="q is on cpu"):
            kvjit.attention(cache, np.zeros((2, 1, 4, 64), np.float16))
    else:
        with pytest.raises((kvjit.ArrayError, OSError)):
            kvjit.attention(cache, Elsewhere())
    with pytest.raises(kvjit.UsageError, match="no device"):
        kvjit.Program(SPEC, "tpu")
    with pytest.raises(kvjit.UnavailableError):
        kvjit.Program(SPEC, "cuda:99")


def test_no_room(program, cache):
    x = array(program, 2, 1, 2, 64)
    with pytest.raises(kvjit.ArrayError, match="tokens up to 17 for a capacity of 16"):
        kvjit.append(cache, x, x)
    assert cache.tokens == 16
    with pytest.raises(kvjit.ArrayError, match="tokens up to 17"):
        kvjit.attention(cache, array(program, 2, 1, 4, 64), tokens=17)
    with pytest.raises(kvjit.ArrayError, match="the memory of k has 8 bytes"):
        kvjit.Cache(program, kv_heads=2, capacity=16, memory=(array(program, 8, dtype="u8"),) * 2)
    with pytest.raises(kvjit.Error, match="workspace"):
        kvjit.attention(cache, array(program, 2, 1, 4, 64), workspace=array(program, 64, dtype="u8"))


def test_what_belongs_to_other_specs(program, cache):
    q = array(program, 2, 1, 4, 64)
    with pytest.raises(kvjit.UsageError, match="paged"):
        kvjit.PagedCache(program, pages=4, kv_heads=2)
    with pytest.raises(kvjit.UsageError, match="for paged caches"):
        kvjit.attention(cache, q, table=array(program, 2, 1, dtype="i32"))
    with pytest.raises(kvjit.UsageError, match="attention.append"):
        kvjit.attention(cache, q, new_k=q, new_v=q)
    with pytest.raises(kvjit.Error, match="mask"):
        kvjit.attention(cache, q, mask=array(program, 2, 1, 1, 16))
    with pytest.raises(kvjit.Error, match="lse"):
        kvjit.attention(cache, q, lse=array(program, 2, 1, 4, dtype="f32"))


def test_scales_of_heads(device):
    scaled = kvjit.Program(kvjit.Spec(k="vllm_fp8_per_head", v="kv4", head_dim=128), device)
    plain = kvjit.Program(kvjit.Spec(k="kv4", v="kv4", head_dim=128), device)
    ones = np.ones(3, np.float32)
    with pytest.raises(kvjit.UsageError, match="k_head_scales is missing"):
        kvjit.Cache(scaled, kv_heads=2, capacity=64)
    with pytest.raises(kvjit.UsageError, match="v_head_scales for a format that has no scale for each KV head"):
        kvjit.Cache(plain, kv_heads=2, capacity=64, v_head_scales=array(plain, 2, dtype="f32"))
    with pytest.raises(kvjit.ArrayError, match="k_head_scales has 3 scales; 1 or 2 are possible"):
        kvjit.Cache(scaled, kv_heads=2, capacity=64, k_head_scales=array(scaled, 3, dtype="f32"))
    if device != "cpu":
        with pytest.raises(kvjit.ArrayError):
            kvjit.Cache(scaled, kv_heads=2, capacity=64, k_head_scales=ones)


def test_closed(device):
    context = kvjit.Context(device)
    program = kvjit.Program(SPEC, context=context)
    cache = kvjit.Cache(program, kv_heads=2, capacity=16)
    x, q = array(program, 1, 4, 2, 64), array(program, 1, 1, 4, 64)
    kvjit.append(cache, x, x)
    closed = array(program, 1, 1, 4, 64)
    closed.close()
    with pytest.raises(kvjit.ClosedError, match="Array was closed"):
        kvjit.attention(cache, closed)
    other = kvjit.Cache(program, kv_heads=2, capacity=16)
    other.close()
    other.close()
    with pytest.raises(kvjit.ClosedError, match="Cache was closed"):
        kvjit.append(other, x, x)
    context.close()  # the program keeps what it needs
    with pytest.raises(kvjit.ClosedError):
        context.stats()
    program.close()
    with pytest.raises(kvjit.ClosedError, match="Program was closed"):
        kvjit.attention(cache, q)
    with kvjit.Context(device) as again:
        assert again.stats()["kernels"] == 0
    with pytest.raises(kvjit.ClosedError):
        again.synchronize()


def _in_child(cache, q, queue):
    try:
        kvjit.attention(cache, q)
        queue.put("served")
    except kvjit.ForkedError as problem:
        queue.put(str(problem))


def test_a_forked_child_gets_an_error(program, cache):
    q = array(program, 2, 1, 4, 64)
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_in_child, args=(cache, q, queue))
    child.start()
    assert "before the process was forked" in queue.get(timeout=60)
    child.join()
    assert child.exitcode == 0
    kvjit.attention(cache, q)  # the parent goes on


def test_a_forked_child_may_make_its_own(device):
    if device != "cpu":
        pytest.skip("CUDA cannot be used in a child of a process that used it")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kvjit.Program(SPEC, device)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_share_a_program(program):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((1, 30, 2, 64)).astype(np.float16)
        on = kvjit.Array(program.context, x.shape, "f16").fill(x.tobytes())
        cache = kvjit.Cache(program, kv_heads=2, capacity=30)
        kvjit.append(cache, on, on)
        q = array(program, 1, 1, 4, 64)  # zeros: the output is the mean of V
        workspace = kvjit.make_workspace(program.context, 1 << 22)
        for _ in range(20):
            out = kvjit.attention(cache, q, workspace=workspace).numpy()
            want = np.repeat(x[0].astype(np.float64).mean(0), 2, axis=0)
            if np.abs(out[0, 0] - want).max() > 5e-3:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_closing_while_another_thread_calls(device):
    program = kvjit.Program(SPEC, device)
    cache = kvjit.Cache(program, kv_heads=2, capacity=16)
    x, q = array(program, 1, 16, 2, 64), array(program, 1, 1, 4, 64)
    kvjit.append(cache, x, x)
    ended = []

    def work():
        try:
            for _ in range(2000):
                kvjit.attention(cache, q)
        except kvjit.ClosedError:
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    program.close()
    thread.join()
    assert ended


def test_nvrtc_of_packages_is_opened(tmp_path, monkeypatch):
    from kvjit import context
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.so.13.0.48", "libnvrtc.so.alt"):
        (folder / name).touch()
    older = tmp_path / "nvidia" / "cuda_nvrtc" / "lib"
    older.mkdir(parents=True)
    (older / "libnvrtc.so.12").touch()
    monkeypatch.setattr(context.importlib.util, "find_spec",
                        lambda name: type("Spec", (), {"submodule_search_locations": [str(tmp_path / name)]}))
    assert context.packaged_nvrtc() == [str(folder / "libnvrtc.so.13"), str(older / "libnvrtc.so.12")]
    monkeypatch.setattr(context.importlib.util, "find_spec", lambda name: None)
    assert context.packaged_nvrtc() == []


CYCLES = """
import gc, kvjit
program = kvjit.Program(kvjit.Spec(k="q8_0", v="q8_0", head_dim=64), context=kvjit.Context("{device}"))
cache = kvjit.Cache(program, kv_heads=2, capacity=64)
class Engine:
    def __init__(self):
        self.context = kvjit.Context("{device}")
        self.program = kvjit.Program(program.spec, context=self.context)
        self.cache = kvjit.Cache(self.program, kv_heads=2, capacity=64)
        self.me = self
Engine()
gc.collect()
def use():
    return cache, program
"""


def test_cycles_end_in_any_order(device):
    for _ in range(3):
        subprocess.run([sys.executable, "-c", CYCLES.format(device=device)], check=True)


def test_slots_do_not_hide_sequences(program):
    cache = kvjit.Cache(program, kv_heads=2, capacity=16)
    x = array(program, 3, 1, 2, 64)
    slots = array(program, 3, 1, dtype="i32")
    calls = [lambda: kvjit.append(cache, x, x, slots=slots), lambda: kvjit.read(cache, "k", x, slots=slots),
             lambda: kvjit.copy(cache, cache, sequences=3, tokens=1, source_slots=slots, target_slots=slots),
             lambda: kvjit.shift(cache, kvjit.Rope(dims=64, positions=1), sequences=3, tokens=1, slots=slots)]
    for call in calls:
        with pytest.raises(kvjit.ArrayError, match="3 sequences for a cache of 1"):
            call()


def test_parts_of_a_merge(device):
    program = kvjit.Program(kvjit.Spec(SPEC.to_dict(), features=["lse"]), device)
    for shape in ([1, 1, 4, 8], [1, 4, 4, 64], [1, 1, 3, 64]):
        part, lse = array(program, *shape, dtype="f32"), array(program, *shape[:-1], dtype="f32")
        with pytest.raises(kvjit.ArrayError, match=r"\[sequences, 1, query heads, 64\] is expected"):
            kvjit.merge(program, [(part, lse)])


def test_new_tokens_are_of_one_type(device):
    program = kvjit.Program(kvjit.Spec(SPEC.to_dict(), append=True), device)
    cache, q = kvjit.Cache(program, kv_heads=2, capacity=16), array(program, 1, 1, 4, 64)
    with pytest.raises(kvjit.ArrayError, match="different types"):
        kvjit.attention(cache, q, new_k=array(program, 1, 1, 2, 64), new_v=array(program, 1, 1, 2, 64, dtype="f32"))
    with pytest.raises(kvjit.ArrayError, match="different numbers of sequences"):
        kvjit.append(kvjit.Cache(program, sequences=2, kv_heads=2, capacity=16), array(program, 2, 1, 2, 64),
                     array(program, 1, 1, 2, 64))


def test_read_only_arrays_are_not_written(cache):
    if cache.program.device != "cpu":
        pytest.skip("NumPy is on the CPU")
    q = np.zeros((2, 1, 4, 64), np.float16)
    frozen = np.frombuffer(bytes(2 * 4 * 64 * 4), np.float32).reshape(2, 1, 4, 64)
    with pytest.raises(kvjit.ArrayError, match="out is written, and this array is read only"):
        kvjit.attention(cache, q, out=frozen)
    q.flags.writeable = False
    kvjit.attention(cache, q)  # it is only read

    class Odd:
        __array_interface__ = {"shape": (2,), "typestr": "<f4", "data": b"12345678", "version": 3}

    with pytest.raises(kvjit.ArrayError, match="no address"):
        kvjit.attention(cache, Odd())


def test_memory_lives_as_long_as_a_call(device):
    """close in another thread frees nothing that a call uses: the call holds it."""
    program = kvjit.Program(SPEC, device)
    cache = kvjit.Cache(program, kv_heads=2, capacity=4096)
    x, q = array(program, 1, 4096, 2, 64), array(program, 1, 1, 4, 64)
    kvjit.append(cache, x, x)
    from kvjit import operations
    ready = operations._Attention(cache, q)
    ready.set_workspace(program.workspace(ready.workspace_bytes()))
    cache.close(), q.close()
    ready.run()
    assert not np.any(ready.out.numpy())
