"""kvjit for models of transformers: a cache of any of kvjit's formats, and the attention that reads it.

    import kvjit.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="kvjit")
    model.generate(**inputs, past_key_values=kvjit.transformers.KvjitCache(k="kv4", v="kv4"))

The import registers "kvjit" as an attention function and as a mask function. A layer stores its keys and values in the
packed cache, and attention reads that cache, prompts too. Nothing is dequantized to tensors: a model that uses another
attention function with this cache gets an error, as does one that asks for what kvjit does not serve.

Masks. A causal mask, and one with a sliding window, are features of the kernel. Padding on the left becomes a range of
tokens for each sequence. Every other mask is given to the kernel as numbers.
SPDX-License-Identifier: MIT
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, Cache
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function, sdpa_mask

from . import errors
from . import torch as operators
from .spec import Spec

NAME = "kvjit"
MOST_QUERIES = 8192  # of one call; longer prompts take several
GROWTH_TOKENS = 1024  # a cache grows by so many tokens, or by an eighth if that is more
_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
_SERVED = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_ids", "cache_position",
           "use_cache", "output_attentions", "output_hidden_states", "dropout", "logits_to_keep",
           "num_items_in_batch", "return_dict"}  # arguments of attention functions that change nothing here


class PackedStatesError(errors.UnsupportedError, AttributeError):
    """Something else than kvjit's attention asked for the numbers of a KvjitCache."""


class PackedStates:
    """What a layer gives for its keys and for its values: they are packed, so there are no tensors to read."""

    def __init__(self, layer):
        self.layer = layer

    @staticmethod
    def _refuse(what):
        raise PackedStatesError(
            f"{what}: the keys and values of a KvjitCache are packed",
            ['load the model with attn_implementation="kvjit", or call model.set_attn_implementation("kvjit")'])

    def __getattr__(self, name):
        self._refuse(f"'{name}' was asked of a layer's states")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls._refuse(f"{function} was asked to read a layer's states")


# ---- The cache ----


class KvjitLayer(CacheLayerMixin):
    """The packed keys and values of one layer: [batch, kv_heads, tokens, head_dim] in kvjit's layout planar."""

    is_sliding = False
    is_croppable = True
    is_compileable = False
    supports_early_init = False

    def __init__(self, k, v, shared, index, capacity=0):
        super().__init__()
        self.k, self.v, self._shared, self._index, self._capacity = k, v, shared, index, capacity
        self._tokens, self._memory = 0, None

    def __repr__(self):
        return f"KvjitLayer(k={self.k!r}, v={self.v!r}, tokens={self._tokens})"

    def lazy_initialization(self, key_states, value_states):
        self.batch_size, self._heads = key_states.shape[:2]
        self._dims = (key_states.shape[3], value_states.shape[3])
        self.device, self.dtype = key_states.device, key_states.dtype
        if self.dtype not in _TYPES:
            raise errors.UnsupportedError(f"keys of {self.dtype}; kvjit takes float16, bfloat16 and float32")
        self.is_initialized = True

    def _spec(self, **more):
        return _spec(_frozen(self.k), _frozen(self.v), tuple(_dims_of(self._dims).items()), tuple(more.items()))

    def _allocate(self, sequences, capacity):
        # The memory depends on formats and sizes alone, so every program of these formats reads it.
        return operators.Cache(self._spec(), sequences=sequences, kv_heads=self._heads, capacity=capacity,
                               device=self.device, workspace=self._shared.no_workspace(self.device))

    def _reserve(self, tokens):
        has = self._memory.shape[2] if self._memory is not None else 0
        if tokens <= has:
            return
        if has == 0:
            capacity = max(tokens + GROWTH_TOKENS, self._capacity)
        else:
            capacity = tokens + max(GROWTH_TOKENS, tokens // 8)
        grown = self._allocate(self.batch_size, capacity)
        if self._tokens:
            for source, target in zip(self._memory.planes(), grown.planes()):
                target[:, :, :self._tokens] = source[:, :, :self._tokens]
        self._memory = grown

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[0] != self.batch_size:
            raise errors.ArrayError(f"a batch of {key_states.shape[0]} for a cache of {self.batch_size} sequences")
        tokens = self._tokens + key_states.shape[2]
        self._reserve(tokens)
        operators.append(self._memory, key_states.transpose(1, 2), value_states.transpose(1, 2),
                         first_token=self._tokens)
        self._tokens = tokens
        return PackedStates(self), PackedStates(self)

    def attention(self, q, *, scale, features, **inputs):
        """Attention of q [batch, queries, query heads, head_dim] over the cache. Long prompts take several calls."""
        queries, heads = q.shape[1:3]
        features = {"q_heads_per_kv": heads // self._heads, "q_type": _TYPES[q.dtype], "out_type": _TYPES[q.dtype],
                    **features}
        mask = inputs.pop("mask", None)
        outputs = []
        for begin in range(0, queries, MOST_QUERIES):
            part = q[:, begin:begin + MOST_QUERIES]
            end = begin + part.shape[1]
            if mask is not None:
                inputs["mask"] = mask[:, :, begin:end] if mask.shape[2] > 1 else mask
            later = 0 if mask is not None else queries - end
            outputs.append(self._attend(part, later, scale, features, inputs))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)

    def _attend(self, q, later, scale, features, inputs):
        """One call: `later` tokens at the end of the cache belong to later queries."""
        spec = self._spec(**features, **_shape_of(q.shape[1]))
        workspace = self._shared.workspace(spec, q.device, q.shape[0], q.shape[1], self._memory.shape)
        return operators.attention(self._memory, q, tokens=self._tokens - later, scale=scale, spec=spec,
                                   workspace=workspace, **inputs)

    def tokens_at_most(self):
        """How many tokens attention may see."""
        return self._tokens

    def get_mask_sizes(self, query_length):
        return self._tokens + query_length, 0

    def get_seq_length(self):
        return self._tokens

    def get_max_length(self):
        return -1

    def reset(self):
        self._tokens, self._memory, self.is_initialized = 0, None, False

    def crop(self, tokens_to_remove):
        """Forgets the last tokens; transformers gives their number as a negative one."""
        if tokens_to_remove > 0:
            raise errors.UsageError(f"crop takes the tokens to remove as a negative number, not {tokens_to_remove}")
        self._tokens = max(self._tokens + int(tokens_to_remove), 0)

    def _select(self, indices):
        if self._memory is None:
            return
        if indices.dtype == torch.bool:
            indices = indices.nonzero().flatten()
        chosen = self._allocate(len(indices), self._memory.shape[2])
        indices = indices.to(self.device)
        for source, target in zip(self._memory.planes(), chosen.planes()):
            target[:, :, :self._tokens] = source[:, :, :self._tokens].index_select(0, indices)
        self._memory, self.batch_size = chosen, len(indices)

    def reorder_cache(self, beam_idx):
        self._select(beam_idx)

    def batch_select_indices(self, indices):
        self._select(indices)

    def batch_repeat_interleave(self, repeats):
        if self._memory is not None:
            self._select(torch.arange(self.batch_size).repeat_interleave(repeats))

    def offload(self):
        raise errors.UnsupportedError("a KvjitCache cannot be offloaded to the host")

    prefetch = offload

    @property
    def nbytes(self):
        return self._memory.nbytes if self._memory is not None else 0


class StaticKvjitLayer(KvjitLayer):
    """A layer with room for a number of tokens, whose length is on the device: steps of decode change no address and no
    number of the host, so they can be compiled and captured in a CUDA graph."""

    is_compileable = True

    def lazy_initialization(self, key_states, value_states):
        super().lazy_initialization(key_states, value_states)
        self._memory = self._allocate(self.batch_size, self._capacity)
        self._length = torch.zeros((), dtype=torch.int64, device=self.device)
        self._spec_line, self._workspace = self._spec().line, None
        self._counts = self._shared.counts(self.device, self._index)
        operators.mark_static(self._length)

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        tokens = key_states.shape[2]
        slots = torch.arange(tokens, device=self.device) + self._length
        self._length.add_(tokens)
        if self._counts:
            torch._assert_async(self._length <= self._capacity, "more tokens than max_tokens of a static KvjitCache")
        slots = torch.where(slots < self._capacity, slots, -1).expand(self.batch_size, tokens).contiguous()
        memory = self._memory
        torch.ops.kvjit.append(key_states.transpose(1, 2), value_states.transpose(1, 2), memory.k, memory.v,
                               self._spec_line, memory.shape, slots=slots)
        return PackedStates(self), PackedStates(self)

    def _attend(self, q, later, scale, features, inputs):
        lengths = (self._length - later).to(torch.int32).expand(self.batch_size).contiguous()
        spec = _spec_line(_frozen(self.k), _frozen(self.v), self._dims, tuple(features.items()), q.shape[1])
        if not torch.compiler.is_compiling():
            self._reserve_workspace(q, features)
        workspace, memory = self._workspace, self._memory
        return torch.ops.kvjit.attention(q, memory.k, memory.v, workspace, spec, memory.shape, self._capacity,
                                         lengths=lengths, scale=scale or 0.0, **inputs)

    def _reserve_workspace(self, q, features):
        """For this call, and for the steps that follow a prompt."""
        for queries in (q.shape[1], 1):
            spec = self._spec(**features, **_shape_of(queries))
            self._workspace = self._shared.workspace(spec, q.device, q.shape[0], queries, self._memory.shape)

    def tokens_at_most(self):
        return self._capacity

    def get_mask_sizes(self, query_length):
        return self._capacity, 0

    def get_seq_length(self):
        return self._length if self.is_initialized else 0

    def get_max_length(self):
        return self._capacity

    def reset(self):
        if self.is_initialized:
            self._length.zero_()

    def crop(self, tokens_to_remove):
        if tokens_to_remove > 0:
            raise errors.UsageError(f"crop takes the tokens to remove as a negative number, not {tokens_to_remove}")
        if self.is_initialized:
            self._length.add_(int(tokens_to_remove)).clamp_(min=0)

    def _select(self, indices):
        if self.is_initialized:
            self._tokens = self._capacity
            super()._select(indices)


class _Shared:
    """What the layers of a cache share, by device: workspaces, and which layer counts tokens. It refers neither to them
    nor to the cache, so that their memory is free as soon as the cache is."""

    def __init__(self):
        self._workspaces: dict[torch.device, torch.Tensor] = {}
        self._none: dict[torch.device, torch.Tensor] = {}
        self._counting: dict[torch.device, int] = {}

    def counts(self, device, index):
        """Whether the layer of this index is the one of its device that checks the number of tokens."""
        return self._counting.setdefault(device, index) == index

    def no_workspace(self, device):
        """What a layer's memory takes as its workspace: calls bring the shared one."""
        if device not in self._none:
            self._none[device] = torch.empty(0, dtype=torch.uint8, device=device)
        return self._none[device]

    def workspace(self, spec, device, batch, queries, shape):
        """The workspace that all layers of a device share. It grows."""
        needs = _workspace_bytes(spec, device, batch, shape[1], shape[2], queries)
        found = self._workspaces.get(device)
        if found is None or found.numel() < needs:
            found = self._workspaces[device] = torch.zeros(needs, dtype=torch.uint8, device=device)
            operators.mark_static(found)
        return found


class _Layers:
    """Makes the layers of a cache, one a call."""

    def __init__(self, k, v, choose, max_tokens, is_static):
        self._default, self._choose, self._max_tokens = (k, v), choose, max_tokens
        self._layer = StaticKvjitLayer if is_static else KvjitLayer
        self._shared, self._made = _Shared(), 0

    def __call__(self):
        index, self._made = self._made, self._made + 1
        k, v = self._choose(index) or self._default
        return self._layer(k, v, self._shared, index, self._max_tokens)


class KvjitCache(Cache):
    """A cache of packed keys and values for `past_key_values`.

    Args:
        k, v: formats: names that `kvjit formats` lists, or dicts of a spec's side.
        layers: other formats of some layers: {layer: (k, v)}, or a function of the layer that returns (k, v) or None.
        max_tokens: tokens that are reserved from the start, for each sequence; more are added as needed.
        is_static: `max_tokens` is all there is. Decode can then be compiled; `generate` does so on a GPU, with CUDA
            graphs, as with transformers' StaticCache. More tokens are an assertion of the device, which CUDA reports
            late.

    Attributes:
        nbytes: the memory of all layers, bytes.
    """

    def __init__(self, k: str | dict[str, Any] = "kv4", v: str | dict[str, Any] = "kv4", *,
                 layers: dict[int, tuple[str, str]] | Callable[[int], tuple[str, str] | None] | None = None,
                 max_tokens: int = 0, is_static: bool = False):
        if is_static and max_tokens < 1:
            raise errors.UsageError("a static cache needs max_tokens")
        self._max_tokens, self._is_static = max_tokens, is_static
        choose = layers if callable(layers) else (layers or {}).get
        super().__init__(layer_class_to_replicate=_Layers(  # type: ignore[arg-type]  # what makes layers will do
            k, v, choose, max_tokens, is_static))

    @property
    def is_compileable(self):
        return self._is_static  # `generate` asks before the first layer is there

    def get_mask_sizes(self, query_length, layer_idx):
        if layer_idx >= len(self.layers) and self._is_static:
            return self._max_tokens, 0
        return super().get_mask_sizes(query_length, layer_idx)

    def get_max_length(self, layer_idx=None):
        return self._max_tokens if self._is_static else -1

    @property
    def nbytes(self):
        return sum(layer.nbytes for layer in self.layers)


def _frozen(side):
    return side if isinstance(side, str) else tuple(sorted(side.items()))


@functools.lru_cache(maxsize=4096)
def _spec(k, v, dims, more):
    sides = [side if isinstance(side, str) else dict(side) for side in (k, v)]
    keywords = {key: list(value) if isinstance(value, tuple) else value for key, value in (*dims, *more)}
    return Spec(k=sides[0], v=sides[1], **keywords)


def _shape_of(queries):
    return {} if queries == 1 else {"query_length": "any", "max_query_length": MOST_QUERIES}


def _dims_of(dims):
    return {"head_dim": dims[0]} if dims[0] == dims[1] else {"head_dim_k": dims[0], "head_dim_v": dims[1]}


@torch.compiler.assume_constant_result
def _spec_line(k, v, dims, features, queries):
    """The text of a spec. A compiled function holds it as a constant."""
    return _spec(k, v, tuple(_dims_of(dims).items()), (*features, *_shape_of(queries).items())).line


@functools.lru_cache(maxsize=65536)
def _workspace_bytes(spec, device, sequences, kv_heads, tokens, queries):
    return operators.workspace_bytes(operators.program_of(spec, device), sequences=sequences, kv_heads=kv_heads,
                                     tokens=tokens, queries=queries)


# ---- Masks ----


def _is_causal_with_window(function):
    """Whether a mask function is transformers' sliding_window_causal_mask_function: what it closes over says so."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    parts = next((part for part in cells if isinstance(part, tuple)), ())
    names = [getattr(part, "__qualname__", "") for part in parts]
    return function.__qualname__ == "and_masks.<locals>.and_mask" and names == [
        "sliding_window_overlay.<locals>.inner_mask", "causal_mask_function"]


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function,
         attention_mask=None, **kwargs):
    """The mask of a forward pass, for transformers' AttentionMaskInterface.

    Returns:
        None: causal, with the layer's window. int32 [batch, 1, 1, 2]: the same, and the range of tokens that each
        sequence has. bool [batch, 1, queries, tokens]: any other mask. All have four dimensions, which tells
        transformers that they are ready.
    """
    is_plain = mask_function is causal_mask_function or _is_causal_with_window(mask_function)
    if is_plain:
        if attention_mask is None:
            return None
        visible = attention_mask[:, kv_offset:kv_offset + kv_length].to(torch.bool)
        begin = visible.int().argmax(1, keepdim=True)
        is_left_padded = (visible == (torch.arange(visible.shape[1], device=visible.device) >= begin)).all()
        if is_left_padded:
            if not begin.any():
                return None
            return torch.cat([begin, torch.full_like(begin, kv_length)], 1).int()[:, None, None]
    return sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                     kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
                     **(kwargs | {"allow_is_causal_skip": False}))


def _numbers(visible):
    """A mask of bool, or one that is added to scores, as f16 numbers for the kernel."""
    if visible.dtype == torch.bool:
        return torch.zeros_like(visible, dtype=torch.float16).masked_fill_(~visible, -torch.inf)
    return visible.clamp(min=-torch.inf).to(torch.float16).masked_fill(visible < -60000, -torch.inf)


# ---- Attention ----


def _window_of(module):
    """The sliding window of a layer whose model tells the mask alone of it; None: all tokens."""
    config, layer = getattr(module, "config", None), getattr(module, "layer_idx", None)
    types = getattr(config, "layer_types", None)
    if types is None or layer is None or types[layer] not in ("sliding_attention", "hybrid_sliding"):
        return None
    return getattr(config, "sliding_window", None)


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None, sliding_window=None,
              s_aux=None, is_causal=None, **kwargs):
    """The attention function of `attn_implementation="kvjit"`: query [batch, query heads, queries, head_dim].

    Returns:
        The output [batch, queries, query heads, head_dim], and None for the weights.
    """
    if not isinstance(key, PackedStates):
        raise errors.UnsupportedError(
            'attn_implementation="kvjit" reads a KvjitCache, and this call has none',
            ["pass past_key_values=kvjit.transformers.KvjitCache(...) and use_cache=True"])
    if module.training and dropout:
        raise errors.UnsupportedError("kvjit serves no dropout; call model.eval()")
    refused = [name for name, given in kwargs.items() if given is not None and given is not False and
               name not in _SERVED]
    if refused:
        raise errors.UnsupportedError(f"kvjit serves no attention with {', '.join(refused)}")
    if sliding_window is None:
        sliding_window = _window_of(module)
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    features, inputs, names = {}, {}, []
    queries = query.shape[2]
    if not is_causal and queries > 1 and attention_mask is None:
        raise errors.UnsupportedError("kvjit serves prompts with causal attention, or with a mask")
    if attention_mask is not None and attention_mask.dtype != torch.int32:
        names.append("mask")
        inputs["mask"] = _numbers(attention_mask)
    else:
        if attention_mask is not None:
            names.append("token_ranges")
            inputs["token_ranges"] = attention_mask[:, 0, 0]
        if sliding_window is not None and key.layer.tokens_at_most() > sliding_window:
            features["window"] = (sliding_window - 1, 0)
        elif queries > 1:
            names.append("causal")
    if softcap is not None:
        features["softcap"] = float(softcap)
    if s_aux is not None:
        names.append("sinks")
        inputs["sinks"] = s_aux.detach().float()
    if names:
        features["features"] = tuple(names)
    return key.layer.attention(query.transpose(1, 2), scale=scaling, features=features, **inputs), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)
