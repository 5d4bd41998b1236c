"""The vectors of an index at one time, with what is kept for them. They never change: others take their place."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.search.quantizer import BLOCK_ELEMENTS, byte_squares, pair_sums, quantize
from dmlcpu.search.spaces import Space

ARRAYS = ("vectors", "scales", "squares", "ids", "floats", "bias")  # of an index
_OF_CODES = ("vectors", "scales", "bias")
SAMPLE = 4096  # vectors by which bounds are estimated
_GROWTH = 1.5  # of arrays that vectors are added to: so each addition need not copy all


_T = TypeVar("_T")


class _Kept(Generic[_T]):
    """A property that is computed once and kept.

    Python 3.11's `functools.cached_property` has a lock for all objects. A process that is forked while another thread
    computes would wait for it for ever. Here two threads may compute the same, and the first result is kept.
    """

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, _: type | None = None) -> _T:
        name = self._function.__name__
        if name not in owner.__dict__:
            owner.__dict__.setdefault(name, self._function(owner))
        kept: _T = owner.__dict__[name]
        return kept


class Limits(NamedTuple):
    """Bounds of all encoded vectors; see codes.py."""

    lost: float = 0.0  # of |w / scale - codes|
    length: float = 0.0  # of |codes|
    reach: float = 0.0  # of |w|

    def joined(self, other: "Limits") -> "Limits":
        """Return bounds of the vectors of both."""
        return Limits(*map(max, self, other))


NO_LIMITS = Limits()  # of no vectors


class Defeats:
    """How many queries codes decided nothing for, and the groups that are searched since then; see groups.py."""

    def __init__(self) -> None:
        self.queries = 0
        self.groups: Any = None
        self.is_known = False  # whether groups have been looked for
        self.lock = threading.Lock()  # held by the thread that looks for them


@dataclass(frozen=True, eq=False)
class Stored:
    """N vectors. Each array has a row, or an element, for each vector; None is one that this index does not have."""

    vectors: Array  # int8 or uint8 (N, D), in C order
    scales: Array | None = None  # float32: vector = scale * byte; of vectors that were floats
    squares: Array | None = None  # of each vector the sum of squares: int32 of its bytes; float64 of affine ones, for
    # distances less the centers, and of floats
    ids: Array | None = None  # int64
    floats: Array | None = None  # (N, D): the vectors before they were quantized
    bias: Array | None = None  # float32: what is added to bounds; see codes.py
    limits: Limits = NO_LIMITS
    frame: Any = None  # how floats were encoded

    def __len__(self) -> int:
        return len(self.vectors)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that there are, by name."""
        every = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in every.items() if array is not None}

    def taken(self, positions: Array) -> "Stored":
        """Return the vectors at some positions."""
        return self._with({name: array[positions] for name, array in self.arrays().items()})

    @_Kept
    def sample(self) -> "Stored":
        """The codes of some vectors of all parts, up to SAMPLE, next to one another."""
        step = max(1, -(-len(self) // SAMPLE))
        kept = {name: array[::step].copy() for name, array in self.arrays().items() if name in _OF_CODES}
        return replace(self, squares=None, ids=None, floats=None)._with(kept)

    @_Kept
    def defeats(self) -> Defeats:
        """What is known of searches that codes did not help."""
        return Defeats()

    def in_memory(self) -> "Stored":
        """Return the same as plain arrays, to be pickled."""
        return self._with({name: np.asarray(array) for name, array in self.arrays().items()})

    def _with(self, arrays: dict[str, Any]) -> "Stored":
        return replace(self, **arrays)

    @_Kept
    def order(self) -> Array:
        """The positions in ascending order of ids."""
        assert self.ids is not None
        return np.argsort(self.ids, kind="stable")

    def positions(self, ids: Array) -> Array:
        """Return the position of each id, or -1 for one that is not there."""
        if self.ids is None:
            return np.where((ids >= 0) & (ids < len(self)), ids, -1)
        if not len(self):
            return np.full(ids.shape, -1)
        places = np.minimum(np.searchsorted(self.ids, ids, sorter=self.order), len(self) - 1)
        found: Array = np.where(self.ids[self.order[places]] == ids, self.order[places], -1)
        return found

    @_Kept
    def lengths(self) -> Array:
        """1 / the length of each vector, or of its bytes; 0 of a vector of zeros. float32."""
        return reciprocal_roots(self.squares)

    @_Kept
    def int_bias(self) -> Array:
        """What integer products are less for a squared distance. int32."""
        assert self.squares is not None
        return np.negative(self.squares)

    @_Kept
    def float_bias(self) -> Array:
        """What float products are less for a squared distance: one rounding of the vector's square. float32."""
        assert self.squares is not None
        scale = 1.0 if self.scales is None else np.square(self.scales.astype(np.float64))
        return np.negative(self.squares.astype(np.float64) * scale).astype(np.float32)


def joined(before: Stored, later: Stored, rooms: dict[str, Array]) -> Stored:
    """Return vectors with others after them. rooms: arrays whose unused end no earlier search reads."""
    arrays, others = before.arrays(), later.arrays()
    count, total = len(before), len(before) + len(later)
    for name, array in arrays.items():
        room = rooms.get(name)
        if room is None or array.base is not room or len(room) < total:
            room = rooms[name] = np.empty((int(_GROWTH * total), *array.shape[1:]), array.dtype)
            room[:count] = array
        room[count:total] = others[name]
        arrays[name] = room[:total]
    return before._with({**arrays, "limits": before.limits.joined(later.limits)})


def reciprocal_roots(squares: Any) -> Array:
    """Return 1 / sqrt(squares) as float32, 0 for 0."""
    roots = np.sqrt(squares.astype(np.float64))
    found: Array = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0).astype(np.float32)
    return found


def stored_of(operator: str, vectors: Array, space: Space, *, keeps: bool = False, first: int = 0) -> Stored:
    """Return checked vectors (N, D) as they are stored; keeps: also keep floats."""
    if vectors.dtype.itemsize == 1:
        codes = np.ascontiguousarray(vectors)
        return Stored(codes, squares=_squares(codes, space))
    found = quantize(operator, "vectors", vectors, first)
    squares = None if space.metric == "ip" else found.squares
    return Stored(found.codes, found.scales, squares, floats=storable(vectors) if keeps else None)


def storable(floats: Array) -> Array:
    """Return floats in a type that .npy files have: of bfloat16, the same numbers as float32."""
    return floats if floats.dtype.kind == "f" else floats.astype(np.float32)


def _squares(codes: Array, space: Space) -> Array | None:
    if space.metric == "ip":
        return None
    if space.ranges is None:
        return byte_squares(codes)
    squares = np.empty(len(codes))
    for start in range(0, len(codes), rows := max(1, BLOCK_ELEMENTS // space.depth)):
        part = codes[start : start + rows]
        values = space.from_centres(part) if space.metric == "l2" else space.decoded(part)
        squares[start : start + rows] = pair_sums(values, values[:, None])[:, 0]
    return squares
