#!/usr/bin/env python3
"""Writes the small model of tools/examples/host_engine as a GGUF that stock llama.cpp runs.

usage: tinylm_to_gguf.py tinylm.safetensors tinylm.gguf [--window TOKENS]     (needs gguf, numpy, safetensors)

Its architecture is that of seed_oss: RMSNorm, biases of q, k and v, a free head size, rotary pairs over halves, SwiGLU.
A token is a byte: the vocabulary is GPT-2's alphabet of bytes, and its one merge never applies.

With --window, every second layer sees so many tokens only. The architecture is then that of granite_swa: its scales
are 1 or left out, and its sinks weigh nothing. Its rotary pairs are neighbours, so the rows of q and k are interleaved.
SPDX-License-Identifier: MIT
"""
import argparse

import gguf
import numpy as np
from byte_alphabet import byte_alphabet
from safetensors.numpy import load_file

HEAD_DIM = 128
NO_SINK = -1e4  # its exponential is 0 beside any score


def neighbouring_pairs(tensor):
    """The rows of heads, so that the two halves of each, the pairs of rotary embeddings, take alternate rows."""
    halves = tensor.reshape(-1, 2, HEAD_DIM // 2, *tensor.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(tensor.shape))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--window", type=int)
    args = parser.parse_args()
    weights = load_file(args.source)
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    dim, hidden = weights["layers.0.dn.weight"].shape
    heads, kv_heads = (weights[f"layers.0.{part}.weight"].shape[0] // HEAD_DIM for part in "qk")
    out = gguf.GGUFWriter(args.target, "granite_swa" if args.window else "seed_oss")
    out.add_name("tinylm")
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_block_count(layers)
    out.add_context_length(2048)
    out.add_embedding_length(dim)
    out.add_feed_forward_length(hidden)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(HEAD_DIM)
    out.add_value_length(HEAD_DIM)
    out.add_rope_dimension_count(HEAD_DIM)
    out.add_rope_freq_base(10000.0)
    out.add_layer_norm_rms_eps(1e-5)
    if args.window:
        out.add_logit_scale(1.0)
        out.add_sliding_window(args.window)
        out.add_sliding_window_pattern([layer % 2 == 0 for layer in range(layers)])
    out.add_vocab_size(256)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    alphabet = byte_alphabet()
    out.add_token_list(alphabet)
    out.add_token_types([gguf.TokenType.NORMAL] * 256)
    out.add_token_merges([f"{alphabet[0]} {alphabet[1]}"])  # the list must not be empty; this pair is no token
    out.add_eos_token_id(0)
    out.add_bos_token_id(0)
    out.add_add_bos_token(False)
    out.add_add_eos_token(False)
    parts = {"n1": "attn_norm", "n2": "ffn_norm" if args.window else "post_attention_norm", "q": "attn_q",
             "k": "attn_k", "v": "attn_v", "o": "attn_output", "g": "ffn_gate", "u": "ffn_up", "dn": "ffn_down"}
    others = {"emb.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "head.weight": "output.weight"}
    for name, tensor in weights.items():
        if name.startswith("layers."):
            _, layer, part, kind = name.split(".")
            target_name = f"blk.{layer}.{parts[part]}.{kind}"
            if args.window and part in ("q", "k"):
                tensor = neighbouring_pairs(tensor)
        else:
            target_name = others[name]
        out.add_tensor(target_name, tensor.astype(np.float32) if tensor.ndim == 1 else tensor)
    for layer in range(layers if args.window else 0):
        out.add_tensor(f"blk.{layer}.attn_sinks.weight", np.full(heads, NO_SINK, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
