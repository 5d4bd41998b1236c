"""Vectors that defeat their codes are encoded again: equal vectors once, and far groups each about its own center.

Both are searched only after all vectors were scored for enough queries, so other data pay nothing.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dmlcpu.common.arguments import Array
from dmlcpu.errors import DmlError
from dmlcpu.search.codes import Frame, frame_of, sample_of, stored_floats
from dmlcpu.search.found import Found, best_of
from dmlcpu.search.quantizer import BLOCK_ELEMENTS
from dmlcpu.search.vectors import Stored

MOST_GROUPS = 16  # each is searched twice: for the queries that are nearest to it, and for the others
_LOOKED_AT = 1024  # vectors among which groups and equal vectors are looked for
_APART = 4  # the least ratio of the radius of all vectors to that of a group: with less, groups do not pay
# Equal vectors are searched once if a sample has at least _REPEATED times as many vectors as different vectors, or if
# one vector is at least 1 / _COMMON of the sample. The search can score all copies of a less common vector.
_REPEATED, _COMMON = 2, 8


class Group(NamedTuple):
    """Vectors about one center; their floats are those of the index."""

    stored: Stored  # the codes
    names: Array  # int64: the positions in the index, ascending


@dataclass(frozen=True, slots=True)
class Repeats:
    """Which vectors are equal. The search compares only the first of equal vectors."""

    order: Array  # int64 (N,): positions, equal vectors next to one another, in ascending order
    starts: Array  # int64 (U + 1,): where those of each different vector start in `order`
    place: Array  # int64 (N,): the number of each vector among the different ones

    @property
    def firsts(self) -> Array:
        """The first position of each different vector, ascending."""
        return self.order[self.starts[:-1]]

    def expanded(self, found: Found, k: int) -> Found:
        """Return the k best of all vectors; found: the k best of the different vectors."""
        result = Found.nothing(len(found.ranks), k)._replace(scored=found.scored, passes=found.passes)
        # One query after the other, as each has another number of copies.
        for row, (ranks, positions) in enumerate(zip(found.ranks, found.positions, strict=True)):
            there = int(np.count_nonzero(positions >= 0))
            numbers = self.place[positions[:there]]
            sizes = np.minimum(self.starts[numbers + 1] - self.starts[numbers], k)
            ends = np.cumsum(sizes)
            if ends[-1] > k:  # all of the k-th best rank take part, and no others
                last = ranks[np.searchsorted(ends, k)]
                there = int(np.count_nonzero(ranks[:there] >= last))
                numbers, sizes, ends = numbers[:there], sizes[:there], ends[:there]
            each = np.repeat(self.starts[numbers] - ends + sizes, sizes) + np.arange(ends[-1])
            own = best_of(np.repeat(ranks[:there], sizes)[None], self.order[each][None], k)
            result.ranks[row, : own[0].size], result.positions[row, : own[1].size] = own[0][0], own[1][0]
        return result


@dataclass(frozen=True, slots=True)
class Groups:
    """What a search reads in place of the codes of an index."""

    groups: list[Group]
    centres: Array  # float64 (groups, D)
    repeats: Repeats | None  # None: each vector is in a group

    def nearest(self, queries: Array) -> Array:
        """Return the number of the group that probably has the best vectors of each query, float64 (M, D)."""
        return _nearest(queries, self.centres, is_distance=self.groups[0].stored.frame.metric == "l2")


def groups_of(stored: Stored) -> Groups | None:
    """Return vectors that are encoded again, or None if that would not help."""
    floats, frame = stored.floats, stored.frame
    assert floats is not None
    repeats = _repeats(floats)
    names = np.arange(len(floats)) if repeats is None else repeats.firsts
    centres = _centres(_centred(floats[names[sample_of(len(names), _LOOKED_AT)]], frame))
    if len(centres) == 1 and repeats is None:
        return None
    numbers, rows = np.zeros(len(names), np.int64), max(1, BLOCK_ELEMENTS // frame.depth)
    for start in range(0, len(names) if len(centres) > 1 else 0, rows):
        part = slice(start, start + rows)
        numbers[part] = _nearest(_centred(floats[names[part]], frame), centres, is_distance=True)
    members = [names[numbers == number] for number in range(len(centres))]
    try:
        groups = [_group(stored, each) for each in members if len(each)]
    except DmlError:  # a file has NaN: that vector is the worst of all, and has no codes
        return None
    return Groups(groups, np.stack([group.stored.frame.centre for group in groups]), repeats)


def _group(stored: Stored, names: Array) -> Group:
    floats, metric = stored.floats, stored.frame.metric
    assert floats is not None
    frame = frame_of(metric, floats[names[sample_of(len(names))]])  # which looks at as many, so at all of these
    codes = stored_floats("FloatIndex.search", floats, frame, names=names)
    return Group(replace(codes, floats=None, squares=None), names)


def _centred(vectors: Array, frame: Frame) -> Array:
    """Return vectors less the center, float64; for cosines, of the length 1 before."""
    wide = vectors.astype(np.float64)
    if frame.metric == "cosine":
        lengths = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
        np.divide(wide, lengths, out=wide, where=lengths > 0)
    return wide - frame.centre


def _nearest(x: Array, centres: Array, *, is_distance: bool) -> Array:
    """Return the number of the nearest center, or of that with the greatest product, of each row."""
    scores = x @ centres.T
    if is_distance:
        scores -= np.square(centres).sum(axis=1) / 2
    found: Array = np.argmax(scores, axis=1)
    return found


def _centres(sample: Array) -> Array:
    """Return vectors far from one another, to each of which others are near; a single one if there are no groups."""
    chosen, distances, radii = [0], np.full(len(sample), np.inf), np.empty(MOST_GROUPS)
    for number in range(MOST_GROUPS):  # the farthest vector is the next center
        np.minimum(distances, np.square(sample - sample[chosen[-1]]).sum(axis=1), out=distances)
        radii[number] = np.sqrt(distances.max(initial=0))
        chosen.append(int(np.argmax(distances)))
    if not radii[-1] * _APART <= radii[0]:  # NaN is no radius
        return sample[:1]
    return sample[chosen[: 1 + int(np.argmax(radii <= 2 * radii[-1]))]]


def _hashes(bits: Array, blocks: list[slice]) -> Array:
    """Return a number for each row of unsigned integers of up to 32 bits, uint64; equal rows have equal ones."""
    factors = np.random.default_rng(0).integers(0, 1 << 64, bits.shape[1], np.uint64) | np.uint64(1)
    return np.concatenate([bits[part].astype(np.uint64) @ factors for part in blocks])


def _repeats(floats: Array) -> Repeats | None:
    """Return which vectors have the same bits, or None if none is so common that it defeats codes."""
    bits = floats.view(np.uint16 if floats.itemsize == 2 else np.uint32)  # float64: two words, as round ones end in 0
    sample = bits[sample_of(len(bits), _LOOKED_AT)]
    _, copies = np.unique(sample, axis=0, return_counts=True)
    if copies.size * _REPEATED > len(sample) and copies.max() * _COMMON < len(sample):
        return None
    rows = max(1, BLOCK_ELEMENTS // bits.shape[1])
    blocks = [slice(start, start + rows) for start in range(0, len(bits), rows)]
    _, first, which = np.unique(_hashes(bits, blocks), return_index=True, return_inverse=True)
    firsts = first[which]
    for part in blocks:  # vectors whose hashes are equal by chance stay apart
        differs = (bits[part] != bits[firsts[part]]).any(axis=1)
        firsts[part][differs] = np.flatnonzero(differs) + part.start
    _, place = np.unique(firsts, return_inverse=True)
    order = np.argsort(place, kind="stable")
    return Repeats(order, np.append(0, np.cumsum(np.bincount(place))), place)
