#!/usr/bin/env python3
"""What a format of the cache costs in perplexity, by transformers: a table of formats.

Without --model, the model is the small one of ../../../examples/host_engine: a Qwen2 of bytes. A window of the text is
fed in chunks, so that every chunk but the first reads what the cache holds of the earlier ones.

    python perplexity.py --text FILE [--formats f16,q8_0,kv4] [--windows 16] [--context 2048] [--chunk 128]

SPDX-License-Identifier: MIT
"""
import argparse
import math
import pathlib

import torch
import transformers

import kvjit.transformers

TINYLM = pathlib.Path(__file__).resolve().parents[3] / "examples/host_engine/tinylm.safetensors"
PARTS = {"n1": "input_layernorm", "n2": "post_attention_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
         "v": "self_attn.v_proj", "o": "self_attn.o_proj", "g": "mlp.gate_proj", "u": "mlp.up_proj",
         "dn": "mlp.down_proj"}
OTHERS = {"emb": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
HEAD_DIM = 128


def tinylm(path=TINYLM):
    """The small model as a Qwen2: RMSNorm, biases of q, k and v, rotary pairs over halves, SwiGLU, tokens of a byte."""
    from safetensors.torch import load_file
    weights = load_file(path)
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    dim, hidden = weights["layers.0.dn.weight"].shape
    heads, kv_heads = (weights[f"layers.0.{part}.weight"].shape[0] // HEAD_DIM for part in "qk")
    config = transformers.Qwen2Config(
        vocab_size=256, hidden_size=dim, intermediate_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=HEAD_DIM, rms_norm_eps=1e-5, max_position_embeddings=2048,
        tie_word_embeddings=False)
    model = transformers.Qwen2ForCausalLM(config)
    names = {}
    for name, tensor in weights.items():
        if name.startswith("layers."):
            _, layer, part, kind = name.split(".")
            names[f"model.layers.{layer}.{PARTS[part]}.{kind}"] = tensor
        else:
            part, kind = name.split(".")
            names[f"{OTHERS[part]}.{kind}"] = tensor
    model.load_state_dict(names)
    return model


def perplexity(model, tokens, windows, context, chunk, make_cache):
    """exp of the mean of -log p over `windows` windows of `context` tokens."""
    total, count = 0.0, 0
    for window in range(windows):
        row = tokens[None, window * context:(window + 1) * context]
        cache, outputs = make_cache(), []
        with torch.no_grad():
            for begin in range(0, context, chunk):
                outputs.append(model(row[:, begin:begin + chunk], past_key_values=cache, use_cache=True).logits.float())
        logits = torch.cat(outputs, 1)[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="sum").item()
        count += context - 1
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--model", help="a name of the hub, or a folder; default: the small model")
    parser.add_argument("--formats", default="f16,q8_0,q5_1,q4_1,q4_0,iq4_nl,kv6,kv4,kv3,kv2",
                        help="of K and V, with commas; K:V gives them different ones")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    text = args.text.read_bytes()
    if args.model:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
        tokens = tokenizer(text.decode(errors="replace"), return_tensors="pt").input_ids[0]
        model = transformers.AutoModelForCausalLM.from_pretrained(args.model)
    else:
        tokens, model = torch.tensor(list(text)), tinylm()
    if len(tokens) < args.windows * args.context:
        parser.error(f"the text has {len(tokens)} tokens; {args.windows * args.context} are needed")
    model = model.to(args.device, torch.float16 if args.device != "cpu" else torch.float32).eval()
    measure = lambda make_cache: perplexity(model, tokens.to(args.device), args.windows, args.context, args.chunk,
                                            make_cache)
    model.set_attn_implementation("eager")
    base = measure(lambda: transformers.DynamicCache(config=model.config))
    print(f"| K | V | perplexity | change |\n|---|---|---|---|\n| transformers' own | | {base:.4f} | |", flush=True)
    model.set_attn_implementation("kvjit")
    for name in args.formats.split(","):
        k, _, v = name.partition(":")
        found = measure(lambda: kvjit.transformers.KvjitCache(k, v or k))
        print(f"| {k} | {v or k} | {found:.4f} | {100 * (found / base - 1):+.2f} % |", flush=True)


if __name__ == "__main__":
    main()
