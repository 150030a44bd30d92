"""An attention backend of vLLM 0.33 whose kernels are kvjit's, for the cache dtypes turboquant_*.

It takes vLLM's own TurboQuant backend as it is (the layout of the cache, the metadata, which head sizes) and replaces
the two calls of its implementation: storing tokens, and attention. vLLM must be installed. Prompts attend to the cache,
as later steps do; vLLM's own backend lets the first part of a prompt attend to its keys before they are quantized.
SPDX-License-Identifier: MIT
"""
from vllm.v1.attention.backends.turboquant_attn import TurboQuantAttentionBackend, TurboQuantAttentionImpl

from . import errors, vllm


class KvjitTurboQuantImpl(TurboQuantAttentionImpl):
    """One layer."""

    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None,
                 kv_cache_dtype="auto", logits_soft_cap=None, attn_type="decoder", kv_sharing_target_layer_name=None,
                 **kwargs):
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window, kv_cache_dtype,
                         logits_soft_cap, attn_type, kv_sharing_target_layer_name, **kwargs)
        if alibi_slopes is not None:
            raise errors.UnsupportedError("kvjit's backend of vLLM serves no ALiBi")
        self.kvjit_window = sliding_window
        self.kvjit_softcap = logits_soft_cap
        self.kvjit_dtype = kv_cache_dtype

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        """kv_cache: bytes [blocks, kv_heads, block_size, slot], as vLLM gives it to layers."""
        tokens = slot_mapping.shape[0]
        shape = (tokens, self.num_kv_heads, self.head_size)
        vllm.turboquant_store(key[:tokens].view(shape), value[:tokens].view(shape), kv_cache.transpose(1, 2),
                              slot_mapping, self.kvjit_dtype)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output=None, output_scale=None,
                output_block_scale=None):
        if output_scale is not None or output_block_scale is not None:
            raise errors.UnsupportedError("kvjit's backend of vLLM writes no quantized output")
        if output is None:
            output = query.new_zeros(query.shape[0], self.num_heads * self.head_size)
        if attn_metadata is None or attn_metadata.num_actual_tokens == 0:
            return output.fill_(0)  # a run that only measures memory
        tokens = attn_metadata.num_actual_tokens
        shape = (-1, self.num_heads, self.head_size)
        vllm.paged_attention(
            output.view(shape)[:tokens], query.view(shape)[:tokens], kv_cache.transpose(1, 2), None,
            attn_metadata.block_table, attn_metadata.seq_lens, attn_metadata.query_start_loc,
            attn_metadata.max_query_len, attn_metadata.max_seq_len, self.scale, self.kvjit_dtype,
            sliding_window=self.kvjit_window, logits_soft_cap=self.kvjit_softcap)
        return output


class KvjitTurboQuantBackend(TurboQuantAttentionBackend):
    """vLLM's TURBOQUANT with kvjit's implementation."""

    @staticmethod
    def get_impl_cls():
        return KvjitTurboQuantImpl
