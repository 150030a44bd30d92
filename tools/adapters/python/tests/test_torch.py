"""Operators of PyTorch: the bits of the plain interface, opcheck, compiled graphs, gradients, CUDA graphs."""
import pytest
from conftest import attention, error

import kvjit

torch = pytest.importorskip("torch")
import kvjit.torch as kt  # noqa: E402

SPEC = kvjit.Spec(k="kv4", v="kv4", head_dim=128, q_heads_per_kv=4, out_type="f16")


def draw(device, *shape, dtype=torch.float16, seed=[0]):
    seed[0] += 1
    generator = torch.Generator().manual_seed(seed[0])
    return torch.randn(shape, generator=generator).to(dtype).to(device)


def filled(device, spec=SPEC, tokens=50, **sizes):
    sizes = {"sequences": 2, "kv_heads": 2, "capacity": 64} | sizes
    cache = kt.Cache(spec, device=device, **sizes)
    head_dim = cache.program.head_dim
    k, v = (draw(device, sizes["sequences"], tokens, sizes["kv_heads"], head_dim) for _ in range(2))
    kt.append(cache, k, v)
    return cache, k, v


def arguments(cache, q, tokens):
    return (q, cache.k, cache.v, cache.workspace, cache.spec.line, cache.shape, tokens)


def test_bits_are_those_of_the_plain_interface(device):
    cache, k, v = filled(device)
    q = draw(device, 2, 1, 8, 128)
    plain = kvjit.Cache(cache.program, sequences=2, kv_heads=2, capacity=64)
    kvjit.append(plain, k, v)
    want = torch.empty_like(q)
    kvjit.attention(plain, q, out=want, tokens=50)
    for _ in range(2):  # the second call takes the struct of the first
        out = kt.attention(cache, q, tokens=50)
        assert out.dtype == torch.float16 and torch.equal(out, want)
    assert error(out.double().cpu().numpy(), attention(*(x.double().cpu().numpy() for x in (q, k, v)))[0]) < 0.2


def test_strides_of_any_kind(device):
    cache, k, v = filled(device)
    wide = draw(device, 2, 1, 16, 256)
    q = wide[:, :, ::2, :128]
    assert not q.is_contiguous()
    assert torch.equal(kt.attention(cache, q, tokens=50), kt.attention(cache, q.contiguous(), tokens=50))


def test_lengths_pages_and_lse(device):
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, q_heads_per_kv=2, layout="paged", page_tokens=16,
                      features=["lse"])
    cache = kt.Cache(spec, pages=10, kv_heads=2, batch=2, device=device)
    table = torch.tensor([[7, 2, 9], [4, 0, 1]], dtype=torch.int32, device=device)
    k, v, q = draw(device, 2, 48, 2, 64), draw(device, 2, 48, 2, 64), draw(device, 2, 1, 4, 64)
    token = torch.arange(48, device=device)
    slots = table.long()[:, token // 16] * 16 + token % 16
    kt.append(cache, k, v, slots=slots)
    lengths = torch.tensor([48, 20], dtype=torch.int32, device=device)
    out, lse = kt.attention(cache, q, tokens=48, table=table, lengths=lengths, with_lse=True)
    want, want_lse = attention(*(x.double().cpu().numpy() for x in (q, k, v)), lengths=[48, 20])
    assert error(out.double().cpu().numpy(), want) < 0.02 and error(lse.double().cpu().numpy(), want_lse) < 0.02


def test_append_in_the_call(device):
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, q_heads_per_kv=2, append=True)
    cache = kt.Cache(spec, kv_heads=1, capacity=64, device=device)
    k, v, q = draw(device, 1, 9, 1, 64), draw(device, 1, 9, 1, 64), draw(device, 1, 1, 2, 64)
    kt.append(cache, k[:, :8].contiguous(), v[:, :8].contiguous())
    out = kt.attention(cache, q, tokens=9, new_k=k[:, 8:], new_v=v[:, 8:])
    want, _ = attention(*(x.double().cpu().numpy() for x in (q, k, v)))
    assert error(out.double().cpu().numpy(), want) < 0.02


def test_opcheck(device):
    cache, k, v = filled(device)
    q = draw(device, 2, 1, 8, 128)
    lengths = torch.tensor([50, 7], dtype=torch.int32, device=device)
    torch.library.opcheck(torch.ops.kvjit.attention, arguments(cache, q, 50), {"lengths": lengths})
    torch.library.opcheck(torch.ops.kvjit.append, (k, v, cache.k, cache.v, cache.spec.line, cache.shape))
    lse, _, _ = filled(device, kvjit.Spec(SPEC.to_dict(), features=["lse"]))
    torch.library.opcheck(torch.ops.kvjit.attention_lse, arguments(lse, q, 50))
    appends, _, _ = filled(device, kvjit.Spec(SPEC.to_dict(), append=True))
    new = draw(device, 2, 1, 2, 128)
    torch.library.opcheck(torch.ops.kvjit.append_attention, (q, new, new, *arguments(appends, q, 50)[1:]))


def test_compiled_as_one_graph(device):
    cache, _, _ = filled(device)
    lengths = torch.tensor([50, 50], dtype=torch.int32, device=device)

    def step(q, k, v, slots, lengths):
        kt.append(cache, k, v, slots=slots)
        return kt.attention(cache, q * 2, lengths=lengths) + 1

    compiled = torch.compile(step, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    for token in (50, 51):
        q, k, v = draw(device, 2, 1, 8, 128), draw(device, 2, 1, 2, 128), draw(device, 2, 1, 2, 128)
        slots = torch.full((2, 1), token, device=device)
        lengths = torch.full((2,), token + 1, dtype=torch.int32, device=device)
        assert torch.equal(compiled(q, k, v, slots, lengths), step(q, k, v, slots, lengths))


def test_gradients_are_refused(device):
    cache, _, _ = filled(device)
    q = draw(device, 2, 1, 8, 128).requires_grad_()
    with pytest.raises(NotImplementedError, match="no backward"):
        kt.attention(cache, q, tokens=50)
    with torch.no_grad():
        kt.attention(cache, q, tokens=50)


def test_fake_tensors_give_shapes_without_a_device():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        memory = torch.empty(1 << 20, dtype=torch.uint8)
        q = torch.empty(3, 1, 8, 128, dtype=torch.float16)
        out = torch.ops.kvjit.attention(q, memory, memory, memory, SPEC.line, [3, 2, 64], 64)
        assert (out.shape, out.dtype) == (q.shape, torch.float16)


@pytest.mark.parametrize("change, message", [
    (lambda a: [a[0].float(), *a[1:]], "q is f32"),
    (lambda a: [a[0][:, :, :7], *a[1:]], r"q has shape \[2, 1, 7, 128\]"),
    (lambda a: [a[0], a[1][:-1], *a[2:]], "memory of k has"),
    (lambda a: [*a[:3], a[3][:100], *a[4:]], "workspace"),
    (lambda a: [*a[:6], 65], "tokens up to 65"),
    (lambda a: [*a[:5], [2, 3, 64], 50], "memory of k has|q has shape"),
    (lambda a: [a[0].transpose(1, 3).contiguous().transpose(1, 3), *a[1:]], "dense"),
])
def test_wrong_inputs_raise(device, change, message):
    cache, _, _ = filled(device)
    q = draw(device, 2, 1, 8, 128)
    with pytest.raises((kvjit.Error, RuntimeError, NotImplementedError), match=message):
        torch.ops.kvjit.attention(*change(list(arguments(cache, q, 50))))


@pytest.mark.gpu
def test_cuda_graph(gpu_reason):
    if gpu_reason or not torch.cuda.is_available():
        pytest.skip(gpu_reason or "torch has no GPU")
    cache, _, _ = filled("cuda")
    q, lengths = draw("cuda", 2, 1, 8, 128), torch.tensor([50, 50], dtype=torch.int32, device="cuda")
    eager = kt.attention(cache, q, lengths=lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kt.attention(cache, q, lengths=lengths)
    for length in (50, 20):
        lengths.fill_(length)
        graph.replay()
        assert torch.equal(out, kt.attention(cache, q, lengths=lengths))
    assert not torch.equal(out, eager)


def test_a_cache_has_pages_or_a_capacity():
    for sizes in ({}, {"pages": 4}, {"pages": 4, "capacity": 64}):
        with pytest.raises(kvjit.UsageError, match="`pages` if the layout is paged, else `capacity`"):
            kt.Cache(SPEC, kv_heads=2, device="cpu", **sizes)


def test_static_tensors_are_marked_as_torch_marks_them():
    import torch._dynamo
    ours, theirs = torch.empty(1), torch.empty(1)
    kt.mark_static(ours)
    torch._dynamo.mark_static_address(theirs)
    assert vars(ours) == vars(theirs) != {}


def test_known_calls_check_the_number_of_tokens(device):
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, layout="paged", page_tokens=16, features=["mask"])
    cache = kt.Cache(spec, pages=16, kv_heads=1, device=device)
    q, table = draw(device, 1, 1, 1, 64), torch.zeros(1, 2, dtype=torch.int32, device=device)
    mask = torch.zeros(1, 1, 1, 24, dtype=torch.float16, device=device)
    cache.k.zero_(), cache.v.zero_()
    kt.attention(cache, q, tokens=16, table=table, mask=mask)
    for tokens, message in ((25, "have 24"), (256, "have 24"), (0, "0 tokens")):
        with pytest.raises(kvjit.ArrayError, match=message):
            kt.attention(cache, q, tokens=tokens, table=table, mask=mask)


def test_a_workspace_serves_smaller_calls():
    spec = kvjit.Spec(k="q8_0", v="q8_0", head_dim=64, query_length="any", max_query_length=8192, features=["causal"])
    cache = kt.Cache(spec, kv_heads=8, capacity=4096, device="cpu")
    bytes = lambda queries: kt.make_workspace(cache.program, sequences=1, kv_heads=8, tokens=4096, queries=queries,
                                              device="cpu").numel()
    assert all(bytes(queries) <= cache.workspace.numel() for queries in (1, 3, 16, 17, 33, 200, 513, 2048, 8192))
    cache.k.zero_(), cache.v.zero_()
    kt.attention(cache, draw("cpu", 1, 17, 8, 64), tokens=40)


def test_gradients_are_refused_where_functions_are_compiled():
    cache, _, _ = filled("cpu")
    q = draw("cpu", 2, 1, 8, 128).requires_grad_()
    with pytest.raises(Exception, match="no backward"):
        torch.compile(lambda q: kt.attention(cache, q * 1, tokens=16).sum(), fullgraph=True, backend="aot_eager")(q)
    with pytest.raises(NotImplementedError, match="no backward"):
        torch.ops.kvjit.attention(*arguments(cache, q, 16))


def test_a_forked_child_makes_its_own_programs():
    import os
    parents = kt.program_of(SPEC, "cpu")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if kt.program_of(SPEC, "cpu") is not parents and kt.program_of(SPEC, "cpu").kernels else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
