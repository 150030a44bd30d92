#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the README's tables of decode and its rows of checks were made with: a table each, by `kvjit bench` and `kvjit verify` over specs
that are written to a temporary folder.

    tools/bench/figures.py --kvjit build/kvjit decode lengths large layouts rows features append pages   # on a GPU; what kvjit prints
    tools/bench/figures.py --kvjit build/kvjit -j 12 checks                           # a GPU, else the CPU back-end; a line for each set

Exits with 1 if a spec of the checks does not pass. tools/bench/bench_peers.py has the comparison with other implementations.
"""
import argparse
import concurrent.futures
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

BASIC = ["f16", "q8_0", "fp8_e4m3", "q4_0", "kv4", "tbq4_0", "kv3", "kv2"]
ROWS = 'layout = "rows"'
HEADS = ROWS + "\ntoken_heads = 8"


def spec(k, v=None, attention="", cache="", matrix=""):
    """The text of a spec: K and V of one format, or of two; keys of [attention], [cache] and [matrix] as lines."""
    group = "" if "q_heads_per_kv" in attention + matrix else "q_heads_per_kv = 8\n"
    return (f'[k]\nformat = "{k}"\n[v]\nformat = "{v or k}"\n[attention]\n{group}{attention}\n'
            f"[cache]\n{cache}\n" + (f"[matrix]\n{matrix}\n" if matrix else ""))


def several(formats, **keys):
    return [spec(each, **keys) for each in formats]


def queries(count):
    return f'query_length = {count}\nfeatures = ["causal"]'


CAUSAL = 'features = ["causal"]\n'
SIX = 'features = ["causal", "mask", "mask_slopes", "sinks", "lse"]\nsoftcap = 50.0'

# Of each table: specs of one run of `kvjit bench`, and its arguments.
TABLES = {
    "decode": [(several(BASIC), "--tokens 4096,8192,131072"),
               (several(BASIC), "--tokens 32768 --kv-heads 64")],
    "lengths": [(several(["kv4", "f16"]), arguments + where)
                for where in ("", " --lengths")
                for arguments in ("--tokens 4100,8200,16400,131100", "--tokens 4100 --kv-heads 1",
                                  "--tokens 16400 --kv-heads 3", "--tokens 4100 --batch 4,16",
                                  "--tokens 2050 --batch 64")],
    "large": [(several(["kv4", "tbq4_0", "kv3", "tbq3_0", "kv2", "turbo2_0"]), "--tokens 65536 --kv-heads 128"),
              (several(["kv4", "f16"], attention="head_dim = 256"), "--tokens 65536 --kv-heads 32"),
              (several(["f16", "q4_0"], attention="head_dim = 64"), "--tokens 65536 --kv-heads 128"),
              (several(["f16", "q8_0", "fp8_e4m3", "q4_0"]), "--tokens 65536 --kv-heads 64"),
              (several(["kv4", "tbq4_0"]), "--tokens 32768 --kv-heads 128")],
    "layouts": [(several(["tbq4_0", "kv4", "kv3", "q4_0"], cache=ROWS), "--tokens 65536 --kv-heads 64"),
                (several(["q8_0"], cache=ROWS), "--tokens 65536 --kv-heads 32"),
                *[(several(["tbq4_0", "kv4", "q4_0", "q8_0", "fp8_e4m3"], cache=lines), "--tokens 65536 --batch 8")
                  for lines in (ROWS, HEADS)],
                (several(["f16"], cache=ROWS) + several(["f16"], cache=HEADS), "--tokens 32768 --batch 4"),
                (several(["tbq4_0", "kv4"], cache=HEADS) + several(["tbq4_0", "kv4"], cache=ROWS),
                 "--tokens 4096,32768,131072")],
    "rows": [(several(["f16", "q8_0", "kv4", "tbq4_0"], attention=queries(count)), "--tokens 65536 --kv-heads 128")
             for count in (2, 4, 8)],
    "features": [(several(["kv4"], attention=lines), "--tokens 8192,131072") for lines in (
                     CAUSAL, CAUSAL + "softcap = 50.0", 'features = ["causal", "sinks", "lse"]',
                     'features = ["causal", "alibi"]', 'features = ["causal", "mask"]',
                     'features = ["causal", "mask", "mask_slopes"]', 'features = ["causal", "packed_mask"]', SIX,
                     CAUSAL + "window = [4095, -1]")] +
                [(several(["kv4"], attention=f"query_length = {count}\n{lines}"), "--tokens 131072")
                 for count in (2, 8) for lines in (CAUSAL, SIX)],
    "append": [(several(["kv4"], attention=lines), arguments) for lines in ("", "append = true", "sparse_v = 1e-3")
               for arguments in ("--tokens 8192", "--tokens 32768 --kv-heads 64")],
    "pages": [([spec("kv4", cache=lines), spec("f16", "kv4", cache=lines)], "--tokens 32768 --batch 8")
              for lines in ["", *(f'layout = "paged"\npage_tokens = {tokens}' for tokens in (128, 16, 8))]],
}

FEATURES = ['softcap = 30.0', 'features = ["alibi"]', 'features = ["mask", "mask_slopes"]',
            'features = ["packed_mask", "causal"]', 'features = ["causal"]\nwindow = [256, 0]',
            'features = ["sinks", "lse"]',
            'features = ["mask", "sinks", "lse", "causal", "position_offset"]\nsoftcap = 50.0']
PAIR = ["f16", "bf16", "q8_0", "q4_0", "tbq4_0"]
LAYOUTS = '"cache.layout" = ["planar", "rows"]'


def formats_of(kvjit):
    """Specs of every format as K and V at the first head_dim that it fits; as one of both, beside f16, if it is for that one only."""
    for path in sorted((pathlib.Path(__file__).parents[2] / "specs" / "formats").glob("*.toml")):
        for cache in ("", ROWS):
            tries = [spec(k, v, f"head_dim = {dim}", cache) for k, v in
                     ((path.stem, path.stem), (path.stem, "f16"), ("f16", path.stem)) for dim in (128, 256, 64)]
            fitting = (text for text in tries if run([kvjit, "explain", "--arch", "sm_90a"], text).returncode == 0)
            yield next(fitting, tries[0])


def checks(kvjit):
    """The sets of specs that `kvjit verify` judges, by name."""
    return {
        "pairs": [spec(k, v, matrix='"attention.head_dim" = [128, 256]\n"attention.q_heads_per_kv" = [1, 4, 8]\n' +
                       LAYOUTS) for k, v in itertools.product(PAIR, PAIR)],
        "formats": list(formats_of(kvjit)),
        "features": [spec(each, attention=f"query_length = {(1, 2, 4, 8)[i % 4]}\n{lines}")
                     for each in ("kv2", "kv3", "kv4") for i, lines in enumerate(FEATURES)],
        "turns": [spec(each, attention=f"q_heads_per_kv = {heads}\n{queries(count)}") for each in ("f16", "kv4")
                  for heads, count in ((8, 12), (5, 75), (12, 75))],
        "wide heads": several(["f16", "q8_0", "q4_0"], attention='q_heads_per_kv = 16\nhead_dim_k = 576\n'
                              'head_dim_v = 512\nfeatures = ["mask", "sinks"]'),
        "pages": [spec(each, cache=f'layout = "paged"\npage_layout = "{layout}"',
                       matrix='"cache.page_tokens" = [8, 16, 32, 128]')
                  for each in ("kv4", "tbq4_0", "q8_0", "f16", "q4_0", "kv3") for layout in ("planar", "rows")],
        "heads together": several(["tbq4_0", "kv4", "q8_0", "q4_0", "kv3", "tbq3_0"], attention='features = ["causal"]',
                                  cache=HEADS, matrix='"attention.q_heads_per_kv" = [1, 2, 4]\n'
                                  '"attention.query_length" = [1, 2]'),
        "many rows": [spec(k, v, 'features = ["causal"]', matrix='"attention.query_length" = [4, 8]') for k, v in
                      itertools.product(["f16", "q8_0", "q4_0", "kv4", "tbq4_0", "kv3", "kv2", "turbo3_0", "iq4_nl"],
                                        ["f16", "q8_0", "kv4", "tbq4_0"])],
        "layout rows": several(["tbq4_0", "kv4", "q8_0", "q4_0", "kv3", "kv2", "iq4_nl"],
                               attention='features = ["causal"]', cache=ROWS,
                               matrix='"attention.query_length" = [1, 2, 4, 8]\n"attention.head_dim" = [128, 256]'),
    }


def run(command, *texts):
    """The command with each text as a spec file behind it; its output as text."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, text in enumerate(texts):
            paths.append(f"{folder}/{i}.toml")
            pathlib.Path(paths[-1]).write_text(text)
        return subprocess.run(command + paths, capture_output=True, text=True, check=False)


def check(kvjit, threads):
    """Prints a line for each set: specs that pass, the worst error of attention. Returns whether all do."""
    all_pass = True
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for name, texts in checks(kvjit).items():
            reports = [json.loads(result.stdout)
                       for result in pool.map(lambda text: run([kvjit, "--json", "verify"], text), texts)]
            specs = [each for report in reports for each in report["specs"]]
            worst = max((each["attention_error"] for each in specs if each["is_ok"]), default=0)
            print(f"{name:<16} {sum(each['is_ok'] for each in specs)} of {len(specs)} pass on {reports[0]['device']}, "
                  f"worst error of attention {worst:.1e}", flush=True)
            for text, report in zip(texts, reports):
                failed = [each for each in report["specs"] if not each["is_ok"]]
                all_pass &= not failed
                if failed:
                    print(text, json.dumps(failed, indent=2), file=sys.stderr)
    return all_pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="+", choices=[*TABLES, "checks"])
    parser.add_argument("--kvjit", required=True)
    parser.add_argument("-j", type=int, default=1, help="specs that are verified at once")
    arguments = parser.parse_args()
    all_pass = True
    for what in arguments.what:
        print(f"== {what}", flush=True)
        if what == "checks":
            all_pass &= check(arguments.kvjit, arguments.j)
            continue
        for texts, options in TABLES[what]:
            result = run([arguments.kvjit, "bench", *options.split()], *texts)
            print(f"-- {options}\n{result.stdout}", end="", flush=True)
            if result.returncode != 0:
                sys.exit(result.stderr)
    sys.exit(0 if all_pass else 1)


if __name__ == "__main__":
    main()
