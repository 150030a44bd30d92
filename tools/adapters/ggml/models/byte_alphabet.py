"""The vocabulary of the models of tests: a token is a byte.
SPDX-License-Identifier: MIT
"""


def byte_alphabet():
    """GPT-2's printable character of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in plain else next(others)) for b in range(256)]
