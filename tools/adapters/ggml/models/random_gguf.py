#!/usr/bin/env python3
"""Writes a GGUF of the shape of Llama 3 8B, or of another, with random weights of q4_0, to time llama-bench without a
download. What the model says makes no sense.

usage: random_gguf.py OUT.gguf [--layers 32] [--dim 4096] [--heads 32] [--kv-heads 8] [--hidden 14336] [--head-dim 128]
(needs gguf and numpy)
SPDX-License-Identifier: MIT
"""
import argparse

import gguf
import numpy as np
from byte_alphabet import byte_alphabet

VOCABULARY = 256


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    sizes = {"layers": 32, "dim": 4096, "heads": 32, "kv-heads": 8, "hidden": 14336, "head-dim": 128}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q4_0]
    random = np.random.default_rng(0)
    out = gguf.GGUFWriter(args.out, "llama")
    out.add_name(f"random {args.layers} x {args.dim}")
    out.add_block_count(args.layers)
    out.add_context_length(1 << 20)
    out.add_embedding_length(args.dim)
    out.add_feed_forward_length(args.hidden)
    out.add_head_count(args.heads)
    out.add_head_count_kv(args.kv_heads)
    out.add_key_length(args.head_dim)
    out.add_value_length(args.head_dim)
    out.add_rope_dimension_count(args.head_dim)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(500000.0)
    out.add_vocab_size(VOCABULARY)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    characters = byte_alphabet()
    out.add_token_list(characters)
    out.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
    out.add_token_merges([f"{characters[0]} {characters[1]}"])
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    out.add_add_bos_token(False)

    def weights(name, rows, columns):
        raw = random.integers(0, 256, (rows, columns // block, block_bytes), dtype=np.uint8)
        scale = np.float16((1 / columns) ** 0.5 / 4.6)  # random codes have a deviation of 4.6: rows of unit gain
        raw[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
        out.add_tensor(name, raw.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def norm(name):
        out.add_tensor(name, np.ones(args.dim, np.float32))

    weights("token_embd.weight", VOCABULARY, args.dim)
    weights("output.weight", VOCABULARY, args.dim)
    norm("output_norm.weight")
    for layer in range(args.layers):
        at = f"blk.{layer}."
        norm(at + "attn_norm.weight")
        norm(at + "ffn_norm.weight")
        weights(at + "attn_q.weight", args.heads * args.head_dim, args.dim)
        weights(at + "attn_k.weight", args.kv_heads * args.head_dim, args.dim)
        weights(at + "attn_v.weight", args.kv_heads * args.head_dim, args.dim)
        weights(at + "attn_output.weight", args.dim, args.heads * args.head_dim)
        weights(at + "ffn_gate.weight", args.hidden, args.dim)
        weights(at + "ffn_up.weight", args.hidden, args.dim)
        weights(at + "ffn_down.weight", args.dim, args.hidden)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
