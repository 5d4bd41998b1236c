"""What each row of a selection may select: masks, lists and sparse matrices become a bit for each row and column."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array, as_array
from dmlcpu.errors import BindingError, DmlError, UnsupportedError
from dmlcpu.kernels import registry
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.records import record_of
from dmlcpu.runtime.threads import budget

_LISTS = "a list of ints for each of the {rows} queries, a sparse matrix ({rows}, {columns}) or its (indptr, indices)"


class Entries(NamedTuple):
    """Positions of columns, in some rows."""

    starts: Array  # int64 (rows + 1,): where those of each row begin
    positions: Array  # int64, -1 for none

    def part(self, start: int, stop: int) -> "Entries":
        """Return those of some rows."""
        starts = self.starts[start : stop + 1]
        return Entries(starts - starts[0], self.positions[starts[0] : starts[-1]])


class Allowed(NamedTuple):
    """What each row may select, checked."""

    rows: int
    columns: int
    masks: list[tuple[Array, bool]]  # bool (1 or rows, columns), and whether True allows or excludes
    lists: list[tuple[Entries, bool]]  # of one row or of all, and whether they allow or exclude

    @property
    def is_by_row(self) -> bool:
        """Whether rows may select different columns."""
        return any(len(mask) > 1 for mask, _ in self.masks) or any(len(each.starts) > 2 for each, _ in self.lists)

    def bits(self, start: int, stop: int) -> Array:
        """Return which columns some rows may select: uint8 (1 or rows, ceil(columns / 8)), the lowest bit first."""
        found = np.packbits(np.ones((1, self.columns), bool), axis=1, bitorder="little")
        for mask, allows in self.masks:
            bits = np.packbits(mask if len(mask) == 1 else mask[start:stop], axis=1, bitorder="little")
            found = found & (bits if allows else ~bits)
        for entries, allows in self.lists:
            own = entries if len(entries.starts) == 2 else entries.part(start, stop)
            lines = _lines(own, found.shape[1], allows)
            found = found & lines
        return np.ascontiguousarray(found)


def allowed_of(
    operator: str,
    rows: int,
    columns: int,
    *,
    mask: Any = None,
    allowlist: Any = None,
    exclude: Any = None,
    positions: Callable[[Array], Array] | None = None,
) -> Allowed:
    """Return which columns each row may select, or refuse an argument.

    mask: bool (columns,) or (rows, columns); allowlist: numbers for all rows, or as exclude for each; exclude: lists,
    a sparse matrix, (indptr, indices), or bool (rows, columns). positions: of numbers in lists; -1: there is none.
    """
    found = Allowed(rows, columns, [], [])
    exclude, allowlist = _as_lists(operator, "exclude", exclude), _as_lists(operator, "allowlist", allowlist)
    if mask is not None:
        found.masks.append((_checked_mask(operator, "mask", mask, [(columns,), (rows, columns)]), True))
    if exclude is not None and _is_mask(exclude):
        found.masks.append((_checked_mask(operator, "exclude", exclude, [(rows, columns)]), False))
    elif exclude is not None:
        entries = entries_of(operator, "exclude", exclude, rows, columns, positions, may_be_flat=rows == 1)
        found.lists.append((entries, False))
    if allowlist is not None:
        entries = entries_of(operator, "allowlist", allowlist, rows, columns, positions, may_be_flat=True)
        found.lists.append((entries, True))
    return found


def has_lines(value: Any) -> bool:
    """Return whether a mask, an allowlist or an exclusion differs between rows."""
    return value is not None and (hasattr(value, "tocsr") or _is_csr(value) or _is_nested(value))


def lines_of(value: Any, start: int, stop: int) -> Any:
    """Return what belongs to some rows of a mask, an allowlist or an exclusion."""
    if not has_lines(value):
        return value
    if _is_csr(value):
        starts, numbers = map(np.asarray, value)
        starts = starts[start : stop + 1]
        return starts - starts[0], numbers[starts[0] : starts[-1]]
    return (value.tocsr() if hasattr(value, "tocsr") else value)[start:stop]


def entries_of(
    operator: str,
    field: str,
    value: Any,
    rows: int,
    columns: int,
    positions: Callable[[Array], Array] | None,
    *,
    may_be_flat: bool,
) -> Entries:
    """Return the entries of each row, or of one row for all; refuse what has another form."""
    if hasattr(value, "tocsr"):
        if value.shape != (rows, columns):
            raise BindingError(operator, f"{field}.shape", str(value.shape), f"({rows}, {columns})")
        matrix = value.tocsr()
        kept = matrix.data != 0
        starts = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
        return Entries(starts.astype(np.int64), matrix.indices[kept].astype(np.int64))
    if _is_csr(value):
        starts, numbers = _checked_csr(operator, field, value[0], value[1], rows)
        return Entries(starts, _positions_of(numbers, columns, positions))
    is_nested = _is_nested(value) or (rows == 0 and len(value) == 0)
    if not is_nested and may_be_flat:
        numbers = _integers(operator, field, value)
        return Entries(np.array([0, len(numbers)]), _positions_of(numbers, columns, positions))
    if not is_nested or len(value) != rows:
        found = f"{len(value)} list{'s' * (len(value) != 1)}" if is_nested else "numbers"
        raise BindingError(operator, field, found, _LISTS.format(rows=rows, columns=columns))
    if getattr(value, "ndim", 1) == 2 and value.dtype.kind in "iu" and value.min(initial=0) >= 0:
        numbers = _integers(operator, field, value.reshape(-1))
        return Entries(np.arange(rows + 1) * value.shape[1], _positions_of(numbers, columns, positions))
    lists = [_integers(operator, f"{field}[{row}]", each) for row, each in enumerate(value)]
    numbers = np.concatenate(lists) if lists else np.empty(0, np.int64)
    return Entries(np.cumsum([0, *map(len, lists)]), _positions_of(numbers, columns, positions))


def _positions_of(numbers: Array, columns: int, positions: Callable[[Array], Array] | None) -> Array:
    found = numbers if positions is None else positions(numbers)
    return np.where(found < columns, found, -1)


def _as_lists(operator: str, field: str, value: Any) -> Any:
    """Return what has a length, arrays of other libraries as NumPy's; refuse what has none."""
    if value is None or hasattr(value, "tocsr"):
        return value
    if hasattr(value, "dtype") and not isinstance(value, np.ndarray):
        return as_array(operator, field, value)
    if not hasattr(value, "__len__") or isinstance(value, str | bytes) or getattr(value, "ndim", 1) == 0:
        raise UnsupportedError(operator, field, type(value).__name__, "lists of integers")
    return value


def _is_mask(value: Any) -> bool:
    """Return whether exclusions are bools: an array, or lists of them."""
    if hasattr(value, "tocsr"):
        return False
    first = next((each for row in value if _is_list(row) for each in row), None) if isinstance(value, list) else None
    return isinstance(first, bool | np.bool_) or getattr(value, "dtype", None) == np.bool_


def _is_csr(value: Any) -> bool:
    """Return whether it is a pair of arrays, (indptr, indices)."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_list, value))


def _is_nested(value: Any) -> bool:
    """Return whether it has a list for each row."""
    if hasattr(value, "dtype"):
        return bool(value.ndim > 1 or value.dtype == np.object_)
    return any(map(_is_list, value))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset | range) or getattr(value, "ndim", 0) > 0


def _checked_csr(operator: str, field: str, starts: Any, numbers: Any, rows: int) -> tuple[Array, Array]:
    """Return (indptr, indices), or refuse them."""
    starts, numbers = (_integers(operator, f"{field}[{place}]", each) for place, each in enumerate((starts, numbers)))
    if len(starts) != rows + 1:
        raise BindingError(operator, f"{field}[0].shape", f"({len(starts)},)", f"({rows + 1},)")
    if starts[0] != 0 or starts[-1] != len(numbers) or (np.diff(starts) < 0).any():
        raise DmlError(operator, f"{field}[0]", "other numbers", f"rising numbers from 0 to {len(numbers)}")
    return starts, numbers


def _integers(operator: str, field: str, value: Any) -> Array:
    """Return numbers of at least 0 as a flat array of int64; those beyond int64 are dropped."""
    array = as_array(operator, field, sorted(value) if isinstance(value, set | frozenset) else value)
    if array.size and array.dtype.kind not in "iu":
        raise UnsupportedError(operator, f"{field}.dtype", str(array.dtype), "integers")
    if array.ndim != 1:
        raise BindingError(operator, f"{field}.shape", str(array.shape), "one dimension")
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(np.iinfo(np.int64).max))
    if array.size and array.min() < 0:
        place = int(np.argmax(array < 0))
        raise DmlError(operator, f"{field}[{place}]", str(array[place]), "at least 0")
    return array.astype(np.int64)


def _checked_mask(operator: str, field: str, value: Any, shapes: list[tuple[int, ...]]) -> Array:
    """Return a mask, or refuse it."""
    array = as_array(operator, field, value)
    if array.dtype != np.bool_ and not (array.size == 0 and not hasattr(value, "dtype")):
        raise UnsupportedError(operator, f"{field}.dtype", str(array.dtype), "bool")
    if array.shape not in shapes:
        raise BindingError(operator, f"{field}.shape", str(array.shape), " or ".join(map(str, shapes)))
    array = array.astype(bool, copy=False)
    return array if array.ndim == 2 else array[None]


def _lines(entries: Entries, step: int, allows: bool) -> Array:
    """Return the bits of what is listed if that is allowed, else of all the rest: uint8 (rows, step)."""
    count = len(entries.starts) - 1
    if can_compile() and count and step:
        lines = np.empty((count, step), np.uint8)
        parts = budget().parts(count * step // 8 + 2 * len(entries.positions), count)
        work = record_of(registry.load("selection.marks.MARKS"), rows=count, step=step, allows=allows)
        kernel = registry.find("matmul_top_k", "mark").kernel.for_parts(parts)
        kernel(lines.reshape(-1), entries.starts, entries.positions, work)
        return lines
    listed = np.zeros(count * step, np.uint8)
    rows, there = np.repeat(np.arange(count) * step, np.diff(entries.starts)), entries.positions >= 0
    positions = entries.positions[there]
    np.bitwise_or.at(listed, rows[there] + (positions >> 3), np.left_shift(1, positions & 7).astype(np.uint8))
    return (listed if allows else ~listed).reshape(count, step)
