"""How the elements of quantizers are cut into runs that kernels process.

Each size of scale and zero point divides x's. So a dimension of x with blocks is split into one of blocks and one of
the elements of a block, in which scale or zero point has a stride of 0. Then dimensions in which all tensors have even
steps are merged, and the last one is the run.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, type_name
from dmlcpu.common.data_types import DATA_TYPES
from dmlcpu.common.forms import Form, Shape
from dmlcpu.directml.enums import TensorDataType
from dmlcpu.directml.tensor import TensorDesc
from dmlcpu.kernels.quantize_linear.work import (
    BFLOAT16,
    DIRECT_TILE,
    FLOAT16,
    FLOAT32,
    INTEGER,
    LARGE,
    LONG,
    NIBBLE,
    TILE,
)
from dmlcpu.kernels.walk import merge, walk_of
from dmlcpu.runtime.memory import first_word, packed_strides, word_strides

_FLOATS = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
# Shorter runs with one scale each are joined to longer ones with several scales.
_SHORT = TILE // 2


class Layout(NamedTuple):
    """What a plan has to know about a tensor."""

    shape: Shape
    strides: Shape  # in elements
    type: str  # a name in the table of data types
    is_packed: bool = False  # two 4-bit elements in each byte

    @property
    def word(self) -> np.dtype[Any]:
        """The type in which kernels see elements."""
        return np.dtype(f"u{max(1, DATA_TYPES[self.type].bits // 8)}")


def layout_of(form: Form) -> Layout:
    """Return the layout of an array."""
    return Layout(form.shape, word_strides(form.steps, form.dtype.itemsize), type_name(form.dtype))


def meets(one: int, other: int) -> bool:
    """Return whether one of two block counts of a dimension divides the other."""
    return max(one, other) % min(one, other) == 0


def lay_out(x: Layout, scale: Layout, zero: Layout, y: Layout) -> dict[str, Any]:
    """Return the fields of the work record about the runs and their layout."""
    tensors = (x, scale, zero, y)
    order = sorted(range(len(x.shape)), key=lambda d: -abs(y.strides[d]))  # so that y is written in memory order
    dimensions = [each for d in order for each in _split(d, tensors)]
    sizes, *strides = merge(*zip(*dimensions, strict=True)) if dimensions else merge((), (), (), (), ())
    n, block, steps, left = _run(sizes, strides)
    sizes, strides = sizes[:left] or [1], [own[:left] or [0] for own in strides]
    named = zip(("x", "scale", "zero", "y"), tensors, steps, strides, strict=True)
    is_direct = block >= LONG and steps[0] == steps[3] == 1 and _is_direct(x, y)
    rows = math.prod(sizes)
    is_large = is_direct and rows * n * (x.word.itemsize + y.word.itemsize) > LARGE
    tile = DIRECT_TILE if is_direct else TILE
    tiles = -(-n // tile)
    return {
        **{name: {**_form(tensor), "step": step, "strides": own} for name, tensor, step, own in named},
        "n": n,
        "tile": tile,
        "is_direct": is_direct,
        "is_large": is_large,
        "tiles": tiles,
        "items": rows * tiles,
        "block": block,
        "walk": walk_of(sizes),
    }


def _split(d: int, tensors: tuple[Layout, ...]) -> list[tuple[int, ...]]:
    """Return the dimensions into which dimension d is split: a size, and a stride of each tensor."""
    n = tensors[0].shape[d]
    blocks = [n // tensor.shape[d] for tensor in tensors]  # 1 for x and y
    units = sorted({1, *[block for block in blocks if block < n]}, reverse=True)
    ends = [n, *units]
    found = []
    for unit, end in zip(units, ends, strict=False):
        strides = [
            0 if block == n > 1 else tensor.strides[d] * (unit // block)
            for tensor, block in zip(tensors, blocks, strict=True)
        ]
        found.append((end // unit, *strides))
    return found


def _run(sizes: list[int], strides: list[list[int]]) -> tuple[int, int, list[int], int]:
    """Return the elements of a run, those that share a scale, the step of each tensor, and the remaining dimensions."""
    x, scale, zero, y = strides
    n, left, steps = sizes[-1], len(sizes) - 1, [own[-1] for own in strides]
    if scale[-1] or zero[-1]:
        return n, 1, steps, left
    if n < _SHORT and left and x[-2] == n * x[-1] and y[-2] == n * y[-1]:
        return sizes[-2] * n, n, [x[-1], scale[-2], zero[-2], y[-1]], left - 1
    return n, max(n, LONG), steps, left


def _is_direct(x: Layout, y: Layout) -> bool:
    """Return whether a kernel's inner loop reads elements of x and writes those of y directly."""
    if x.is_packed or y.is_packed:
        return False
    if y.type in _FLOATS:
        return y.type == "float32" and DATA_TYPES[x.type].bits in (8, 16)
    return x.type == "float32"


def _form(tensor: Layout) -> dict[str, int]:
    """Return the fields of a tensor's record that do not depend on the runs."""
    row = DATA_TYPES[tensor.type]
    kind = NIBBLE if tensor.is_packed else _FLOATS.get(tensor.type, INTEGER)
    return {
        "start": first_word(tensor.shape, tensor.strides),
        "kind": kind,
        "mask": (1 << row.bits) - 1,
        "flip": 1 << row.bits - 1 if row.kind == "i" else 0,
    }


# Without compilation, NumPy reads and writes 4-bit tensors: each byte has two elements, the first in the low bits.


def elements_of(tensor: TensorDesc, array: Array) -> Array:
    """Return the elements of a tensor; 4-bit ones as int8 or uint8."""
    if tensor.data_type.bits > 4:
        return array
    is_signed = tensor.data_type is TensorDataType.INT4
    if array.dtype != np.uint8:  # of ml_dtypes
        widened: Array = array.astype(np.int8 if is_signed else np.uint8)
        return widened
    places = _places(tensor)
    found: Array = (array[places >> 1] >> ((places & 1) << 2).astype(np.uint8)) & 15
    signed: Array = (found ^ 8).astype(np.int8) - np.int8(8)
    return signed if is_signed else found


def store_elements(tensor: TensorDesc, values: Array, array: Array) -> None:
    """Write 8-bit integers, clipped, to a 4-bit tensor."""
    is_signed = tensor.data_type is TensorDataType.INT4
    clipped = np.clip(values, *((-8, 7) if is_signed else (0, 15)))
    if array.dtype != np.uint8:
        array[...] = clipped.astype(array.dtype)
        return
    places, bits = _places(tensor), (clipped & 15).astype(np.uint8)
    for shift, keep in ((0, 0xF0), (4, 0x0F)):
        mine = (places & 1) == shift // 4
        where = places[mine] >> 1
        array[where] = (array[where] & keep) | (bits[mine] << shift)


def _places(tensor: TensorDesc) -> Array:
    """Return the number of each element in the buffer."""
    strides = tensor.strides or packed_strides(tensor.sizes)
    places = np.zeros(tensor.sizes, np.intp)
    for d, (n, stride) in enumerate(zip(tensor.sizes, strides, strict=True)):
        places += (np.arange(n) * stride).reshape([-1 if e == d else 1 for e in range(len(tensor.sizes))])
    return places
