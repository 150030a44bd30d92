#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the tables of tests/figures/h200.md, and verifies the sets of specs of tests/figures/checks.md.

    tools/bench/figures.py --kvjit build/kvjit decode lengths large layouts rows features append pages   # on a GPU
    tools/bench/figures.py --kvjit build/kvjit -o tests/figures/h200.md decode rows   # writes sections as Markdown
    tools/bench/figures.py --kvjit build/kvjit -j 12 checks            # a GPU, else the CPU back-end; a line a set

It runs `kvjit bench` and `kvjit verify` over specs that it writes to a temporary folder. With -o, sections of the file
that are not measured now stay as they are. It exits with 1 if a spec of the checks does not pass.
tools/bench/bench_peers.py compares with other implementations.
"""
import argparse
import concurrent.futures
import datetime
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = next(folder for folder in pathlib.Path(__file__).resolve().parents if (folder / "specs").is_dir())
BASIC = ["f16", "q8_0", "fp8_e4m3", "q4_0", "kv4", "tbq4_0", "kv3", "kv2"]
ROWS = 'layout = "rows"'
HEADS = ROWS + "\ntoken_heads = 8"


def spec(k, v=None, attention="", cache="", matrix=""):
    """The text of a spec with the formats k and v (default: k); the other arguments are lines of their tables."""
    group = "" if "q_heads_per_kv" in attention + matrix else "q_heads_per_kv = 8\n"
    return (f'[k]\nformat = "{k}"\n[v]\nformat = "{v or k}"\n[attention]\n{group}{attention}\n'
            f"[cache]\n{cache}\n" + (f"[matrix]\n{matrix}\n" if matrix else ""))


def several(formats, **keys):
    """A spec for each format, as K and V."""
    return [spec(each, **keys) for each in formats]


def queries(count):
    """Lines of [attention] for `count` causal queries."""
    return f'query_length = {count}\nfeatures = ["causal"]'


CAUSAL = 'features = ["causal"]\n'
SIX = 'features = ["causal", "mask", "mask_slopes", "sinks", "lse"]\nsoftcap = 50.0'

# The runs of `kvjit bench` that make each table: (specs, arguments).
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

# What a reader must know to read all tables (CELLS) and each of them (NOTES).
CELLS = ("Cells are the median us of CUDA graphs of 20 calls that alternate over caches which exceed the L2; in "
         "brackets the percentage of a read-only probe's speed over as many bytes in the same run, and the fastest "
         "call. Columns are KV heads x tokens, with the number of sequences in front if there are several. Where a "
         "row says nothing else, a KV head has 8 query heads, head_dim is 128, the layout planar, and a call has "
         "one query.")
NOTES = {
    "decode": "One attention call, one launch.",
    "lengths": "Calls of other lengths, and with lengths in device memory (`--lengths`), as captured graphs have them.",
    "large": "From half a gigabyte a call on, calls of few bits draw up to 700 W and the clock falls with them: the "
             "median moves by a tenth and more with the runs before it, the fastest call by up to 4 %.",
    "layouts": "Layout rows, without and with token-major heads (`token_heads`).",
    "rows": "More query rows: 8 heads a KV head times the queries of a call.",
    "features": "Features of the scores; the mask is one row for all heads.",
    "append": "A plain call, one that stores its new token, and sparse V.",
    "pages": "Layout paged against planar.",
    "checks": "Every spec of a set against attention in double precision.",
}

FEATURES = ['softcap = 30.0', 'features = ["alibi"]', 'features = ["mask", "mask_slopes"]',
            'features = ["packed_mask", "causal"]', 'features = ["causal"]\nwindow = [256, 0]',
            'features = ["sinks", "lse"]',
            'features = ["mask", "sinks", "lse", "causal", "position_offset"]\nsoftcap = 50.0']
PAIR = ["f16", "bf16", "q8_0", "q4_0", "tbq4_0"]
LAYOUTS = '"cache.layout" = ["planar", "rows"]'


def formats_of(kvjit):
    """Yields specs of every format, as K and V or beside f16 if it serves one side, at the first head_dim that fits."""
    for path in sorted((ROOT / "specs" / "formats").glob("*.toml")):
        for cache in ("", ROWS):
            tries = [spec(k, v, f"head_dim = {dim}", cache) for k, v in
                     ((path.stem, path.stem), (path.stem, "f16"), ("f16", path.stem)) for dim in (128, 256, 64)]
            fitting = (text for text in tries if run([kvjit, "explain", "--arch", "sm_90a"], text).returncode == 0)
            yield next(fitting, tries[0])


def checks(kvjit):
    """The sets of specs that `kvjit verify` judges: name -> specs."""
    return {
        "pairs": [spec(k, v, matrix='"attention.head_dim" = [128, 256]\n"attention.q_heads_per_kv" = [1, 4, 8]\n' +
                       LAYOUTS) for k, v in itertools.product(PAIR, PAIR)],
        "formats": list(formats_of(kvjit)),
        "features": [spec(each, attention=f"query_length = {(1, 2, 4, 8)[i % 4]}\n{lines}")
                     for each in ("kv2", "kv3", "kv4") for i, lines in enumerate(FEATURES)],
        "query chunks": [spec(each, attention=f"q_heads_per_kv = {heads}\n{queries(count)}") for each in ("f16", "kv4")
                  for heads, count in ((8, 12), (5, 75), (12, 75))],
        "wide heads": several(["f16", "q8_0", "q4_0"], attention='q_heads_per_kv = 16\nhead_dim_k = 576\n'
                              'head_dim_v = 512\nfeatures = ["mask", "sinks"]'),
        "pages": [spec(each, cache=f'layout = "paged"\npage_layout = "{layout}"',
                       matrix='"cache.page_tokens" = [8, 16, 32, 128]')
                  for each in ("kv4", "tbq4_0", "q8_0", "f16", "q4_0", "kv3") for layout in ("planar", "rows")],
        "token-major heads": several(["tbq4_0", "kv4", "q8_0", "q4_0", "kv3", "tbq3_0"],
                                     attention='features = ["causal"]', cache=HEADS,
                                     matrix='"attention.q_heads_per_kv" = [1, 2, 4]\n'
                                     '"attention.query_length" = [1, 2]'),
        "many rows": [spec(k, v, 'features = ["causal"]', matrix='"attention.query_length" = [4, 8]') for k, v in
                      itertools.product(["f16", "q8_0", "q4_0", "kv4", "tbq4_0", "kv3", "kv2", "turbo3_0", "iq4_nl"],
                                        ["f16", "q8_0", "kv4", "tbq4_0"])],
        "layout rows": several(["tbq4_0", "kv4", "q8_0", "q4_0", "kv3", "kv2", "iq4_nl"],
                               attention='features = ["causal"]', cache=ROWS,
                               matrix='"attention.query_length" = [1, 2, 4, 8]\n"attention.head_dim" = [128, 256]'),
    }


def run(command, *texts):
    """Runs the command with the texts as spec files. Returns the process with its output as text."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, text in enumerate(texts):
            paths.append(f"{folder}/{i}.toml")
            pathlib.Path(paths[-1]).write_text(text)
        return subprocess.run(command + paths, capture_output=True, text=True, check=False)


def label(text):
    """The name of a row of a table: the formats, and the keys that are not the same in all rows."""
    formats = dict.fromkeys(re.findall('format = "(.*)"', text))
    keys = [line for line in text.splitlines()
            if line and line[0] != "[" and not line.startswith("format") and line != "q_heads_per_kv = 8"]
    return "; ".join([", ".join(formats), *(f"`{key}`" for key in keys)])


def shape(row):
    """The name of a column: KV heads x tokens, with the number of sequences in front if there are several."""
    return (f"{row['batch']} x " if row["batch"] > 1 else "") + f"{row['kv_heads']} x {row['tokens']}"


def markdown_table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def timed(kvjit, what):
    """Runs a table of TABLES. Returns the device and the table: a column for each shape, or a row if most are empty."""
    cells, device = {}, ""
    for texts, options in TABLES[what]:
        result = run([kvjit, "--json", "bench", *options.split()], *texts)
        if result.returncode != 0:
            sys.exit(result.stderr)
        report = json.loads(result.stdout)
        device = report["device"]["name"]
        of_each = len(report["results"]) // len(texts)
        for i, row in enumerate(report["results"]):
            name = label(texts[i // of_each]) + ("; `--lengths`" if "--lengths" in options else "")
            cells.setdefault(name, {})[shape(row)] = (
                f"{row['median_us']:.1f} ({row['of_probe']:.0%}; {row['low_us']:.1f})".replace("%", " %"))
    shapes = list(dict.fromkeys(each for row in cells.values() for each in row))
    if 2 * sum(len(row) for row in cells.values()) >= len(cells) * len(shapes):
        return device, markdown_table(["K, V", *shapes], ([name, *(row.get(each, "") for each in shapes)]
                                                          for name, row in cells.items()))
    return device, markdown_table(["K, V", "cache", "us"], ([name, each, cell] for name, row in cells.items()
                                                            for each, cell in row.items()))


def write_section(path, what, command, device, table):
    """Writes a section of a file of figures, in place of the section of the same name or at the end."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    origin = f"Commit {git.stdout.strip() or 'unknown'}, {datetime.date.today()}, {device}. {NOTES[what]}"
    section = f"## {what}\n\n    {command}\n\n{textwrap.fill(origin, 120)}\n\n{table}"
    text = path.read_text() if path.exists() else f"# Figures: {device}\n\n{textwrap.fill(CELLS, 120)}\n"
    sections = [each.rstrip("\n") for each in re.split(r"^(?=## )", text, flags=re.MULTILINE)]
    places = [i for i, each in enumerate(sections) if each.split("\n", 1)[0] == f"## {what}"] or [len(sections)]
    sections[places[0]:places[0] + 1] = [section.rstrip("\n")]
    path.write_text("\n\n".join(sections) + "\n")


def check(kvjit, threads):
    """Verifies each set and prints a line for it. Returns the device, a row for each set, and whether all pass."""
    all_pass, rows, device = True, [], ""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for name, texts in checks(kvjit).items():
            reports = [json.loads(result.stdout)
                       for result in pool.map(lambda text: run([kvjit, "--json", "verify"], text), texts)]
            specs = [each for report in reports for each in report["specs"]]
            worst = max((each["attention_error"] for each in specs if each["is_ok"]), default=0)
            device = reports[0]["device"]
            rows.append([name, f"{sum(each['is_ok'] for each in specs)} of {len(specs)} pass", f"{worst:.1e}"])
            print(f"{name:<16} {rows[-1][1]} on {device}, worst error of attention {worst:.1e}", flush=True)
            for text, report in zip(texts, reports):
                failed = [each for each in report["specs"] if not each["is_ok"]]
                all_pass &= not failed
                if failed:
                    print(text, json.dumps(failed, indent=2), file=sys.stderr)
    return device, rows, all_pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="+", choices=[*TABLES, "checks"])
    parser.add_argument("--kvjit", required=True)
    parser.add_argument("-j", type=int, default=1, help="specs that are verified at once")
    parser.add_argument("-o", metavar="FILE.md", type=pathlib.Path, help="write the tables there as Markdown sections")
    arguments = parser.parse_args()
    all_pass = True
    for what in arguments.what:
        print(f"== {what}", flush=True)
        command = f"tools/bench/figures.py --kvjit {arguments.kvjit} {what}"
        if what == "checks":
            device, rows, is_all = check(arguments.kvjit, arguments.j)
            all_pass &= is_all
            if arguments.o:
                table = markdown_table(["set", "specs", "worst error of attention"], rows)
                write_section(arguments.o, what, command, device, table)
        elif arguments.o:
            device, table = timed(arguments.kvjit, what)
            print(table, flush=True)
            write_section(arguments.o, what, command, device, table)
        else:
            for texts, options in TABLES[what]:
                result = run([arguments.kvjit, "bench", *options.split()], *texts)
                print(f"-- {options}\n{result.stdout}", end="", flush=True)
                if result.returncode != 0:
                    sys.exit(result.stderr)
    sys.exit(0 if all_pass else 1)


if __name__ == "__main__":
    main()
