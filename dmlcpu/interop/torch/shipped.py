"""The sizes from which calls are taken if none are measured, so that all processes use the same sizes.

The table is what asv_bench/torch_thresholds.py printed on an AMD EPYC (Zen 4, family 25, model 17) with two processors
and PyTorch 2.13; for sort, unique, k-th values, argmax, argmin, scatter_reduce_, gather and columns on a Zen 3
(family 25, model 1). PyTorch runs scatter_ on columns and lines, and index_add_ on lines.
"""

from dmlcpu.interop.torch.override import TYPE_NAMES, Kind
from dmlcpu.runtime.isa import Isa, allowed, highest

_MEASURED = Isa.AVX512VNNI  # the instruction set of that processor
# On other processors, or with more threads, this multiple of the larger size holds. No measurement supports the factor;
# PyTorch runs the calls at which either might be faster.
_CAUTION = 4

_Sizes = tuple[int | None, int | None]  # on one thread and on two; None: not even the largest calls are faster
# By operator, and properties of a call without its type: a size is that of the slowest type.
TABLE: dict[str, dict[Kind, _Sizes]] = {
    "topk": {
        ("one row", "few"): (1 << 14, 1 << 14),
        ("one row", "many"): (1 << 13, 1 << 13),
        ("rows", "few"): (1 << 15, 1 << 18),
        ("rows", "many"): (1 << 14, 1 << 14),
        ("short rows", "few"): (1 << 18, 1 << 18),
        ("short rows", "many"): (1 << 14, 1 << 14),
        ("strided", "few"): (1 << 17, 1 << 17),
        ("strided", "many"): (1 << 14, 1 << 14),
    },
    "sort": {
        ("one row",): (1 << 11, 1 << 11),
        ("rows",): (1 << 11, 1 << 11),
        ("short rows",): (1 << 11, 1 << 12),
        ("strided",): (1 << 10, 1 << 11),
    },
    "unique": {
        ("values",): (1 << 12, 1 << 20),
    },
    "kthvalue": {
        ("one row", "few"): (1 << 15, 1 << 15),
        ("one row", "many"): (1 << 15, 1 << 15),
        ("rows", "few"): (1 << 15, 1 << 15),
        ("rows", "many"): (1 << 15, 1 << 16),
        ("short rows", "few"): (1 << 15, 1 << 14),
        ("short rows", "many"): (1 << 16, 1 << 16),
        ("strided", "few"): (1 << 18, 1 << 16),
        ("strided", "many"): (1 << 17, 1 << 16),
    },
    "median": {
        ("one row",): (1 << 16, 1 << 15),
        ("rows",): (1 << 15, 1 << 16),
        ("short rows",): (1 << 18, 1 << 16),
        ("strided",): (1 << 18, 1 << 16),
    },
    "nanmedian": {
        ("one row",): (1 << 18, 1 << 15),
        ("rows",): (1 << 16, 1 << 16),
        ("short rows",): (1 << 16, 1 << 16),
        ("strided",): (1 << 17, 1 << 16),
    },
    "argmax": {
        ("one row",): (1 << 15, 1 << 18),
        ("rows",): (1 << 16, 1 << 15),
        ("short rows",): (None, 1 << 17),
        ("strided",): (1 << 16, 1 << 15),
    },
    "argmin": {
        ("one row",): (1 << 15, 1 << 18),
        ("rows",): (None, 1 << 15),
        ("short rows",): (1 << 20, 1 << 16),
        ("strided",): (1 << 15, 1 << 15),
    },
    "_int_mm": {
        ("one", "rows"): (1 << 21, 1 << 24),
        ("one", "columns"): (None, None),
        ("few", "rows"): (1 << 27, None),
        ("few", "columns"): (1 << 24, 1 << 24),
        ("many", "rows"): (None, None),
        ("many", "columns"): (None, None),
    },
    "index_add_": {
        ("elements",): (1 << 22, 1 << 16),
        ("short rows",): (1 << 16, 1 << 14),
        ("rows",): (1 << 20, 1 << 22),
        ("long rows",): (None, 1 << 20),
        ("lines",): (None, None),
    },
    "scatter_add_": {
        ("elements",): (None, 1 << 22),
        ("short rows",): (1 << 18, 1 << 16),
        ("rows",): (1 << 20, 1 << 14),
        ("long rows",): (None, None),
        ("columns",): (1 << 18, 1 << 16),
        ("lines",): (None, None),
    },
    "scatter_": {
        ("elements",): (None, 1 << 22),
        ("short rows",): (1 << 16, 1 << 14),
        ("rows",): (1 << 14, 1 << 14),
        ("long rows",): (1 << 14, 1 << 14),
        ("columns",): (None, None),
        ("lines",): (None, None),
    },
    "scatter_reduce_": {
        ("elements",): (None, 1 << 20),
        ("short rows",): (None, 1 << 18),
        ("rows",): (None, 1 << 18),
        ("long rows",): (None, 1 << 20),
        ("columns",): (None, 1 << 16),
        ("lines",): (None, 1 << 16),
    },
    "gather": {
        ("elements",): (1 << 20, 1 << 20),
        ("columns",): (1 << 20, 1 << 16),
        ("lines",): (None, 1 << 16),
    },
    "index_put_": {
        ("elements", "one index", "add"): (1 << 14, 1 << 14),
        ("elements", "one index", "assign"): (1 << 16, 1 << 16),
        ("elements", "several indices", "add"): (1 << 20, 1 << 22),
        ("elements", "several indices", "assign"): (1 << 22, None),
        ("short rows", "one index", "add"): (1 << 16, 1 << 16),
        ("short rows", "one index", "assign"): (1 << 18, 1 << 20),
        ("short rows", "several indices", "add"): (1 << 16, 1 << 16),
        ("short rows", "several indices", "assign"): (1 << 18, 1 << 20),
        ("rows", "one index", "add"): (1 << 16, 1 << 16),
        ("rows", "one index", "assign"): (1 << 18, 1 << 20),
        ("rows", "several indices", "add"): (1 << 18, 1 << 16),
        ("rows", "several indices", "assign"): (1 << 18, 1 << 22),
        ("long rows", "one index", "add"): (1 << 18, 1 << 16),
        ("long rows", "one index", "assign"): (1 << 18, None),
        ("long rows", "several indices", "add"): (1 << 18, 1 << 16),
        ("long rows", "several indices", "assign"): (1 << 18, None),
    },
}

# The copy takes the same time in both packages.
TABLE |= {name: TABLE[f"{name}_"] for name in ("scatter", "scatter_add", "scatter_reduce")}


def least(name: str, kind: Kind, threads: int) -> int | None:
    """Return the size from which calls of an operator are taken; None if none are."""
    sizes = TABLE[name][tuple(each for each in kind if each not in TYPE_NAMES.values())]
    if threads <= len(sizes) and highest(allowed()) is _MEASURED:
        return sizes[threads - 1]
    one, two = sizes
    return None if one is None or two is None else _CAUTION * max(one, two)
