#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the tables of tests/figures/h200.md, and verifies the sets of specs of tests/figures/checks.md.

    tools/bench/figures.py --kvjit build/kvjit decode lengths large layouts rows features append pages   # on a GPU
    tools/bench/figures.py --kvjit build/kvjit -o tests/figures/h200.md decode rows   # writes sections as Markdown
    tools/bench/figures.py --kvjit build/kvjit -j 12 checks            # a GPU, else the CPU back-end; a line a set
    tools/bench/figures.py --kvjit build/kvjit -j 16 --as-ptx sm_75,sm_80 checks   # the texts for older GPUs, as PTX

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
    "as PTX": "The same sets by the texts for older GPUs, which the driver compiles: specs, and the worst error of "
              "attention.",
}

FEATURES = ['softcap = 30.0', 'features = ["alibi"]', 'features = ["mask", "mask_slopes"]',
            'features = ["packed_mask", "causal"]', 'features = ["causal"]\nwindow = [256, 0]',
            'features = ["sinks", "lse"]',
            'features = ["mask", "sinks", "lse", "causal", "position_offset"]\nsoftcap = 50.0']
PREFILL = [("f16", "f16"), ("kv4", "kv4"), ("q8_0", "f16"), ("f16", "tbq4_0"), ("fp8_e4m3", "q4_0"), ("kv3", "bf16")]
PREFILL_FEATURES = 'features = ["causal", "sinks", "lse"]\nsoftcap = 30.0\nwindow = [200, -1]'
PAIR = ["f16", "bf16", "q8_0", "q4_0", "tbq4_0"]
RANDOM = "random specs"
LAYOUTS = '"cache.layout" = ["planar", "rows"]'


def formats_of(kvjit, arch, pool):
    """Specs of every format, as K and V or beside f16 if it serves one side, at the first head_dim that fits; else as
    a latent of which V is the first part."""
    tries = [[*(spec(k, v, f"head_dim = {dim}", cache) for k, v in
                ((path.stem, path.stem), (path.stem, "f16"), ("f16", path.stem)) for dim in (128, 256, 64)),
              *(spec(path.stem, None, f"head_dim = {dim}\nhead_dim_v = 512", cache).replace(
                  "[attention]", "in_keys = true\n[attention]") for dim in (576, 512))]
             for path in sorted((ROOT / "specs" / "formats").glob("*.toml")) for cache in ("", ROWS)]
    chosen = [0] * len(tries)  # the try of each format, in each layout
    pending = list(range(len(tries)))
    for attempt in range(len(tries[0])):
        fits = pool.map(lambda i: run([kvjit, "check", "--arch", arch], tries[i][attempt]).returncode == 0, pending)
        fitting = {i for i, is_fitting in zip(pending, fits) if is_fitting}
        for i in fitting:
            chosen[i] = attempt
        pending = [i for i in pending if i not in fitting]
    return [tries[i][attempt] for i, attempt in enumerate(chosen)]


def checks(kvjit, arch, pool, names=()):
    """The sets of specs that `kvjit verify` judges, or those of these names: name -> specs. Formats are at a head_dim
    that they fit on arch, which takes a process for each to find out."""
    sets = {
        "pairs": [spec(k, v, matrix='"attention.head_dim" = [128, 256]\n"attention.q_heads_per_kv" = [1, 4, 8]\n' +
                       LAYOUTS) for k, v in itertools.product(PAIR, PAIR)],
        "formats": formats_of(kvjit, arch, pool) if not names or "formats" in names else [],
        "features": [spec(each, attention=f"query_length = {(1, 2, 4, 8)[i % 4]}\n{lines}")
                     for each in ("kv2", "kv3", "kv4") for i, lines in enumerate(FEATURES)],
        "prefill": [spec(k, v, f"head_dim = {dim}\n{lines}", cache) for k, v in PREFILL
                    for dim in ((128,) if "tbq4_0" in (k, v) else (64, 128))
                    for lines, cache in ((queries(70), ""), (queries(33), ROWS),
                                         (f"query_length = 40\n{PREFILL_FEATURES}", ""),
                                         ('query_length = "any"\nmax_query_length = 300\n' + CAUSAL, ""))],
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
    if unknown := set(names) - set(sets):
        sys.exit(f"no set is called {', '.join(sorted(unknown))}; there are {', '.join(sets)}")
    return {name: texts for name, texts in sets.items() if not names or name in names}


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


class Verified:
    """The results of a set: specs that pass, are refused or fail, and the worst error of those that pass."""

    def __init__(self, name):
        self.name, self.passed, self.refused, self.failures, self.worst, self.device = name, 0, {}, [], 0, ""

    def add(self, result, texts, tolerates_refusals):
        """Counts what a process of `kvjit verify` printed about these specs; no texts: about random ones."""
        if not result.stdout:
            sys.exit(result.stderr)
        report = json.loads(result.stdout)
        self.device = report["device"] + (f", text for {report['arch']}, run as PTX on {report['as_ptx_on']}"
                                          if "as_ptx_on" in report else "")
        if not texts:
            self.passed += report["passed"]
            self.worst = max(self.worst, report["worst_error"])
            refusals = [each["reason"] for each in report["results"] if each["verdict"] == "refused"]
            self.failures += [each for each in report["results"] if each["verdict"] == "failed"]
        else:
            self.passed += sum(each["is_ok"] for each in report["specs"])
            self.worst = max([self.worst, *(each["attention_error"] for each in report["specs"] if each["is_ok"])])
            refused = [each for each in report["specs"]
                       if tolerates_refusals and each.get("error", {}).get("exit") == UNSUPPORTED]
            refusals = [each["error"]["message"] for each in refused]
            self.failures += [{"text": texts[int(pathlib.Path(each["spec"]).stem)], **each} for each in report["specs"]
                              if not each["is_ok"] and each not in refused]
        for reason in refusals:
            self.refused[reason] = self.refused.get(reason, 0) + 1

    def counts(self):
        refused = sum(self.refused.values())
        return (f"{self.passed} of {self.passed + refused + len(self.failures)} pass" +
                (f", {refused} refused" if refused else ""))


UNSUPPORTED = 4  # exit code of the command: no kernel serves the spec


def check(kvjit, jobs, archs, sets, fuzz):
    """Verifies each set in `jobs` processes at once and prints a line for it. archs: those whose texts run as PTX;
    none: the device's own. sets: names; none: all. fuzz: random specs besides. Returns a list of Verified for each
    arch."""
    def start(arch, name, texts):
        flags = [kvjit, "--json", "verify", "-j", "1", *(["--arch", arch, "--as-ptx"] if arch else [])]
        if name == RANDOM:
            share = -(-fuzz // jobs)
            return [([], pool.submit(run, [*flags, "--fuzz", str(min(share, fuzz - first)), "--seed", str(first + 1)]))
                    for first in range(0, fuzz, share)]
        share = -(-len(texts) // (4 * jobs))  # several for each process, so that none is the last for long
        parts = [texts[i:i + share] for i in range(0, len(texts), share)]
        return [(part, pool.submit(run, flags, *part)) for part in parts]

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        started = []
        for arch in archs or [""]:
            of_arch = checks(kvjit, arch or "sm_90a", pool, sets) | ({RANDOM: []} if fuzz else {})
            started += [(arch, name, start(arch, name, texts)) for name, texts in of_arch.items()]
        results = {}
        for arch, name, parts in started:
            verified = Verified(name)
            for texts, future in parts:
                verified.add(future.result(), texts, bool(arch))
            results.setdefault(arch, []).append(verified)
            print(f"{name:<18} {verified.counts()} on {verified.device}, worst error of attention "
                  f"{verified.worst:.1e}", flush=True)
            for reason, count in verified.refused.items():
                print(f"{'':<18} refused: {count} x {reason}", flush=True)
            for failure in verified.failures:
                print(json.dumps(failure, indent=2).replace("\\n", "\n"), file=sys.stderr)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="+", choices=[*TABLES, "checks"])
    parser.add_argument("--kvjit", required=True)
    parser.add_argument("-j", type=int, default=1, help="of checks: processes that verify at once")
    parser.add_argument("-o", metavar="FILE.md", type=pathlib.Path, help="write the tables there as Markdown sections")
    parser.add_argument("--as-ptx", metavar="A,B", type=lambda text: text.split(","), default=[],
                        help="of checks: run the texts for these archs as PTX")
    parser.add_argument("--sets", metavar="A,B", type=lambda text: text.split(","), default=[],
                        help="of checks: these sets alone")
    parser.add_argument("--fuzz", metavar="N", type=int, default=0, help="of checks: N random specs besides")
    arguments = parser.parse_args()
    all_pass = True
    for what in arguments.what:
        print(f"== {what}", flush=True)
        command = f"tools/bench/figures.py --kvjit {arguments.kvjit} {what}"
        if what == "checks":
            results = check(arguments.kvjit, arguments.j, arguments.as_ptx, arguments.sets, arguments.fuzz)
            all_pass &= not any(each.failures for sets in results.values() for each in sets)
            if arguments.o and arguments.as_ptx:
                rows = [[each.name, *(f"{of_arch.counts()}; {of_arch.worst:.1e}" for of_arch in of_archs)]
                        for each, of_archs in zip(results[arguments.as_ptx[0]], zip(*results.values()))]
                write_section(arguments.o, "as PTX", command.replace(
                    " checks", f" --as-ptx {','.join(arguments.as_ptx)} checks"),
                    next(iter(results.values()))[0].device.split(",")[0], markdown_table(["set", *results], rows))
            elif arguments.o:
                rows = [[each.name, each.counts(), f"{each.worst:.1e}"] for each in results[""]]
                table = markdown_table(["set", "specs", "worst error of attention"], rows)
                write_section(arguments.o, what, command, results[""][0].device, table)
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
