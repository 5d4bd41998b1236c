"""Records: named fields in the arrays that plans pass to kernels, and in the workspace of kernels.

A *record* is a NumPy structured type with nested fields. It travels as an array of int64, because Numba takes 0.1 us
longer to look at a structured array. Inside the kernel `record_at` gives the fields their names: ``work =
record_at(works, 0, WORK)``, and then ``work.x.start``.

A record is memory. In a loop that writes to arrays LLVM loads its fields again each time round, and does not vectorize.
So a hot loop gets the fields it needs as arguments or in a NamedTuple, which live in registers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

CACHE_LINE = 64
CELL = 8  # bytes of the int64 that records are passed as
LINE_CELLS = CACHE_LINE // CELL

Record = np.dtype[Any]


def record(align: int = CELL, **fields: Any) -> Record:
    """Return a record type. A field is a type, or (type, shape); arrays and nested records start at multiples of align.

    The whole is a multiple of `align` bytes long; `align` is a multiple of CELL.
    """
    names, formats, offsets, end = [], [], [], 0
    for name, field in fields.items():
        dtype = np.dtype(field)
        multiple = align if dtype.shape or dtype.names else dtype.alignment
        end += -end % multiple
        names.append(name)
        formats.append(field)
        offsets.append(end)
        end += dtype.itemsize
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end + -end % align})


def cells_of(dtype: Record) -> int:
    """Return how many int64 a record takes."""
    return dtype.itemsize // CELL


def record_of(dtype: Record, **values: Any) -> NDArray[np.int64]:
    """Return a record with these values, as int64; ``.view(dtype)`` shows it by name.

    A nested record is given as a mapping. A table may be shorter than its field: the rest is 0. Raise TypeError if a
    field is missing or unknown, and ValueError if a table is longer than its field.
    """
    works = np.zeros(1, dtype)
    _set(works[0], dtype, values, "")
    return works.view(np.int64)


def _set(target: Any, dtype: Record, values: Mapping[str, Any], path: str) -> None:
    names = dtype.names or ()
    if values.keys() != set(names):
        missing, unknown = [n for n in names if n not in values], [n for n in values if n not in names]
        raise TypeError(f"record {path or 'as a whole'}: missing {missing}, unknown {unknown}")
    for name, value in values.items():
        if dtype[name].names:
            _set(target[name], dtype[name], value, f"{path}.{name}".lstrip("."))
        elif dtype[name].shape:
            shape, most = np.shape(value), dtype[name].shape
            if any(n > size for n, size in zip(shape, most, strict=True)):
                raise ValueError(f"record field {f'{path}.{name}'.lstrip('.')}: a table of {shape}; allowed: {most}")
            target[name][tuple(map(slice, shape))] = value
        else:
            target[name] = value


@intrinsic
def record_at(_context, cells, index, dtype):  # type: ignore[no-untyped-def]
    """Return the memory from cells[index] on as a record; cells: int64, which must outlive the result."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(builder.gep(data, [arguments[1]]), context.get_value_type(signature.return_type))

    return dtype.dtype(cells, types.intp, dtype), generate
