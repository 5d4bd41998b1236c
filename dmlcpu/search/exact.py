"""Exact search among floats: codes select candidates by upper bounds, floats decide, and bounds prove completeness.

    the 128 best bounds: scored exactly, the best first, until the next bound is below the k-th best score
    if that is not proven: the same with all bounds that reach the k-th best score, up to a limit
    if there are too many of these: all vectors are scored; after 64 such queries, vectors are encoded again (groups.py)

docs/exact_search.rst has the derivation. Ranks are scores whose greatest is the best: distances have the other sign.
"""

from typing import NamedTuple

import numpy as np

from dmlcpu import reference
from dmlcpu.annotations import Metric
from dmlcpu.common.arguments import Array
from dmlcpu.kernels import registry
from dmlcpu.kernels.search.constants import DISTANCES, PRODUCTS, ROUNDED_PRODUCTS
from dmlcpu.runtime import threads
from dmlcpu.runtime.compilation import can_compile
from dmlcpu.runtime.memory import flat
from dmlcpu.runtime.records import record_of
from dmlcpu.search.codes import METRIC_NUMBERS, UNDERFLOW, Terms, plain, terms_of
from dmlcpu.search.found import Found, best_of
from dmlcpu.search.groups import Group, Groups, groups_of
from dmlcpu.search.ranking import few_allowed, names_of
from dmlcpu.search.vectors import Stored
from dmlcpu.selection.call import Operands, Order
from dmlcpu.selection.plan import select

_CANDIDATES = 128  # of a query at first: for k 10, random vectors of 384 and 768 dimensions need 30 to 75
_TIMES = 5  # as many as k, of a greater k
_WIDER = 8  # times as many, if these are not enough
_MOST = 1 << 14  # candidates of a query
_FEWEST = 8  # vectors for a candidate: with more candidates, scoring all is faster
_FEW_QUERIES = 8  # for which it does not pay to guess how great bounds are
_SCANNED = 64  # queries that read all vectors together
_ALL = 3  # of a report's passes
_DEFEATS = 64  # queries for which codes did not help: then the reason is searched
_MANY = 10_000  # vectors of which it is worth a warning that all were scored
_SMALL = 1 << 15  # numbers of vectors that are scored without codes
_CANDIDATES_AT_A_TIME, _CONVERTED = 1 << 22, 1 << 22  # candidates of all queries; numbers that become float32
_NS_OF_CANDIDATE, _NS_OF_NUMBER = 0.15, 0.06  # of each number of a pair, for one thread, in nanoseconds
_NO_SQUARES, _NO_BITS = np.zeros(1), np.zeros(1, np.uint8)


def search(operator: str, stored: Stored, queries: Array, k: int, bits: Array | None) -> Found:
    """Return the k best vectors of each query, the best first.

    bits: which vectors may be found, uint8 (1 or M, ceil(N / 8)); None: all.
    """
    if not can_compile():
        return _by_reference(operator, stored, queries, k, bits)
    places = None if bits is None else few_allowed(bits, len(stored))
    if places is not None and len(places):
        few = search(operator, stored.taken(places), queries, k, None)
        return few._replace(positions=names_of(places, few.positions))
    terms, most = terms_of(operator, queries, stored.frame, stored.limits), min(k, len(stored))
    found = Found.nothing(len(queries), k)
    if most and len(queries):
        best = found._replace(ranks=found.ranks[:, :most], positions=found.positions[:, :most])
        asked = _Asked(stored, stored, None, np.ascontiguousarray(queries, np.float64), terms, most, bits, None)
        _search(operator, asked, best)
    return found


def _by_reference(operator: str, stored: Stored, queries: Array, k: int, bits: Array | None) -> Found:
    """Return the best by the reference, which computes all scores."""
    terms_of(operator, queries, stored.frame, stored.limits)  # which refuses what is not finite
    mask = None if bits is None else np.unpackbits(bits, axis=1, count=len(stored), bitorder="little").astype(bool)
    assert stored.floats is not None
    metric, count = stored.frame.metric, len(queries)
    mask = None if mask is None else np.broadcast_to(mask, (count, len(stored)))
    scores, positions = reference.exact_knn(queries, stored.floats, k, metric, mask=mask)
    ranks = -scores if metric == "l2" else scores
    return Found(ranks, positions, np.full(count, len(stored)), np.full(count, _ALL, np.int8))


def are_defeated(count: int, scored: Array) -> bool:
    """Return whether codes of `count` vectors did not help most queries of a search."""
    # More are scored than there are if codes have given candidates first.
    return bool(count >= _MANY and 2 * np.count_nonzero(scored > count) > len(scored))


def reason_of(stored: Stored) -> str:
    """Return why codes do not help, for a log."""
    assert stored.scales is not None
    near, most = float(np.percentile(stored.scales, 10)), float(stored.scales.max())
    if most > 30 * near:
        why = f"some vectors are {most / near if near else np.inf:.3g} times as far from the median as others"
    else:
        why = "too many vectors have nearly the same score"
    return f"all vectors are scored as floats, as their codes decide too little: {why}"


class _Asked(NamedTuple):
    """What is searched, and for what."""

    stored: Stored  # whose codes are read
    whole: Stored  # the index's, whose floats are read
    names: Array | None  # the positions in the index of a group's vectors; None: all
    queries: Array  # float64 (M, D)
    terms: Terms
    k: int
    bits: Array | None
    floors: Array | None  # float64 (M,): ranks that others have reached

    @property
    def floats(self) -> Array:
        """The vectors as they were given."""
        assert self.whole.floats is not None
        return self.whole.floats

    @property
    def metric(self) -> Metric:
        """The metric of the index."""
        metric: Metric = self.stored.frame.metric
        return metric

    def floors_of(self, rows: Array, found: Found) -> Array:
        """Return the ranks that vectors have to reach for some queries, float64: what was found, or others reached."""
        own: Array = found.ranks[rows, -1]
        return own if self.floors is None else np.maximum(own, self.floors[rows])

    @property
    def squares(self) -> Array:
        """The sums of squares of the vectors, for cosines."""
        return _NO_SQUARES if self.whole.squares is None else self.whole.squares

    def bits_of(self, rows: Array) -> Array | None:
        """Return the bits of some queries."""
        return self.bits if self.bits is None or len(self.bits) == 1 else self.bits[rows]

    @property
    def share(self) -> float:
        """Which part of the vectors may be found, on average."""
        if self.bits is None:
            return 1.0
        return max(1, int(np.bitwise_count(self.bits).sum())) / (len(self.bits) * len(self.stored))

    def best(self) -> dict[str, int]:
        """Return the record of what is kept."""
        metric = self.metric
        is_rounded = self.terms.is_wide or self.floats.dtype == np.float64
        summed = DISTANCES if metric == "l2" else ROUNDED_PRODUCTS if is_rounded else PRODUCTS
        return {"k": self.k, "depth": self.stored.frame.depth, "metric": METRIC_NUMBERS[metric], "terms": summed}


def _search(operator: str, asked: _Asked, found: Found) -> None:
    """Find the best by codes; if these do not help enough, by groups, or by the scores of all vectors."""
    left, groups = np.arange(len(asked.queries)), _groups_if_due(asked)
    if groups is None:
        left = _by_codes(asked, left, found)
        asked.stored.defeats.queries += int(np.count_nonzero(found.scored[left]))
        groups = _groups_if_due(asked)
    if groups is None:
        _score_all(asked, left, found)
    elif left.size:
        result = _by_groups(operator, asked, groups, left)
        result.scored[...] += found.scored[left]
        found.put(left, result)


def _groups_if_due(asked: _Asked) -> Groups | None:
    """Return groups of the vectors if codes did not help for enough queries, and groups can help."""
    defeats = asked.stored.defeats
    if asked.bits is not None or defeats.queries < _DEFEATS:
        return None
    # Other threads do not wait for this lock: a signal handler or a forked child would wait forever.
    if not defeats.is_known and defeats.lock.acquire(blocking=False):
        try:
            if not defeats.is_known:
                defeats.groups, defeats.is_known = groups_of(asked.stored), True
        finally:
            defeats.lock.release()
    groups: Groups | None = defeats.groups
    scores_all = _first_count(asked) > len(asked.stored) // _FEWEST
    return None if groups is not None and groups.repeats is None and scores_all else groups


def _by_groups(operator: str, asked: _Asked, groups: Groups, rows: Array) -> Found:
    """Return the best of some queries: those of the nearest group first, whose ranks others have to reach."""
    queries = asked.queries[rows]
    found, nearest = Found.nothing(len(rows), asked.k), groups.nearest(queries)
    for is_first in (True, False):
        for number, group in enumerate(groups.groups):
            own = np.flatnonzero((nearest == number) == is_first)
            if own.size:
                floors = None if is_first else found.ranks[own, -1]
                found.add(own, _of_group(operator, asked, group, queries[own], floors))
    found.passes[...] = np.where(found.scored < len(asked.stored), 2, _ALL)
    return found if groups.repeats is None else groups.repeats.expanded(found, asked.k)


def _of_group(operator: str, asked: _Asked, group: Group, queries: Array, floors: Array | None) -> Found:
    """Return the best of a group for some queries."""
    stored, is_wide = group.stored, asked.terms.is_wide
    given = queries if is_wide else queries.astype(np.float32)  # exact: they were float32, or less
    terms = terms_of(operator, given, stored.frame, stored.limits)
    own = asked._replace(stored=stored, names=group.names, queries=queries, terms=terms, floors=floors)
    found = Found.nothing(len(queries), asked.k)
    _score_all(own, _by_codes(own, np.arange(len(queries)), found), found)
    return found


def _by_codes(asked: _Asked, rows: Array, found: Found) -> Array:
    """Find what codes can prove; return the queries for which all vectors have to be scored."""
    is_near = asked.terms.is_near
    most = min(_MOST, len(asked.stored) // _FEWEST)
    count = _first_count(asked)
    if count > most or asked.stored.vectors.size <= _SMALL:
        return rows
    near, floors = rows[is_near[rows]], asked.floors
    not_proven = _by_candidates(asked, near, count, None if floors is None else floors[near], found)
    hopeless = [rows[~is_near[rows]]]
    if not_proven.size:
        can_help = _can_help(asked, not_proven, asked.floors_of(not_proven, found))
        hopeless.append(not_proven[~can_help])
        not_proven = not_proven[can_help]
    while not_proven.size and count < most:
        count = min(_WIDER * count, most)
        not_proven = _by_candidates(asked, not_proven, count, asked.floors_of(not_proven, found), found)
    return np.sort(np.concatenate([not_proven, *hopeless]))


def _first_count(asked: _Asked) -> int:
    """Return the number of candidates of a query at first."""
    return max(_CANDIDATES, _TIMES * asked.k)


def _by_candidates(asked: _Asked, rows: Array, count: int, floors: Array | None, found: Found) -> Array:
    """Score `count` candidates of some queries; return the queries whose best are not proven. floors: of ranks."""
    not_proven = [rows[:0]]
    for start in range(0, len(rows), step := max(1, _CANDIDATES_AT_A_TIME // count)):
        block = rows[start : start + step]
        if floors is None:  # how great bounds have to be is guessed
            least = rests = _guessed(asked, block, count)
        else:  # lower bounds are those of lower ranks
            least = _scores_of(floors[start : start + step], asked.terms.affine[block])
            rests = np.full(len(block), -np.inf, np.float32)
        bounds, candidates = _candidates(asked.stored, asked.terms, block, count, asked.bits_of(block), least)
        if asked.names is not None:
            candidates = names_of(asked.names, candidates)
        result, is_proven = _refined(asked, block, bounds, candidates, rests)
        result.scored[...] += found.scored[block]
        result.passes[...] = np.where(found.scored[block] > 0, 2, 1)
        found.put(block, result)
        not_proven.append(block[~is_proven])
    return np.concatenate(not_proven)


def _guessed(asked: _Asked, rows: Array, count: int) -> Array:
    """Return what about `count` bounds of each query or more may reach, float32, from those of some vectors.

    A selection that knows it keeps few candidates beyond these: 32 queries among 100,000 vectors take half the time.
    """
    sample, none = asked.stored.sample, np.full(len(rows), -np.inf, np.float32)
    k = int(2 * count * len(sample) / (len(asked.stored) * asked.share)) + 4
    if len(rows) < _FEW_QUERIES or k > len(sample) // _FEWEST:
        return none
    bounds, places = _candidates(sample, asked.terms, rows, k, None, none)
    return np.where(places[:, -1] < 0, none, bounds[:, -1])


def _candidates(
    stored: Stored, terms: Terms, rows: Array, count: int, bits: Array | None, least: Array
) -> tuple[Array, Array]:
    """Return the greatest bounds of some queries, the greatest first, and the positions of their vectors."""
    assert stored.scales is not None
    values, places = np.empty((len(rows), count), np.float32), np.empty((len(rows), count), np.int64)
    operands = Operands(
        np.ascontiguousarray(terms.codes[rows]),
        stored.vectors.T,
        terms.scales[rows, None],
        terms.zero_point,
        stored.scales[None],
        None,
        bias=_bias(stored, terms)[None],
        mask=bits,
        row_bias=terms.added[rows, None],
        least=least[:, None],
        is_exact=terms.zero_point is not None,
    )
    select(operands, Order(count, True), values, places)
    return values, places


def _bias(stored: Stored, terms: Terms) -> Array:
    """Return what is added to the bounds of vectors: their bias, or what float32 may lose by underflow."""
    assert stored.bias is not None
    assert stored.scales is not None
    return stored.bias if terms.is_biased else np.where(stored.scales == 0, np.float32(np.inf), UNDERFLOW)


def _scores_of(ranks: Array, affine: Array) -> Array:
    """Return the least scores of a selection, float32, that may bound these ranks."""
    factor, added = affine.T
    with np.errstate(over="ignore", invalid="ignore"):
        least = (ranks - added - 2.0**-32 * (np.abs(ranks) + np.abs(added))) / factor
        rounded: Array = np.nextafter(least.astype(np.float32), np.float32(-np.inf))
    return rounded


def _can_help(asked: _Asked, rows: Array, floors: Array) -> Array:
    """Return for which queries a sample of the vectors says that few would be candidates, bool."""
    sample = asked.stored.sample
    least = _scores_of(floors, asked.terms.affine[rows])
    _, found = _candidates(sample, asked.terms, rows, len(sample) // _FEWEST, None, least)
    return np.asarray(found[:, -1] < 0)


def _refined(asked: _Asked, rows: Array, bounds: Array, candidates: Array, rests: Array) -> tuple[Found, Array]:
    """Return the k best of candidates (M, C), and for which queries they are proven to be the best of all."""
    vectors, squares, queries, (_, count) = asked.floats, asked.squares, asked.queries[rows], candidates.shape
    found, facts = Found.nothing(len(rows), asked.k), np.empty((len(rows), 2), np.int64)
    places = candidates
    if vectors.dtype not in (np.float32, np.float64):  # which kernels do not read
        names, places_of = np.unique(candidates, return_inverse=True)
        kept = np.maximum(names, 0)
        places = np.where(candidates < 0, -1, places_of.reshape(candidates.shape))
        vectors, squares = plain(vectors[kept]), squares[kept] if asked.metric == "cosine" else squares
    work = record_of(
        registry.load("search.refine.REFINE"),
        rows=len(rows),
        count=count,
        is_all=count >= len(asked.stored),
        best=asked.best(),
    )
    parts = threads.budget().parts(int(candidates.size * queries.shape[1] * _NS_OF_CANDIDATE) + 1, len(rows))
    registry.find("search", "refine").kernel.for_parts(parts)(
        queries.reshape(-1),
        asked.terms.squares[rows],
        flat(vectors),
        flat(squares),
        bounds.reshape(-1),
        places.reshape(-1),
        rests,
        asked.terms.affine[rows].reshape(-1),
        found.ranks.reshape(-1),
        found.positions.reshape(-1),
        facts.reshape(-1),
        work,
        np.empty(parts * registry.load("search.best.SCRATCH"), np.int64),
    )
    if places is not candidates:
        found.positions[...] = np.where(found.positions < 0, -1, names[np.maximum(found.positions, 0)])
    found.scored[...] = facts[:, 0]
    return found, facts[:, 1] != 0


def _score_all(asked: _Asked, rows: Array, found: Found) -> None:
    """Score all vectors for some queries, a block of queries at a time."""
    for start in range(0, len(rows), _SCANNED):
        _score_block(asked, rows[start : start + _SCANNED], found)


def _score_block(asked: _Asked, rows: Array, found: Found) -> None:
    """Score all vectors for some queries; what was found before is the least."""
    floats, queries, k, bits, names = asked.floats, asked.queries[rows], asked.k, asked.bits_of(rows), asked.names
    count, (total, depth) = len(rows), asked.stored.vectors.shape
    parts = threads.budget().parts(int(count * total * depth * _NS_OF_NUMBER) + 1, total)
    ranks, positions = np.full((parts, count, k), -np.inf), np.full((parts, count, k), -1, np.int64)
    counts, floors = np.zeros((parts, count), np.int64), asked.floors_of(rows, found)
    kernel = registry.find("search", "scan").kernel.for_parts(parts)
    share_cells = registry.load("search.best.SCRATCH") + registry.load("search.scan.BLOCK") * (depth + 1)
    is_read = names is None and floats.dtype in (np.float32, np.float64)  # as it is
    step = total if is_read else max(1, _CONVERTED // depth)
    for first in range(0, total, step):
        part = slice(first, first + step) if names is None else names[first : first + step]
        block = plain(floats[part])
        work = record_of(
            registry.load("search.scan.SCAN"),
            rows=count,
            first=first,
            count=len(block),
            bits_step=0 if bits is None or len(bits) == 1 else bits.shape[1],
            is_masked=bits is not None,
            share_cells=share_cells,
            best=asked.best(),
        )
        kernel(
            queries.reshape(-1),
            asked.terms.squares[rows],
            flat(block),
            flat(asked.squares[part]) if asked.metric == "cosine" else _NO_SQUARES,
            _NO_BITS if bits is None else bits.reshape(-1),
            floors,
            ranks.reshape(-1),
            positions.reshape(-1),
            counts.reshape(-1),
            work,
            np.empty(parts * share_cells, np.int64),
        )
    of_queries = [each.transpose(1, 0, 2).reshape(count, -1) for each in (ranks, positions)]
    best, places = best_of(of_queries[0], of_queries[1], k)
    if names is not None:
        places = names_of(names, places)
    found.put(rows, Found(best, places, found.scored[rows] + total, np.full(count, _ALL, np.int8)))
