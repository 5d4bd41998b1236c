"""Small changes of data and of bytes, chosen by a seed or by a fuzzer."""

import copy
import random
from collections.abc import Sequence
from typing import Any

from dx_models import places, put


class Draws:
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def bytes(self, most: int) -> bytes:
        return self._random.randbytes(self.integer(0, most))

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.integer(0, len(choices) - 1)]

    def text(self) -> str:
        highest = self.one_of([0x7F, 0xFFFF, 0x10FFFF])
        return "".join(chr(self.integer(0, highest)) for _ in range(self.integer(0, 12)))


NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    64,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32,
    2**63,
    2**64,
    10**18,
    10**30,
    -(2**31),
    1.5,
    4.0,
]
STRANGE = [
    1e308,
    float("inf"),
    float("nan"),
    True,
    False,
    None,
    [],
    {},
    [[]],
    [1, "a"],
    [[1, 2], [3]],
    {"": 0},
    {"x": 1},
]
WORDS = [
    *(
        "",
        "A",
        "x",
        "nan",
        "a\nb",
        "\x00",
        "\ud800",
        "::",
        "*",
        "**/*",
        "[",
        "/",
        ".",
        "../x",
        "/dev/null",
        "/dev/zero",
    ),
    *(
        "f.npy",
        "f.npy::x",
        "f.npz",
        "f.npz::x",
        "m.json",
        "{stem}",
        "{",
        "{0}",
        "{path!r}",
        "{a.b}",
        "{number:>99999999}",
    ),
    *(
        "deferred",
        "FLOAT32",
        "INT8",
        "UNKNOWN",
        "UINT4",
        "FLOAT64",
        "float16",
        "bfloat16",
        "OWNED_BY_DML",
        "onnx",
        "add",
    ),
    *("top_k", "scatter_nd", "matmul_integer", "quantized_matmul", "1G", "1e999"),
]


def changed_tree(draws: Draws, tree: Any) -> Any:
    """Change a few places of data as JSON has it."""
    tree = copy.deepcopy(tree)
    for _ in range(draws.integer(0, 5)):
        spots = [path for path in places(tree) if path]
        if not spots:
            break
        path = draws.one_of(spots)
        owner, value = _at(tree, path[:-1]), _at(tree, path)
        way = draws.integer(0, 5)
        if way == 0:
            del owner[path[-1]]
        elif way == 1 and isinstance(owner, dict):
            owner[draws.text() if draws.integer(0, 1) else draws.one_of(WORDS)] = owner.pop(path[-1])
        elif way == 2:
            put(tree, path, copy.deepcopy(_at(tree, draws.one_of(spots))))
        elif way == 3:
            put(tree, path, [copy.deepcopy(value) for _ in range(draws.integer(0, 9))])
        else:
            other = [draws.one_of(NUMBERS), draws.one_of(WORDS), draws.one_of(STRANGE), draws.text()]
            put(tree, path, copy.deepcopy(draws.one_of(other)))
    return tree


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def changed_bytes(draws: Draws, data: bytes) -> bytes:
    """Change a few bytes."""
    text = bytearray(data)
    for _ in range(draws.integer(0, 6)):
        at = draws.integer(0, len(text))
        way = draws.integer(0, 4)
        if way == 0:
            text[at : at + 1] = draws.bytes(1)
        elif way == 1:
            text[at:at] = draws.bytes(8)
        elif way == 2:
            del text[at : at + draws.integer(1, 16)]
        elif way == 3:
            text[at : at + 8] = bytes([draws.integer(0, 255)]) * 8
        elif at < len(text):
            text[at] ^= 1 << draws.integer(0, 7)
    return bytes(text)
