"""Models of transformers with random weights: kvjit's cache against eager attention over transformers' own."""
import pytest

import kvjit

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import kvjit.transformers as kt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 200, "max_position_embeddings": 512, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 199}
FAMILIES = {
    "llama": ("Llama", {"head_dim": 64}),
    "qwen2": ("Qwen2", {"hidden_size": 256}),
    "qwen3": ("Qwen3", {"head_dim": 64}),
    "mistral": ("Mistral", {"head_dim": 64, "sliding_window": 16}),
    "gemma2": ("Gemma2", {"head_dim": 256, "query_pre_attn_scalar": 200, "attn_logit_softcapping": 20.0,
                          "sliding_window": 16}),
    "gemma3": ("Gemma3Text", {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 16,
                              "layer_types": ["sliding_attention", "full_attention"]}),
    "gpt_oss": ("GptOss", {"head_dim": 64, "sliding_window": 16, "num_local_experts": 2, "num_experts_per_tok": 1,
                           "layer_types": ["sliding_attention", "full_attention"]}),
}
NAMES = {"Gemma3Text": "Gemma3ForCausalLM"}


def model_of(family, device="cpu", **more):
    stem, sizes = FAMILIES[family]
    config = getattr(transformers, f"{stem}Config")(**(SIZES | sizes | more))
    torch.manual_seed(3)
    model = getattr(transformers, NAMES.get(stem, f"{stem}ForCausalLM"))(config).eval().to(device)
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    return model


def logits(model, tokens, cache, implementation, **inputs):
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(tokens, past_key_values=cache, use_cache=True, **inputs).logits


def distance(got, want):
    return ((got - want).norm() / want.norm()).item()


def tokens(batch, count, device="cpu", seed=5):
    return torch.randint(1, 199, (batch, count), generator=torch.Generator().manual_seed(seed)).to(device)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_and_steps(device, family):
    model, prompt = model_of(family, device), tokens(2, 40, device)
    caches = {"eager": transformers.DynamicCache(config=model.config), "kvjit": kt.KvjitCache("f16", "f16")}
    for step in (prompt, tokens(2, 1, device, 6), tokens(2, 3, device, 7), tokens(2, 1, device, 8)):
        want, got = (logits(model, step, cache, name) for name, cache in caches.items())
        assert distance(got, want) < 3e-3
    assert caches["kvjit"].get_seq_length() == 45


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(device, family, side):
    model, prompt = model_of(family, device), tokens(3, 30, device)
    mask = torch.ones_like(prompt)
    for row, padding in enumerate((0, 7, 19)):
        mask[row, slice(0, padding) if side == "left" else slice(30 - padding, 30)] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    want, got = (logits(model, prompt, cache, name, attention_mask=mask, position_ids=positions)
                 for name, cache in (("eager", transformers.DynamicCache()), ("kvjit", kt.KvjitCache("f16", "f16"))))
    assert distance(got[mask.bool()], want[mask.bool()]) < 3e-3


def generated(model, prompt, cache, **options):
    model.set_attn_implementation("eager" if cache is None else "kvjit")
    return model.generate(prompt, past_key_values=cache, max_new_tokens=12, **options).tolist()


@pytest.mark.parametrize("options", [
    {"do_sample": False},
    {"do_sample": False, "num_beams": 3},
    {"do_sample": False, "num_beams": 4, "num_return_sequences": 2},
    {"do_sample": False, "prompt_lookup_num_tokens": 3},
], ids=["greedy", "beams", "returned beams", "lookup"])
def test_generate(device, options):
    model = model_of("llama", device, num_hidden_layers=1)
    prompt = tokens(1, 24, device).repeat(1, 2)
    assert generated(model, prompt, kt.KvjitCache("f32", "f32"), **options) == generated(model, prompt, None, **options)


def test_assisted_generation(device):
    model, assistant = model_of("llama", device), model_of("llama", device, num_hidden_layers=1)
    prompt = tokens(1, 30, device)
    assistant.set_attn_implementation("eager")
    assert generated(model, prompt, kt.KvjitCache("f32", "f32"), do_sample=False, assistant_model=assistant) == \
        generated(model, prompt, None, do_sample=False)


def test_batches_with_padding_generate(device):
    model, prompt = model_of("qwen2", device), tokens(2, 20, device)
    mask = torch.ones_like(prompt)
    mask[1, :9] = 0
    options = {"do_sample": False, "attention_mask": mask}
    assert generated(model, prompt, kt.KvjitCache("f32", "f32"), **options) == generated(model, prompt, None, **options)


def test_formats_of_layers_and_memory():
    model, prompt = model_of("llama"), tokens(1, 40)
    cache = kt.KvjitCache("q4_0", "q4_0", layers={0: ("q8_0", "q8_0")}, max_tokens=64)
    logits(model, prompt, cache, "kvjit")
    assert [(layer.k, layer.v) for layer in cache.layers] == [("q8_0", "q8_0"), ("q4_0", "q4_0")]
    sizes = [layer.nbytes for layer in cache.layers]
    assert cache.nbytes == sum(sizes) and sizes[0] > 1.8 * sizes[1]


def test_growth_keeps_the_tokens():
    model = model_of("llama")
    grows, fits = kt.KvjitCache("kv4", "kv4"), kt.KvjitCache("kv4", "kv4", max_tokens=1600)
    model = model_of("llama", head_dim=128, max_position_embeddings=4096)
    for count, seed in ((10, 1), (1200, 2), (1, 3)):
        step = tokens(1, count, seed=seed)
        assert torch.equal(logits(model, step, grows, "kvjit"), logits(model, step, fits, "kvjit"))
    assert grows.layers[0]._memory.shape[2] == 1210 + 1024


# ---- What is refused ----


def test_another_attention_function_cannot_read_the_cache():
    model = model_of("llama")
    for name in ("eager", "sdpa"):
        with pytest.raises(kvjit.UnsupportedError, match="packed"):
            logits(model, tokens(1, 4), kt.KvjitCache("f16", "f16"), name)


def test_attention_needs_the_cache():
    with pytest.raises(kvjit.UnsupportedError, match="has none"):
        logits(model_of("llama"), tokens(1, 4), transformers.DynamicCache(), "kvjit")


def test_a_head_size_that_the_format_does_not_take():
    with pytest.raises(kvjit.Error, match="head_dim 64 is not a multiple of 128"):
        logits(model_of("llama"), tokens(1, 4), kt.KvjitCache("tbq4_0", "tbq4_0"), "kvjit")


def test_training_is_refused():
    model = model_of("llama", attention_dropout=0.1).train()
    model.set_attn_implementation("kvjit")
    with torch.no_grad(), pytest.raises(kvjit.UnsupportedError, match="dropout"):
        model(tokens(1, 4), past_key_values=kt.KvjitCache("f16", "f16"), use_cache=True)
    model.eval()
    with pytest.raises(NotImplementedError, match="no backward"):
        model(tokens(1, 4), past_key_values=kt.KvjitCache("f16", "f16"), use_cache=True)


def test_perplexity_of_the_small_model():
    """The table of examples/perplexity.py, in small: an exact cache costs nothing, one of two bits much."""
    import pathlib
    import sys
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
    import perplexity as example
    text = torch.tensor(list(pathlib.Path(example.__file__).read_bytes()))
    model = example.tinylm().eval()
    found = {}
    for k, make in [("eager", transformers.DynamicCache), *((name, lambda name=name: kt.KvjitCache(name, name))
                                                            for name in ("f16", "q8_0", "kv2"))]:
        model.set_attn_implementation("eager" if k == "eager" else "kvjit")
        found[k] = example.perplexity(model, text, 1, 96, 32, make)
    assert abs(found["f16"] / found["eager"] - 1) < 1e-3 and abs(found["q8_0"] / found["eager"] - 1) < 5e-3
    assert found["kv2"] > 1.02 * found["eager"]


# ---- Static caches ----


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss"])
def test_static(device, family):
    model = model_of(family, device)
    caches = {"eager": transformers.DynamicCache(config=model.config),
              "kvjit": kt.KvjitCache("f16", "f16", max_tokens=64, is_static=True)}
    for count, seed in ((40, 1), (1, 2), (3, 3), (1, 4)):
        step = tokens(2, count, device, seed)
        want, got = (logits(model, step, cache, name) for name, cache in caches.items())
        assert distance(got, want) < 3e-3
    assert int(caches["kvjit"].get_seq_length()) == 45


def test_static_caches_generate(device):
    model, prompt = model_of("llama", device), tokens(2, 20, device)
    mask = torch.ones_like(prompt)
    mask[1, :9] = 0
    static = lambda: kt.KvjitCache("f32", "f32", max_tokens=40, is_static=True)
    for options in ({"do_sample": False}, {"do_sample": False, "attention_mask": mask},
                    {"do_sample": False, "num_beams": 3}):
        assert generated(model, prompt, static(), **options) == generated(model, prompt, None, **options)


def test_steps_compile_as_one_graph(device):
    model = model_of("llama", device)
    compiled = torch.compile(model, fullgraph=True, backend="inductor" if device == "cuda" else "aot_eager")
    caches = [kt.KvjitCache("q8_0", "q8_0", max_tokens=64, is_static=True) for _ in range(2)]
    for cache in caches:
        logits(model, tokens(2, 30, device), cache, "kvjit")
    for seed in (1, 2, 3):
        step = tokens(2, 1, device, seed)
        with torch.no_grad():
            got = compiled(step, past_key_values=caches[0], use_cache=True).logits
        assert distance(got, logits(model, step, caches[1], "kvjit")) < 1e-3
    assert int(caches[0].get_seq_length()) == 33


def test_a_static_cache_that_is_full():
    cache = kt.KvjitCache("f16", "f16", max_tokens=16, is_static=True)
    model = model_of("llama")
    logits(model, tokens(1, 16), cache, "kvjit")
    with pytest.raises(RuntimeError, match="more tokens than max_tokens"):
        logits(model, tokens(1, 1), cache, "kvjit")
    with pytest.raises(kvjit.UsageError, match="max_tokens"):
        kt.KvjitCache(is_static=True)


def test_generate_compiles_a_fresh_static_cache():
    model, prompt = model_of("llama"), tokens(2, 20)
    config = transformers.CompileConfig(backend="aot_eager", fullgraph=True, mode=None)
    config._compile_all_devices = True
    mask = torch.ones_like(prompt)
    mask[1, :9] = 0
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for options in ({}, {"attention_mask": mask}):
        cache = kt.KvjitCache("f32", "f32", max_tokens=40, is_static=True)
        got = generated(model, prompt, cache, do_sample=False, compile_config=config, **options)
        assert got == generated(model, prompt, None, do_sample=False, **options)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


def test_a_fresh_static_cache_with_padding_on_the_right():
    model, prompt = model_of("llama"), tokens(2, 10)
    mask = torch.ones_like(prompt)
    mask[1, 6:] = 0
    want = logits(model, prompt, transformers.DynamicCache(), "eager", attention_mask=mask)
    cache = kt.KvjitCache("f16", "f16", max_tokens=64, is_static=True)
    got = logits(model, prompt, cache, "kvjit", attention_mask=mask)
    assert distance(got[mask.bool()], want[mask.bool()]) < 3e-3


def test_attention_that_is_not_causal_is_refused():
    with pytest.raises(kvjit.UnsupportedError, match="causal attention"):
        logits(model_of("llama"), tokens(1, 5), kt.KvjitCache("f16", "f16"), "kvjit", is_causal=False)


def test_a_window_that_only_the_mask_tells_of():
    config = transformers.Qwen2MoeConfig(**SIZES | {
        "hidden_size": 256, "sliding_window": 8, "use_sliding_window": True, "num_experts": 2, "num_experts_per_tok": 1,
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
        "layer_types": ["sliding_attention", "full_attention"]})
    torch.manual_seed(3)
    model = transformers.Qwen2MoeForCausalLM(config).eval()
    want = logits(model, tokens(1, 40), transformers.DynamicCache(config=config), "eager")
    assert distance(logits(model, tokens(1, 40), kt.KvjitCache("f16", "f16"), "kvjit"), want) < 3e-3


@pytest.mark.parametrize("options", [{}, {"max_tokens": 64, "is_static": True}], ids=["growing", "static"])
def test_copies_of_a_cache_go_on_by_themselves(options):
    import copy
    model = model_of("llama")
    cache = kt.KvjitCache("f16", "f16", layers={0: ("q8_0", "q8_0")}, **options)
    empty = copy.deepcopy(cache)
    logits(model, tokens(1, 20), cache, "kvjit")
    twin = copy.deepcopy(cache)
    steps = [logits(model, tokens(1, 3, seed=seed), each, "kvjit") for seed, each in ((1, cache), (2, twin))]
    logits(model, tokens(1, 20), empty, "kvjit")
    assert [layer.k for layer in empty.layers] == ["q8_0", "f16"]
    assert int(twin.get_seq_length()) == 23
    assert not torch.equal(steps[0], steps[1])
    twin.crop(-3)
    assert torch.equal(logits(model, tokens(1, 3, seed=1), twin, "kvjit"), steps[0])


@pytest.mark.parametrize("options", [{}, {"max_tokens": 64, "is_static": True}], ids=["growing", "static"])
def test_the_memory_is_free_as_soon_as_the_cache_is(options):
    import gc
    import weakref
    model = model_of("llama")
    cache = kt.KvjitCache("f16", "f16", **options)
    logits(model, tokens(1, 20), cache, "kvjit")
    gc.collect()
    gc.disable()
    try:
        memory = [weakref.ref(layer._memory.k) for layer in cache.layers]
        del cache
        assert [kept() for kept in memory] == [None, None]
    finally:
        gc.enable()


def test_crop_and_selection_as_transformers_does():
    model = model_of("llama")
    for options in ({}, {"max_tokens": 64, "is_static": True}):
        cache = kt.KvjitCache("f16", "f16", **options)
        cache.batch_repeat_interleave(2), cache.crop(-1)
        logits(model, tokens(2, 5), cache, "kvjit")
        cache.crop(-9)
        assert int(cache.get_seq_length()) == 0
        logits(model, tokens(2, 5), cache, "kvjit")
        cache.batch_select_indices(torch.tensor([False, True]))
        assert logits(model, tokens(1, 1), cache, "kvjit").shape[0] == 1
