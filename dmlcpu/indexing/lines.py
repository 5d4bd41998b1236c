"""The memory layout of lines of elements: the work record of their kernels."""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.common.forms import Form
from dmlcpu.indexing.reductions import INDEX_WORD
from dmlcpu.kernels.elements.work import NEXT_ELEMENTS, NEXT_ROWS, NOTHING, PIECE, WORK
from dmlcpu.kernels.scatter_nd.owned import FALSE_SHARING
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.runtime.memory import first_word, word_strides
from dmlcpu.runtime.records import CACHE_LINE, record_of

# Rows of fewer elements do not pay for their overhead if the axis is longer.
_SHORT = 8
# If an element has no more words than this, its words are moved one by one like elements.
_FEW = 3
# A table of more bytes does not fit the caches.
_FAR = 8 << 20
# Nanoseconds to load one of its cache lines (Zen 3: 12 to 28).
_MISS = 20
# Rows of this many words are prefetched if indices have more than _STREAMED bytes: processors prefetch badly if two
# streams alternate, and worse if a share reads a half of each row. One thread read 100,000 rows of 64 indices and 64
# updates in 14.8 ms, with prefetches in 7.6; a half of each row in 20 ms, with prefetches in 4.4 (Zen 4).
_LEAST_WORDS, _MOST_WORDS, _STREAMED = 32, 1024, 8 << 20

Dimension = tuple[int, int, int, int]  # a size, and the steps in table, indices and values
_ONE: Dimension = (1, 0, 0, 0)


class Layout(NamedTuple):
    """The work record, and what a plan has to know about it."""

    work: Array
    elements: int  # moved elements, or their words
    rows: int  # in all groups
    most: int  # the greatest number of shares
    pieces: int  # pieces of the indices for validation
    misses: int  # nanoseconds on one thread to load the cache lines of a large table


class Cut(NamedTuple):
    """The dimensions in the kernels' order."""

    groups: list[Dimension]
    rows: Dimension
    columns: Dimension
    cuts_rows: bool
    unit: int


def lay_out(
    table: Form,
    indices: Form,
    values: Form,
    axis: int,
    width: int,
    *,
    keeps_lines: bool,
    keeps_together: bool = False,
    loads_vectors: bool = False,
    **fields: Any,
) -> Layout:
    """Return how kernels traverse three tensors.

    width: bytes of a word of table and values; keeps_lines: a share has whole lines, in order; keeps_together: a row
    has the words of an element; loads_vectors: the kernel loads vectors from packed rows; fields: the other fields of
    the work record.
    """
    t, i, v = word_strides(table.steps, width), word_strides(indices.steps, 4), word_strides(values.steps, width)
    element = table.dtype.itemsize // width
    along = [0 if d == axis else step for d, step in enumerate(t)]
    dimensions = _merged((*indices.shape, element), (*along, 1), (*i, 0), (*v, 1))
    is_together = element > (1 if keeps_together else _FEW)
    cut = _cut(dimensions, width, is_together=is_together, keeps_lines=keeps_lines)
    groups, rows, columns = cut.groups or [_ONE], cut.rows, cut.columns
    number = math.prod(size for size, *_ in groups)
    is_aligned = not cut.cuts_rows and columns[1] == 1 and 1 < cut.unit < columns[0]
    units = -(-(rows if cut.cuts_rows else columns)[0] // cut.unit) + is_aligned
    starts = first_word(table.shape, t), first_word(indices.shape, i), first_word(values.shape, v)
    checked, pieces = _checked(indices.shape, i)
    length = math.prod(indices.shape[axis + 1 :])
    work = record_of(
        WORK,
        size=table.shape[axis],
        step=t[axis],
        prefetched=_prefetched(table, indices, cut, abs(t[axis]) * width * table.shape[axis], loads_vectors),
        is_wide=indices.dtype.itemsize == 8,
        is_signed=indices.dtype.kind == "i",
        walk=walk_of([size for size, *_ in groups]),
        groups=number,
        rows=rows[0],
        columns=columns[0],
        cuts_rows=cut.cuts_rows,
        unit=cut.unit,
        units=units,
        is_aligned=is_aligned,
        checked=checked,
        repeated={"rows": math.prod(indices.shape[: axis + 1]), "length": length * indices.dtype.itemsize // 4},
        **_tensors(starts, groups, rows, columns),
        **fields,
    )
    elements = math.prod(indices.shape) * element
    misses = _MISS * min(elements, table.nbytes // CACHE_LINE) if table.nbytes > _FAR else 0
    return Layout(work, elements, number * rows[0], number * units, pieces, misses)


def _prefetched(table: Form, indices: Form, cut: Cut, line: int, loads_vectors: bool) -> int:
    """Return what kernels prefetch; line: bytes from the first element along the axis to the last.

    To add 64 elements to each of 4,096 lines of 50,000 takes two threads 1.1 ms if elements are prefetched, else 1.7
    (Zen 4). Lines that are read as a whole would take up to twice as long with prefetches. Vectors are loaded in 4.0 ms
    from 100,000 rows of 64 indices, with prefetches in 4.6.
    """
    count, across, apart, values = cut.columns
    if table.nbytes > _FAR:
        is_sparse = across != 0 or line > count * CACHE_LINE
        return NEXT_ELEMENTS if is_sparse and apart != 0 and count <= _MOST_WORDS else NOTHING
    are_packed = 0 < apart <= 2 and 0 < values <= 2  # indices of 64 bits have two words
    is_long = _LEAST_WORDS <= count * apart <= _MOST_WORDS and indices.nbytes > _STREAMED
    by_vectors = loads_vectors and across != 0 and apart == indices.dtype.itemsize // 4 and values == 1
    return NEXT_ROWS if are_packed and is_long and cut.rows[1] == 0 and not by_vectors else NOTHING


def _tensors(starts: tuple[int, ...], groups: list[Dimension], rows: Dimension, columns: Dimension) -> dict[str, Any]:
    """Return the fields of the work record with each tensor's layout."""
    strides = zip(*[each[1:] for each in groups], strict=True)
    steps = zip(("table", "indices", "values"), starts, strides, rows[1:], columns[1:], strict=True)
    return {name: {"start": s, "strides": g, "row": r, "column": c} for name, s, g, r, c in steps}


def _merged(sizes: tuple[int, ...], *steps: tuple[int, ...]) -> list[Dimension]:
    """Return the fewest dimensions; the axis, where the table has a step of 0, is not merged."""
    merged = merge(sizes, *steps)
    return [(n, t, i, v) for n, t, i, v in zip(*merged, strict=True) if n > 1]


def _cut(dimensions: list[Dimension], width: int, *, is_together: bool, keeps_lines: bool) -> Cut:
    """Return which dimensions are rows and columns, and along which shares are cut.

    is_together: the last dimension has the words of an element, which are columns.
    """

    def length(each: Dimension) -> tuple[int, int]:
        """Return the distance in memory from one element to the next; among equal ones, the longer comes first."""
        return abs(each[2]) * INDEX_WORD.itemsize + abs(each[3]) * width, -each[0]

    axis = next((each for each in dimensions if keeps_lines and each[1] == 0), None)
    ordered = sorted(dimensions, key=length)
    columns = ordered[0] if ordered else _ONE
    if is_together:
        columns = dimensions[-1]
    elif axis and columns is not axis and columns[0] < min(_SHORT, axis[0]):
        columns = axis
    others = [each for each in ordered if each is not columns]
    rows = axis if axis and axis is not columns else others[0] if others else _ONE
    groups = [each for each in dimensions if each is not columns and each is not rows]
    cuts_rows = rows is not axis and (rows is not _ONE or columns is axis)
    step = abs((rows if cuts_rows else columns)[1]) * width
    unit = columns[0] if is_together and not cuts_rows else -(-FALSE_SHARING // step) if 0 < step < FALSE_SHARING else 1
    return Cut(groups, rows, columns, cuts_rows, unit)


def _checked(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[dict[str, Any], int]:
    """Return the runs of indices to validate, and their pieces; a repeated index is checked once."""
    dimensions = [(n, step) for n, step in zip(shape, steps, strict=True) if step != 0 and n > 1]
    (*sizes, length), (*strides, step) = merge(*zip(*dimensions, strict=True)) if dimensions else ([1], [0])
    runs = math.prod(sizes)
    checked = {"runs": runs, "length": length, "step": step, "walk": walk_of(sizes or [1]), "strides": strides or [0]}
    return checked, runs * -(-length // PIECE)


def reported(parts: int, scratch: Array) -> bool:
    """Return whether a share reports what its kernel searches for."""
    return any(scratch.item(part) for part in range(parts))


def index_form(indices: Form) -> Form:
    """Return the form of indices as int64 if kernels do not read them directly."""
    return indices if indices.dtype.itemsize >= 4 else Form(indices.shape, np.dtype(np.int64))
