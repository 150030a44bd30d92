#!/usr/bin/env python3
"""Generates text with a model of transformers whose cache is kvjit's.

Without --model the script makes a small Llama of random weights, so it needs no download: it then shows tokens and the
memory of the cache, and no sense.

    python llama_generate.py [--model NAME_OR_FOLDER] [--prompt TEXT] [--k kv4] [--v kv4] [--device cuda|cpu]

SPDX-License-Identifier: MIT
"""
import argparse
import time

import torch
import transformers

import kvjit.transformers


def small_model():
    """A Llama of random weights with heads of 128 dimensions."""
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=128, vocab_size=256, max_position_embeddings=32768)
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(config)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a name of the hub, or a folder; default: a small Llama of random weights")
    parser.add_argument("--prompt", default="The cache of keys and values")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--k", default="kv4")
    parser.add_argument("--v", default="kv4")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    dtype = torch.bfloat16 if args.device != "cpu" else torch.float32
    if args.model:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
        model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype, attn_implementation="kvjit")
        prompt = tokenizer(args.prompt, return_tensors="pt").input_ids
    else:
        model = small_model().to(dtype)
        model.set_attn_implementation("kvjit")
        prompt = torch.tensor([list(args.prompt.encode())])
    model = model.to(args.device).eval()

    cache = kvjit.transformers.KvjitCache(k=args.k, v=args.v)
    began = time.perf_counter()
    out = model.generate(prompt.to(args.device), past_key_values=cache, max_new_tokens=args.tokens, do_sample=False)
    seconds = time.perf_counter() - began
    print(tokenizer.decode(out[0]) if args.model else out[0, prompt.shape[1]:].tolist())
    print(f"{args.tokens} tokens in {seconds:.2f} s; the cache has {cache.nbytes} bytes for "
          f"{cache.get_seq_length()} tokens")


if __name__ == "__main__":
    main()
