#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the instructions of decode's loop by pipe, for one warp and tile and for each value of K and V.

It reads the disassembly of a decode kernel and finds the innermost loop with the most products of the tensor cores.

    kvjit build SPEC --arch sm_90a -o DIR
    nvdisasm -c DIR/decode.*.cubin | tools/bench/count_instructions.py --tokens 32

It counts what a whole tile runs. It leaves out the copies of a partial tile, the mask, and the rescale of the softmax.
"""
import argparse
import collections
import re
import sys

PIPES = {
    "alu": "PRMT LOP3 SHF ISETP SEL VIMNMX VIMNMX3 I2FP FMNMX LEA IADD3 VIADD F2FP HMNMX2 FSEL FSETP MOV PLOP3",
    "fma": "FFMA FMUL FADD HADD2 HMUL2 HFMA2 IMAD IDP",
    "lsu": "LDS LDSM STS LDGSTS SHFL",
    "tensor": "IMMA HMMA",
    "other": "MOVM MUFU",
}
PIPE_OF = {name: pipe for pipe, names in PIPES.items() for name in names.split()}
# Instructions of rare branches: copies of a partial tile (ZFILL), the score of a masked token (the two constants), and
# the row_max over the lanes of a warp for a rescale (SHFL).
RARE = ("ZFILL", "0xf149f2ca", "-1.00000001504746621988e+30", "SHFL")


def read(lines):
    """Returns the instructions in order, and for each label the index of the instruction behind it."""
    code, labels = [], {}
    for line in lines:
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.search(r"/\*[0-9a-f]{4,5}\*/\s+(.*?)\s*;", line):
            code.append(instruction[1])
    return code, labels


def target(instruction, labels):
    """The index that a branch goes to; None if the instruction is no branch."""
    branch = re.search(r"\bBRA\b(?!\.DIV).*?(\.L_\w+)", instruction)
    return labels.get(branch[1]) if branch else None


def find_loop(code, labels):
    """Returns the first and the last index of the innermost loop around the most products of the tensor cores."""
    loops = []
    for end, instruction in enumerate(code):
        begin = target(instruction, labels)
        if begin is not None and begin <= end:
            loops.append((sum("MMA" in each for each in code[begin : end + 1]), begin - end, begin, end))
    return max(loops)[2:]


def is_rare(block):
    """Whether a block has instructions of a rare branch and none that every tile runs."""
    is_usual = any("MMA" in each or ("LDGSTS" in each and "ZFILL" not in each) for each in block)
    return not is_usual and any(word in each for each in block for word in RARE)


def walk(code, labels, begin, end, inner):
    """Yields (instruction, times) for everything that a whole tile runs. Inner loops run `inner` times."""
    at, times, leaves = begin, 1, {}
    for i in range(begin, end):  # finds the loops inside the loop
        head = target(code[i], labels)
        if head is not None and begin < head <= i and any("MMA" in each for each in code[head:i]):
            leaves[head] = i
    while at <= end:
        times = inner if any(head <= at <= tail for head, tail in leaves.items()) else 1
        yield code[at], times
        to = target(code[at], labels)
        is_forward = to is not None and at < to <= end
        if is_forward and (not code[at].startswith("@") or is_rare(code[at + 1 : to])):
            at = to
        else:
            at += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, required=True, help="of a tile (kvjit explain)")
    parser.add_argument("--values", type=int, default=256, help="of K and V a token")
    parser.add_argument("--inner", type=int, default=1, help="rounds of loops within the loop")
    args = parser.parse_args()
    code, labels = read(sys.stdin)
    names, pipes = collections.Counter(), collections.Counter()
    for instruction, times in walk(code, labels, *find_loop(code, labels), args.inner):
        name = re.sub(r"^@!?U?P\w+ ", "", instruction).split()[0].split(".")[0]
        names[name] += times
        pipes[PIPE_OF.get(name, "control")] += times
    total, elements = sum(names.values()), args.tokens * args.values / 32
    for pipe in ["all", *PIPES, "control"]:
        count = total if pipe == "all" else pipes[pipe]
        print(f"{pipe:8}{count:6}{count / elements:8.2f}")
    print(", ".join(f"{count} {name}" for name, count in names.most_common()))


if __name__ == "__main__":
    main()
